"""How close a kernel comes to what its machine can do, and what keeps it from coming closer.

The least time of a kernel is the longer of two: its arithmetic at the machine's best rate (the peak
of multiply-adds for products and convolutions, for other functions what was measured of each), and
its traffic at the bandwidth of the memory that holds its data. `of_peak` is that least time as a
part of the time it took. Where data lies is derived from what a run touches; of weights that are
somewhat larger than the last cache, a part is still there a run later. A kernel that is quicker
than main memory had so much from the cache that it is as quick.

Operations and bytes are the lesser of two counts: what the operators in the kernel ask for by their
definitions, and what the program that was rendered carries out. An algorithm that needs fewer
products (Winograd's convolution), a window over the edge, and a row of a table count by what is
done, so that no kernel is above the peak; lanes beyond the end, and operands that are loaded again,
are no work that counts. `executed` has the program's own count.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from whence.attribution.cost_model import CostModel, Traffic
from whence.attribution.executed_work import ExecutedWork
from whence.attribution.traffic import traffic_of
from whence.attribution.work_items import WorkItems
from whence.building.program import ProgramStep
from whence.graph import Graph
from whence.ops.cost import measured_functions
from whence.rates import MachineRates, MemoryLevel


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
"""What a kernel takes at most whose time is that of its first instructions and loads: some ten
cache misses one after the other.
"""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Of one call of a kernel."""

    flops: int = 0
    bytes: int = 0
    executed: ExecutedWork | None = None
    """`None` where it was not counted."""
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
    executed: ExecutedWork | None,
) -> Efficiency:
    """What can be said of a step that took so long in a call, of which the calling thread waited so
    long for others.
    """
    traffic = traffic_of(graph, step, executed)
    if not step.symbol:
        return Efficiency(0, traffic.bytes, bound=Bound.REFERENCE)
    part = executed_part(step, executed)
    needed = [
        member.flops if measured_functions(member.op) else round(member.flops * part)
        for member in step.members
    ]
    arithmetic = sum(
        costs.arithmetic_ps(graph, graph[member.node], flops, by_units=step.reduced_precision)
        for member, flops in zip(step.members, needed, strict=True)
    )
    speed_up = _speed_up(costs.rates, threads)
    compute = arithmetic / 1000 / speed_up
    near, far = costs.levels(traffic)
    moving = _moving_ns(costs.rates, traffic, near, far, threads)
    if took_ns and moving > took_ns and not far.size and len(costs.rates.levels) > 1:
        last = costs.rates.levels[-2]
        cached = _moving_ns(costs.rates, traffic, near, last, threads)
        far, moving = (last, cached) if cached > took_ns else (far, took_ns)
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
    return Efficiency(
        sum(needed), traffic.bytes, executed, max(compute, moving), bound, divided.items, workers
    )


def _moving_ns(
    rates: MachineRates, traffic: Traffic, near: MemoryLevel, far: MemoryLevel, threads: int
) -> float:
    return traffic.near / rates.bandwidth_of(near, threads) + traffic.far / rates.bandwidth_of(
        far, threads
    )


def executed_part(step: ProgramStep, executed: ExecutedWork | None) -> float:
    """The part that a kernel carries out of the operations that its operators ask for, at most 1.
    Functions whose time is measured take that time, however many operations they are.
    """
    defined = sum(each.flops for each in step.members if not measured_functions(each.op))
    if executed is None or not defined:
        return 1.0
    return min(1.0, executed.operations / defined)


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
