"""The variables of a model in the memory of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whence.backends.opencl.devices import require_pyopencl
from whence.runtime.state_memory import VariableMemory, filled

if TYPE_CHECKING:
    from whence.backends.opencl.backend import OpenClBackend
    from whence.building.program import Program, Variable


class DeviceState(VariableMemory[Any]):
    """The present value of every variable, in buffers that stay on the device between runs."""

    def __init__(self, program: Program, engine: OpenClBackend) -> None:
        self._engine = engine
        # A queue of its own: nothing of a run is on its way while the lock is held.
        self._queue = engine.queue(profiling=False)
        super().__init__(program)

    def room(self, variable: Variable) -> Any:
        return self._engine.buffer(variable.nbytes)

    def write(self, room: Any, variable: Variable, pattern: np.ndarray) -> None:
        if variable.nbytes:
            require_pyopencl().enqueue_copy(self._queue, room, filled(variable, pattern))

    def read(self, room: Any, variable: Variable) -> np.ndarray:
        array = np.empty(variable.block.shape, variable.block.dtype)
        if array.nbytes:
            require_pyopencl().enqueue_copy(self._queue, array, room)
        return array
