"""A profile from Vela's debug database: cycles of the commands, on the operators of the model that
Vela compiled.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence

from whence.attribution.database_times import add_times
from whence.attribution.profile import Profile, Writer
from whence.attribution.rows import Band, Event, KernelRow, Part, SourceRow
from whence.debugdb import rows
from whence.debugdb.cycles import Cycles
from whence.debugdb.join import Join, VelaPlace, VelaPlacement
from whence.debugdb.tables import DebugDatabase
from whence.graph.outcomes import Coverage
from whence.provenance import Outcome

_POLICY = (
    "{of}; a cycle is taken as {cycle}. The cycles of a command go to the operator that Vela made"
    " the command for; an operator that was absorbed by another has none of its own and is listed"
    " with the one that absorbed it. Vela counts the cycles of chained commands with the one they"
    " are chained to."
)
_FATES = {
    VelaPlace.COMMAND: Outcome.LIVE,
    VelaPlace.ABSORBED: Outcome.LIVE,
    VelaPlace.CPU: Outcome.LIVE,
    VelaPlace.REMOVED: Outcome.REMOVED,
    VelaPlace.UNKNOWN: Outcome.DEAD,
}
UNATTRIBUTED = "unattributed"


def vela_profile(
    db: DebugDatabase,
    join: Join,
    cycles: Cycles,
    *,
    model: str,
    clock_mhz: float = 1000.0,
    writers: Sequence[Writer] = (),
) -> Profile:
    """The profile of one run. At the default clock, a nanosecond of it is a cycle."""
    times = [round(each * 1000 / clock_mhz) for each in cycles.per_command]
    wall = sum(times)
    residual: dict[str, int] = defaultdict(int)
    absorbed = _absorbed_operators(join)
    kernels, events, at = [], [], 0
    for position, (row, command, time) in enumerate(
        zip(db.queue, join.commands, times, strict=True)
    ):
        origin: tuple[Part, ...] = ()
        if command.operator is None:
            residual[f"{UNATTRIBUTED}: {command.members[0]}"] += time
        else:
            origin = tuple(
                sorted(
                    [
                        Part(command.operator, 1.0, time),
                        *(Part(each, 0.0, 0) for each in absorbed[position]),
                    ]
                )
            )
        stream = f" of stream {row.cmdstream_id}" if len(db.cmdstream) > 1 else ""
        name = f"{' + '.join(command.members)} at {row.offset}{stream}"
        kernels.append(
            KernelRow(position, name, origin, time, 1, time, native=True, ops=command.members)
        )
        events.append(Event(position, at, at + time))
        at += time
    sources = tuple(
        _source(join, kernels, absorbed, operator.id, wall) for operator in join.operators
    )
    cycle = "1 ns" if clock_mhz == 1000 else f"{1000 / clock_mhz:g} ns ({clock_mhz:g} MHz)"
    return Profile(
        model=model,
        engine="Ethos-U by Vela",
        threads=1,
        runs=1,
        wall_ns=wall,
        residual_ns=dict(residual),
        overhead_ratio=0.0,
        coverage=Coverage.of(Outcome(row.fate) for row in sources),
        sources=sources,
        kernels=tuple(kernels),
        runs_ns=(wall,),
        timeline=tuple(events),
        timeline_ns=wall,
        policy=_POLICY.format(of=cycles.of, cycle=cycle),
        writers=tuple(writers),
    )


def _absorbed_operators(join: Join) -> list[dict[int, None]]:
    """By command: the operators in it besides the one it was made for."""
    found = [dict.fromkeys(command.absorbed) for command in join.commands]
    for operator, about in join.placements.items():
        if about.place is VelaPlace.ABSORBED:
            for position in about.commands:
                found[position][operator] = None
    return found


def _source(
    join: Join,
    kernels: Sequence[KernelRow],
    absorbed: Sequence[Iterable[int]],
    number: int,
    wall: int,
) -> SourceRow:
    operator, about = join.operators[number - 1], join.placements[number]
    time = sum(
        part.time_ns
        for position in about.commands
        for part in kernels[position].origin
        if part.id == number
    )
    return SourceRow(
        id=number,
        name=operator.name,
        op=operator.op,
        fate=_FATES[about.place].value,
        time_ns=time,
        share=time / wall if wall else 0.0,
        kernels=about.commands,
        scope=f"subgraph {operator.subgraph}" if operator.subgraph else "",
        became=_became(join, absorbed, about),
        # Estimated or measured once: there is no spread.
        band=Band(time, time, time),
    )


def _became(join: Join, absorbed: Sequence[Iterable[int]], about: VelaPlacement) -> str:
    def names(numbers: Iterable[int | None]) -> str:
        """Of several operators, each once; `None` is none."""
        known = dict.fromkeys(each for each in numbers if each is not None)
        return ", ".join(join.operators[each - 1].name for each in known)

    listed = ", ".join(map(str, about.commands[:4])) + (
        f" ... {about.commands[-1]}" if len(about.commands) > 4 else ""
    )
    where = f"→ command{'s' if len(about.commands) > 1 else ''} {listed}"
    match about.place:
        case VelaPlace.COMMAND:
            guests = names(each for position in about.commands for each in absorbed[position])
            chains = names(join.commands[position].chained for position in about.commands)
            where += f", chained to {chains}" if chains else ""
            return f"with {guests} {where}" if guests else where
        case VelaPlace.ABSORBED:
            holder = names([about.into]) or "a command without operator"
            return (
                f"absorbed by {holder}{', which made its input,' if about.inferred else ''} {where}"
            )
        case VelaPlace.CPU:
            return "runs on the CPU, outside the command stream"
        case VelaPlace.REMOVED:
            return "removed by Vela, no command"
        case VelaPlace.UNKNOWN:
            return "not in Vela's database"


def named_database(db: DebugDatabase, join: Join, profile: Profile) -> DebugDatabase:
    """The database with names, kernels and times beside Vela's tables, so that the saved questions
    have answers.
    """
    source_of = {operator: source for source, operator in join.source_ids.items()}
    own = {row.id: row for row in profile.sources}
    operators = [
        rows.OperatorRow(
            source, own[operator].name, own[operator].scope, "", "", "", own[operator].fate
        )
        for source, operator in join.source_ids.items()
    ]
    origins = [
        rows.OriginRow(row.id, row.source_id, 1.0)
        for row in db.optimised
        if row.source_id in join.source_ids
    ]
    in_order = sorted(db.optimised, key=lambda row: row.id)
    last_made = {row.source_id: row.id for row in in_order}
    kernels, members, samples = [], [], []
    for kernel, row, event in zip(profile.kernels, db.queue, profile.timeline, strict=True):
        kernels.append(rows.StepRow(kernel.id, kernel.name, "", 0, 0, ""))
        members.append(rows.MemberRow(kernel.id, row.optimised_id, 0, 0, 1.0))
        members += [
            rows.MemberRow(kernel.id, made, 0, 0, 0.0)
            for part in kernel.origin
            if not part.weight and (made := last_made.get(source_of[part.id])) is not None
        ]
        samples.append(rows.SampleRow(0, kernel.id, event.begin_ns, event.end_ns))
    named = dataclasses.replace(
        db,
        operator=operators,
        origin=origins,
        kernel=kernels,
        member=members,
        sample=samples,
        measured=[],
        attributed=[],
        residual=[],
    )
    add_times(named, profile, source_of)
    return named
