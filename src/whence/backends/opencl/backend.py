"""A device that runs OpenCL, as a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.backends.opencl.adopt import adopt
from whence.backends.opencl.devices import (
    HOW_TO_GET_ONE,
    abilities,
    device_at,
    find_devices,
    name_of,
    require_pyopencl,
)
from whence.backends.opencl.profiler import DeviceProfiler
from whence.building.backend import Backend, DeviceRow
from whence.errors import InputError, UnsupportedError
from whence.ops.binding import Port

if TYPE_CHECKING:
    from whence.backends.opencl.generator import OpenClGenerator
    from whence.backends.opencl.instance import DeviceState, OpenClInstance
    from whence.building.program import Program
    from whence.ops.definition import Value
    from whence.runtime.device_memory import DeviceMemory


class OpenClBackend(Backend):
    """One device, and a context on it. Streams have queues of their own, or the application's."""

    kind = "opencl"
    no_device = HOW_TO_GET_ONE
    gap = "queue"
    reads_clock = False

    def __init__(self, index: int = 0, *, context: Any = None) -> None:
        cl = require_pyopencl()
        self.index = index
        self.device = device_at(index)
        """pyopencl's."""
        self.name = name_of(self.device)
        if context is not None and self.device not in context.devices:
            raise InputError(f"the context given is not on OpenCL device {index}, '{self.name}'")
        self.context = context if context is not None else cl.Context([self.device])
        self.abilities = abilities(self.device)
        self.threads = self.device.max_compute_units

    def buffer(self, size: int, content: np.ndarray | None = None) -> Any:
        """Memory of the device, of this size; or read-only, with the bytes of an array."""
        cl = require_pyopencl()
        flags = cl.mem_flags.READ_WRITE
        given: dict[str, Any] = {"size": max(size, 1)}
        if content is not None and content.nbytes:
            flags, given = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, {"hostbuf": content}
        try:
            return cl.Buffer(self.context, flags, **given)
        except cl.MemoryError as error:
            what = "" if content is None else " of constants"
            raise MemoryError(f"'{self.name}' has no room for {size:,} bytes{what}") from error

    def queue(self, *, profiling: bool) -> Any:
        """A new queue, in order."""
        cl = require_pyopencl()
        return cl.CommandQueue(
            self.context,
            self.device,
            cl.command_queue_properties.PROFILING_ENABLE if profiling else 0,
        )

    @classmethod
    def devices(cls) -> list[DeviceRow]:
        return [
            DeviceRow(
                name_of(each),
                each.max_compute_units,
                each.global_mem_size,
                each.platform.name.strip(),
            )
            for each in find_devices()
        ]

    def generator(self) -> OpenClGenerator:
        from whence.backends.opencl.generator import OpenClGenerator

        return OpenClGenerator(self.abilities, self)

    def instance(self, program: Program) -> OpenClInstance:
        from whence.backends.opencl.instance import OpenClInstance
        from whence.backends.opencl.program import OpenClProgram

        assert isinstance(program, OpenClProgram)
        return OpenClInstance(program, self)

    def state(self, program: Program, bound: Mapping[str, np.ndarray] | None = None) -> DeviceState:
        if bound:
            raise UnsupportedError("on a device, state does not lie in memory of the caller")
        from whence.backends.opencl.instance import DeviceState

        return DeviceState(program, self)

    def adopt(self, port: Port, value: Value) -> Value:
        return adopt(port, value, self.context)

    def run(
        self,
        instance: OpenClInstance,
        inputs: Sequence[Value],
        *,
        queue: Any = None,
        profiler: Any = None,
        state: Any = None,
        out: Sequence[Value] | None = None,
    ) -> list[Value]:
        taken = () if out is None else self._outputs(instance.program, out)
        queue = queue if queue is not None else self.queue(profiling=False)
        return instance.run(inputs, queue, profiler, state, taken)

    def _outputs(self, program: Program, out: Sequence[Value]) -> list[DeviceMemory | None]:
        graph = program.graph
        ports = [Port(node.name, graph.type_of(node.first_input)) for node in graph.outputs]
        if not isinstance(out, list | tuple) or len(out) != len(ports):
            raise InputError(
                f"out= takes a list of {len(ports)}, for each output memory of the device or None:"
                f" {', '.join(port.name for port in ports)}"
            )
        found = []
        for port, value in zip(ports, out, strict=True):
            memory = None if value is None else adopt(port, value, self.context, "output")
            if value is not None and memory is None:
                raise InputError(
                    f"output {port.name!r} is a {type(value).__name__}; a cl.Buffer or a"
                    " pyopencl.array.Array is needed, or None for a new array"
                )
            found.append(memory)
        return found

    def profiler(self) -> DeviceProfiler:
        return DeviceProfiler()
