"""A kernel: one compiled function and its parameters."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from whence.kernels.ir.statements import Stmt
from whence.rates import ArithmeticUnit
from whence.types import DType


class Role(enum.StrEnum):
    INPUT = "input"
    OUTPUT = "output"
    CONST = "const"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A kernel's parameter: `elements` of one type, dense, row-major unless a packing says
    otherwise.
    """

    name: str
    dtype: DType
    elements: int
    role: Role


@dataclass(frozen=True, slots=True)
class Member:
    """What one operator of the graph adds to the kernel: its node, its arithmetic, its share of
    memory traffic.
    """

    node: int
    op: str
    flops: int
    bytes: int


TASK = "task"
"""The name of the variable that counts a kernel's independent work items."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled function: work items `0 .. tasks-1`, any range of which may run on any
    thread.
    """

    name: str
    params: tuple[Buffer, ...]
    tasks: int
    body: tuple[Stmt, ...]
    members: tuple[Member, ...] = ()
    scratch_bytes: int = 0
    """Private memory each worker needs."""
    packings: Mapping[int, Callable[[np.ndarray], np.ndarray]] = field(
        default_factory=dict, compare=False, hash=False
    )
    """By parameter index: how a constant is rearranged at compile time."""
    unit: ArithmeticUnit = ArithmeticUnit.F32
    """What does most of its arithmetic; how fast that is decides how much work is worth waking
    another thread for.
    """
    reduced_precision: bool = False
    """Are its products less exact than those of float32?"""
    gang: bool = False
    """Work items depend on each other: every worker gets one range of them, and all run at the same
    time and meet at barriers.
    """

    dimensions: tuple[str, ...] = ()
    """The dimensions of the model, where the kernel depends on some: their sizes are one more
    parameter, an array of 64-bit integers in this order.
    """
    in_place: tuple[tuple[int, int], ...] = ()
    """Parameters, an output and an input, that may lie at the same place: the kernel then leaves
    what it does not change.
    """

    def dtype_of(self, buffer: str) -> DType:
        """The type of a parameter's elements."""
        return next(param.dtype for param in self.params if param.name == buffer)
