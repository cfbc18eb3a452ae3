"""How fast a machine is: the numbers that cost models and rooflines are made of."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

REACHED = 0.6
"""What `MachineRates.reached` is of a machine that nobody measured."""
BY_UNITS = " by units"
"""Behind the name of what matrix units do."""


class ArithmeticUnit(enum.StrEnum):
    """What multiplies: each has a peak rate of its own."""

    F32 = "f32"
    """float32 in vector registers."""
    INT8 = "int8"
    """Bytes in vector registers, added up in int32."""
    BF16 = "bf16"
    """bfloat16 in matrix units (AMX)."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How much in a nanosecond: giga-operations, or gigabytes, per second."""

    one: float
    """One thread alone,"""
    all: float
    """and all threads together."""

    def at(self, threads: int, most: int) -> float:
        """With so many threads of `most`. In between, each thread adds as much as any other."""
        if threads <= 1 or most <= 1:
            return self.one
        return self.one + (self.all - self.one) * min(threads - 1, most - 1) / (most - 1)


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """A cache level, or main memory."""

    name: str
    size: int
    """Bytes that a core finds in it; 0 for main memory, which has no limit."""
    bandwidth: Rate
    """GB/s of reading or of copying, whichever is more."""
    byte_ps: float
    """Picoseconds for a byte that an elementwise kernel on one thread reads or writes."""
    overlap: float
    """How much of the shorter of arithmetic and memory traffic hides behind the longer: 1 for all
    of it, 0 for none.
    """


@dataclass(frozen=True, slots=True)
class MachineRates:
    """What one machine does in a second."""

    measured: bool
    """On the machine itself; else derived from its instruction sets."""
    threads: int
    """How many `Rate.all` is for."""
    clock_ghz: float
    peak: Mapping[ArithmeticUnit, Rate]
    """GFLOP/s, a multiply-add counted as two operations."""
    levels: tuple[MemoryLevel, ...]
    """Nearest first; the last is main memory."""
    dispatch_ns: float
    """From one step of a plan to the next, where one thread works alone."""
    barrier_ns: float
    """What it adds that all threads take part in a step."""
    wake_ns: float
    """Until threads that slept take part in a step."""
    element_ps: Mapping[str, float] = field(default_factory=dict)
    """By operator: picoseconds of arithmetic for an element of its result, on one thread."""
    transpose_ps: tuple[float, float] = (0.0, 0.0)
    """What an element costs that a fused transpose reads out of order: in cache, and beyond."""
    epilogue: Mapping[str, float] = field(default_factory=dict)
    """How much longer than by itself a function takes that is applied to the results of a product
    or a convolution, as a factor: by `product` or `convolution`, ` by units` where matrix units
    make them, and the function's operator.
    """
    reached: float = REACHED
    """The part of the peak rate of float32 that a convolution or product of a good shape reaches.
    """
    disturbed: bool = False
    """Did something else use the cores while it was measured? Then figures for all threads are too
    low, and those of waiting too high.
    """
    date: str = ""
    """When it was measured."""

    def level(self, size: int) -> MemoryLevel:
        """Where so many bytes lie that were used a moment ago."""
        return next(
            (level for level in self.levels if level.size and size <= level.size), self.levels[-1]
        )

    @property
    def cache_bytes(self) -> int:
        """Of the last cache level."""
        return self.levels[-2].size if len(self.levels) > 1 else 0

    def peak_of(self, unit: ArithmeticUnit, threads: int) -> float:
        """GFLOP/s of so many threads; those of float32 where there is no such unit."""
        return (self.peak.get(unit) or self.peak[ArithmeticUnit.F32]).at(threads, self.threads)

    def bandwidth_of(self, level: MemoryLevel, threads: int) -> float:
        """GB/s of so many threads."""
        return level.bandwidth.at(threads, self.threads)

    def bytes_per_cycle(self, level: MemoryLevel, threads: int) -> float:
        """Of each of so many threads."""
        return self.bandwidth_of(level, threads) / max(threads, 1) / self.clock_ghz
