"""How close a kernel comes to what its machine can do, and what keeps it from coming closer.

The least time of a kernel is the longer of two: its arithmetic at the machine's best rate (the peak of
multiply-adds for products and convolutions, for other functions what was measured of each), and its
traffic at the bandwidth of the memory that holds its data. `of_peak` is that least time as a part of
the time it took. Arithmetic is counted as the operators define it: a kernel that needs fewer products
(Winograd's convolution) may come out above 1.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from whence.attribution.cost_model import CostModel
from whence.attribution.traffic import traffic_of
from whence.attribution.work_items import WorkItems
from whence.building.program import ProgramStep
from whence.graph import Graph
from whence.rates import MachineRates


class Bound(enum.StrEnum):
    """What a kernel runs into."""

    COMPUTE = "compute"
    MEMORY = "memory"
    """The bandwidth of main memory,"""
    CACHE = "cache"
    """or of a cache."""
    WAITING = "waiting"
    """The calling thread waits for others, for a large part of the time."""
    DISPATCH = "dispatch"
    """Starting it takes as long as its work."""
    REFERENCE = "reference"
    """It has no native code."""
    UNKNOWN = ""


_MUCH = 0.4
"""From this part of a kernel's time on, waiting or dispatch is what it runs into."""
_COLD_CYCLES = 3000
"""What a kernel takes at most whose time is that of its first instructions and loads: some ten cache
misses one after the other.
"""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Of one call of a kernel."""

    flops: int = 0
    bytes: int = 0
    least_ns: float = 0.0
    """What the machine would need at best; 0 where nobody knows."""
    bound: Bound = Bound.UNKNOWN
    items: int = 1
    """Independent work items,"""
    workers: int = 1
    """and the threads that have one."""


NOT_KNOWN = Efficiency()


def efficiency_of(
    graph: Graph,
    step: ProgramStep,
    costs: CostModel,
    divided: WorkItems,
    threads: int,
    took_ns: float,
    waited_ns: float,
) -> Efficiency:
    """What can be said of a step that took so long in a call, of which the calling thread waited so
    long for others.
    """
    traffic = traffic_of(graph, step)
    flops = sum(member.flops for member in step.members)
    if not step.symbol:
        return Efficiency(0, traffic.bytes, 0.0, Bound.REFERENCE)
    arithmetic = sum(
        costs.arithmetic_ps(
            graph, graph[member.node], member.flops, by_units=step.reduced_precision
        )
        for member in step.members
    )
    speed_up = _speed_up(costs.rates, threads)
    compute = arithmetic / 1000 / speed_up
    near, far = costs.levels(traffic)
    moving = traffic.near / costs.rates.bandwidth_of(near, threads)
    moving += traffic.far / costs.rates.bandwidth_of(far, threads)
    workers = divided.workers(threads)
    # What a barrier costs was not measured where others used the cores at the time.
    meets = workers > 1 and not costs.rates.disturbed
    overhead = costs.rates.dispatch_ns + (costs.rates.barrier_ns if meets else 0.0)
    slowest = far if traffic.far >= traffic.near else near
    if took_ns and waited_ns >= _MUCH * took_ns:
        bound = Bound.WAITING
    elif took_ns and _is_tiny(costs.rates, took_ns, max(compute, moving), overhead):
        bound = Bound.DISPATCH
    elif compute >= moving:
        bound = Bound.COMPUTE
    else:
        bound = Bound.CACHE if slowest.size else Bound.MEMORY
    return Efficiency(flops, traffic.bytes, max(compute, moving), bound, divided.items, workers)


def _is_tiny(rates: MachineRates, took_ns: float, least_ns: float, overhead_ns: float) -> bool:
    """Does it take longer to start the kernel than to do its work? Starting is handing it out, and
    running into code that no cache holds.
    """
    if overhead_ns >= _MUCH * took_ns:
        return True
    return took_ns <= _COLD_CYCLES / rates.clock_ghz and least_ns < (1 - _MUCH) * took_ns


def _speed_up(rates: MachineRates, threads: int) -> float:
    """What so many threads compute, in times of what one does."""
    peak = next(iter(rates.peak.values()))
    return peak.at(threads, rates.threads) / peak.one
