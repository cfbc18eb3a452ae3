"""One profile of several graphs that run one after the other, as parts of one program."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from whence.attribution.outcome_text import with_later_kernels
from whence.attribution.profile import Profile
from whence.attribution.rows import Event, KernelRow, SourceRow, WorkerEvent
from whence.attribution.split import largest_remainder
from whence.errors import InputError
from whence.graph.outcomes import Coverage

_Event = TypeVar("_Event", Event, WorkerEvent)


def merge_profiles(
    profiles: Sequence[Profile],
    *,
    model: str,
    outside: str,
    outside_ns: int,
    notes: Iterable[str] = (),
) -> Profile:
    """Operators and kernels of all graphs, numbered on; wall time is that of all graphs and
    `outside_ns`, which is a residual named `outside`. What is known of a single graph alone, its
    memory, nodes and samples, is left out where there are several.
    """
    if not profiles:
        raise InputError("there is no profile to merge")
    first = profiles[0]
    wall = sum(each.wall_ns for each in profiles) + outside_ns
    sources: list[SourceRow] = []
    kernels: list[KernelRow] = []
    timeline: list[Event] = []
    workers: list[WorkerEvent] = []
    begin_ns = 0
    for number, each in enumerate(profiles, 1):
        last_source = max((row.id for row in sources), default=0)
        last_kernel = max((row.id for row in kernels), default=-1) + 1
        suffix = f"@{number}" if len(profiles) > 1 else ""
        for row in each.sources:
            sources.append(
                dataclasses.replace(
                    row,
                    id=row.id + last_source,
                    name=f"{row.name}{suffix}",
                    share=row.time_ns / wall if wall else 0.0,
                    kernels=tuple(kernel + last_kernel for kernel in row.kernels),
                    became=with_later_kernels(row.became, last_kernel),
                )
            )
        for kernel in each.kernels:
            parts = tuple(part._replace(id=part.id + last_source) for part in kernel.origin)
            reads = tuple(number + last_kernel for number in kernel.reads)
            kernels.append(
                dataclasses.replace(kernel, id=kernel.id + last_kernel, origin=parts, reads=reads)
            )
        timeline += [_later(event, last_kernel, begin_ns) for event in each.timeline]
        workers += [_later(event, last_kernel, begin_ns) for event in each.workers]
        begin_ns += each.timeline_ns
    residual = _summed([*(each.residual_ns for each in profiles), {outside: outside_ns}])
    return dataclasses.replace(
        first,
        model=model,
        wall_ns=wall,
        residual_ns=residual,
        overhead_ratio=_mean_overhead(profiles),
        coverage=Coverage(**_summed(dataclasses.asdict(each.coverage) for each in profiles)),
        sources=tuple(sources),
        kernels=tuple(kernels),
        passes=_summed(each.passes for each in profiles),
        runs_ns=_runs([each.runs_ns for each in profiles], outside_ns),
        timeline=tuple(timeline),
        timeline_ns=begin_ns,
        workers=tuple(sorted(workers)),
        notes=(*(note for each in profiles for note in each.notes), *notes),
        memory=first.memory if len(profiles) == 1 else None,
        background=first.background if len(profiles) == 1 else None,
    )


def _later(event: _Event, kernels: int, begin_ns: int) -> _Event:
    """Behind so many kernels and nanoseconds of other graphs."""
    return event._replace(
        kernel=event.kernel + kernels,
        begin_ns=event.begin_ns + begin_ns,
        end_ns=event.end_ns + begin_ns,
    )


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _mean_overhead(profiles: Sequence[Profile]) -> float:
    total = sum(each.wall_ns for each in profiles)
    weighed = sum(each.overhead_ratio * each.wall_ns for each in profiles)
    return weighed / total if total else 0.0


def _runs(parts: Sequence[Sequence[int]], outside_ns: int) -> tuple[int, ...]:
    """Run by run, with what is outside divided among them to the nanosecond."""
    count = min(len(part) for part in parts)
    if not count:
        return ()
    outside = largest_remainder(outside_ns, [1] * count)
    return tuple(map(sum, zip(outside, *(part[:count] for part in parts), strict=True)))
