"""The state of a model: when memory for it is made, and, where that is the caller's
(`Executable.bind`), which buffers can hold it, and which output has the next value of an input.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.errors import InputError
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.building.backend import Backend
    from whence.building.program import Program
    from whence.runtime.executable import Executable

WithState = Callable[[Mapping[str, str], Mapping[str, Sequence[int]]], "Executable"]
_PAST = re.compile(r"past(_key_values|_key_value)?")


class ModelState:
    """The variables of a model, whichever of its programs runs: memory for them is made when the
    first program that has any is known.
    """

    def __init__(self, backend: Backend, bound: Mapping[str, np.ndarray] | None = None) -> None:
        self._backend = backend
        self.bound = bound or {}
        """Memory of the caller in which variables lie."""
        self._memory: Any = None
        self._making = threading.Lock()

    def memory(self, program: Program) -> Any:
        """A `runtime.state_memory.VariableMemory`, for this program and all others."""
        with self._making:
            if self._memory is None:
                self._memory = self._backend.state(program, self.bound)
            return self._memory

    def reset(self) -> None:
        """Give every variable its initial value. Waits for a run that is on its way."""
        with self._making:
            memory = self._memory
        if memory is not None:
            with memory.lock:
                memory.reset()


def writable_array(name: str, value: Any) -> np.ndarray:
    """The caller's memory as an array that kernels may write to."""
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "__dlpack__"):
        try:
            array = np.from_dlpack(value.detach() if hasattr(value, "detach") else value)
        except (TypeError, ValueError, BufferError, RuntimeError) as error:
            raise InputError(f"buffer '{name}' cannot be used where it lies: {error}") from None
    else:
        raise InputError(
            f"buffer '{name}' is {type(value).__name__}: an array of NumPy is wanted, or one with"
            " DLPack"
        )
    if not array.flags.c_contiguous:
        raise InputError(f"buffer '{name}' has gaps between its rows, or another order of its axes")
    if not array.flags.writeable:
        raise InputError(f"buffer '{name}' is read-only, and every run changes it")
    return array


def check_buffers(arrays: Mapping[str, np.ndarray], variables: Mapping[str, TensorType]) -> None:
    """Each must be a variable of the model, of its type, and in memory of its own."""
    taken: list[tuple[str, np.ndarray]] = []
    for name, array in arrays.items():
        kind = variables.get(name)
        if kind is None:
            known = ", ".join(f"'{each}'" for each in variables) or "none"
            raise InputError(f"the model has no input or variable '{name}'; its variables: {known}")
        if array.dtype != kind.dtype.numpy or array.shape != kind.static_shape:
            raise InputError(
                f"buffer '{name}' is {array.dtype}{list(array.shape)}, and the variable {kind}"
            )
        for other, memory in taken:
            if np.may_share_memory(array, memory):
                raise InputError(f"buffers '{name}' and '{other}' share memory")
        taken.append((name, array))


def paired_outputs(
    inputs: Sequence[str], outputs: Sequence[str], given: Mapping[str, str]
) -> dict[str, str]:
    """By input, the output with its next value: the one that is given, or named like it."""
    found: dict[str, str] = {}
    for name in inputs:
        wanted = given.get(name) or _PAST.sub("present", name, count=1)
        if wanted == name or wanted not in outputs:
            listed = ", ".join(f"'{each}'" for each in outputs[:6])
            raise InputError(
                f"which output has the next value of input '{name}'? Say so in outputs=; the model"
                f" has {listed}{' and more' if len(outputs) > 6 else ''}"
            )
        found[name] = wanted
    if unknown := [name for name in given if name not in found]:
        raise InputError(f"an output is named for '{unknown[0]}', which has no buffer")
    return found
