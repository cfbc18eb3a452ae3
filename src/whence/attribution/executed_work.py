"""What the kernels of a program carry out, counted in the programs that their code was rendered
from.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from whence.building.kernel_programs import written_kernels
from whence.building.program import Program
from whence.errors import UnsupportedError
from whence.kernels.ir import Kernel
from whence.kernels.work import count_work


class ExecutedWork(NamedTuple):
    """Of one call of a kernel."""

    operations: int
    """Without functions that are many operations each."""
    bytes: int


def executed_work(program: Program) -> dict[int, ExecutedWork]:
    """By step number, for native steps whose course does not depend on the data."""
    found: dict[int, ExecutedWork] = {}
    equal: dict[bytes, ExecutedWork | None] = {}
    for number, kernel in program.details.kernels.read().items():
        key = written_kernels({0: dataclasses.replace(kernel, name="", members=())}).data
        if key not in equal:
            equal[key] = _counted(kernel)
        known = equal[key]
        if known is not None:
            found[number] = known
    return found


def _counted(kernel: Kernel) -> ExecutedWork | None:
    try:
        work = count_work(kernel)
    except UnsupportedError:
        return None
    return ExecutedWork(work.operations, work.bytes_of(kernel))
