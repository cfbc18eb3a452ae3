"""The rows of a profile. Times are nanoseconds, summed over the timed runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from whence.building.json_records import in_json


class Part(NamedTuple):
    """What one source operator has of a kernel."""

    id: int
    weight: float
    """Between 0 and 1; the weights of a kernel add up to 1. An operator that was only folded into
    it has 0.
    """
    time_ns: int
    inserted_ns: int = 0
    """Of that, in nodes that were put in because of the operator: layout changes and the like."""


class Share(NamedTuple):
    """The part of a kernel that one source operator has through one node."""

    source: int
    node: int
    weight: int
    inserted: bool
    """The node is a layout change or the like, which the operator caused."""


class Band(NamedTuple):
    """The middle half of what was measured, per run: a quarter of the runs was faster, a quarter
    slower.
    """

    low_ns: int
    median_ns: int
    high_ns: int


NO_BAND = Band(0, 0, 0)


class Distribution(NamedTuple):
    """Of times per run: the shortest, and those that half, nine tenths and 99 in a hundred of the
    runs stayed below.
    """

    min_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int


NO_DISTRIBUTION = Distribution(0, 0, 0, 0)


def distribution_of(times: Sequence[int]) -> Distribution:
    """Of a list of times. A part of the runs is rounded up: the 99th percentile of ten runs is the
    longest.
    """
    if not times:
        return NO_DISTRIBUTION
    ordered = sorted(times)

    def below(percent: int) -> int:
        return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]

    return Distribution(ordered[0], below(50), below(90), below(99))


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One operator of the file."""

    id: int
    name: str
    op: str
    fate: str
    time_ns: int
    share: float
    """Of the wall time."""
    kernels: tuple[int, ...]
    """The kernels it is in, as work or as an effect on constants."""
    module: str = ""
    module_from: str = ""
    """How the module is known: by weights, metadata, name or neighbours."""
    line: str = ""
    scope: str = ""
    became: str = ""
    """What happened to it, in a few words."""
    inserted_ns: int = 0
    band: Band = field(default=NO_BAND, metadata=in_json("band_ns"))
    distribution: Distribution = field(default=NO_DISTRIBUTION, metadata=in_json("distribution_ns"))
    blocks: tuple[int, ...] = field(default=(), metadata=in_json("blocks_ns"))
    """What its time was in consecutive blocks of runs, undisturbed ones (see `noise.py`): by how
    much they differ is the noise.
    """
    positions: tuple[int, ...] | None = None
    """Where the operators of the file that came from it stand, see `SourceOp.positions`."""
    table_id: int | None = None
    """Its id in the file's own table of source operators, where the file has one."""
    flops: int = 0
    """Arithmetic operations that the file asks for, in one run,"""
    bytes: int = 0
    """and bytes that it reads and writes, were it by itself."""
    of_peak: float = 0.0
    """How close the kernels that it is in come to what the machine can do, by its time in them; 0
    where nobody knows.
    """
    bound: str = ""
    """What the kernel runs into where most of its time goes: compute, memory, cache, waiting,
    dispatch, or reference.
    """
    error_ns: int = 0
    """The standard error of its time that measuring its parts of kernels has left, at most; 0 where
    these are modelled.
    """


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel, in execution order."""

    id: int
    name: str
    origin: tuple[Part, ...]
    time_ns: int
    calls: int
    min_ns: int
    native: bool
    why_reference: str = ""
    inserted: bool = False
    """It holds nothing but nodes that were put in because of others."""
    ops: tuple[str, ...] = ()
    """The operators of the optimised graph in it."""
    shape: str = ""
    """What it makes: the types of its outputs, `f32[1,64,56,56]`."""
    waited_ns: int = 0
    """Of its time, what the calling thread had nothing left to do in it and waited for the
    others.
    """
    flops: int = 0
    """Arithmetic operations of a call: as the operators define them, or what the kernel carries out
    of them where that is less,
    """
    bytes: int = 0
    """and bytes that it reads and writes, likewise."""
    defined_flops: int = 0
    """Operations as the operators define them: more than `flops` for Winograd's convolution."""
    executed_flops: int = 0
    """Operations that its program carries out, without exponentials and the like: more than `flops`
    where vectors reach beyond the end. 0 where nobody counted them.
    """
    executed_bytes: int = 0
    """Bytes of operands that it reads and writes: more than `bytes` where weights are packed with
    padding, or transformed.
    """
    least_ns: float = 0.0
    """What the machine would need for a call at best; 0 where nobody knows."""
    bound: str = ""
    """What it runs into: compute, memory, cache, waiting, dispatch, or reference."""
    items: int = 1
    """Independent work items,"""
    workers: int = 1
    """and the threads that have one."""
    is_contraction: bool = False
    """Does it convolve or multiply matrices?"""
    trait_kind: str = ""
    """What about its shape keeps it from the peak rate: channels, depthwise, rows or small;"""
    trait: str = ""
    """in words, `3 channels in`;"""
    reach: float = 1.0
    """and the part of what other kernels reach that the shape leaves."""
    reads: tuple[int, ...] = ()
    """The kernels that make what it reads."""
    made_bytes: int = 0
    """Bytes of what it makes for others."""
    inserted_by: str = ""
    """Of a kernel that holds only inserted nodes, the pass."""
    runs_ns: tuple[int, ...] = ()
    """What it took in each of some of the runs, in their order."""
    shortest_busy_ns: tuple[int, ...] = ()
    """How long all threads together worked at it in a run, without waiting: of some other runs, the
    shortest times, in order. Empty where nobody noted it.
    """
    busy_quantiles_ns: tuple[int, ...] = ()
    """and quantiles of all of those times (`FRACTIONS` of `equal_pressure.py`)."""
    busy_scatter: float = 0.0
    """By how much the shortest such time differs from moment to moment, beside other kernels, as a
    logarithm (see `moment_scatter.py`).
    """
    error: float = 0.0
    """The standard error of the weights that were measured, the largest if there are several; 0
    where they are modelled.
    """
    evidence: str = ""
    """Of a kernel of another engine: what its operators are known by (tensor, name, neighbour, or
    none). Empty for kernels of whence, whose origins are recorded.
    """
    uncertain: str = ""
    """Why the operators of such a kernel are not known; its time is then a residual."""

    @property
    def of_peak(self) -> float:
        """What the machine would need at best, as a part of what it took; 0 where nobody knows."""
        return self.least_ns * self.calls / self.time_ns if self.time_ns else 0.0

    @property
    def best_of_peak(self) -> float:
        """The same of the shortest call."""
        return self.least_ns / self.min_ns if self.min_ns else 0.0

    @property
    def executed_part(self) -> float:
        """Of a convolution or product: operations that its program carries out, as a part of those
        that the operators define; 0 where nobody counted them.
        """
        is_known = self.is_contraction and self.defined_flops
        return self.executed_flops / self.defined_flops if is_known else 0.0

    @property
    def gflops(self) -> float:
        """Operations in a nanosecond."""
        return self.flops * self.calls / self.time_ns if self.time_ns else 0.0

    @property
    def gbytes(self) -> float:
        """Bytes in a nanosecond."""
        return self.bytes * self.calls / self.time_ns if self.time_ns else 0.0


KernelParts = Sequence[tuple[KernelRow, Part]]
"""The kernels that an operator is in, with its part of each."""


class Event(NamedTuple):
    """One kernel in the timeline of one run, in nanoseconds from its submission."""

    kernel: int
    begin_ns: int
    end_ns: int
    waited_ns: int = 0
    """At its end, for how long the calling thread waited for others."""


class WorkerEvent(NamedTuple):
    """What one thread did of a kernel in that run. Between two of them it waited."""

    worker: int
    """0 is the thread that called the model."""
    kernel: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Source operators, or kernels, taken together."""

    key: str
    time_ns: int
    share: float
    operators: int
    kernels: int
