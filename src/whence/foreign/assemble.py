"""From what an engine recorded to a profile, in the operators of the user's file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from whence.attribution.cost_model import CostModel
from whence.attribution.modules import find_modules
from whence.attribution.outcome_text import company_text
from whence.attribution.profile import Profile
from whence.attribution.rows import KernelParts, KernelRow, Part, SourceRow
from whence.attribution.source_row import parts_by_source, run_times, source_row
from whence.attribution.split import largest_remainder
from whence.foreign.operator_costs import operator_costs
from whence.foreign.placement import LONGER, NodePlacement, Placement, place
from whence.foreign.recording import Recording
from whence.foreign.source import SourceGraph, reached
from whence.graph.outcomes import Coverage, outcomes
from whence.provenance import Outcome
from whence.rates import MachineRates
from whence.report.files import WRITERS
from whence.report.html.page import page

POLICY = (
    "Anchored cuts: a kernel of {engine} has the operators of the file between the tensors and"
    " names that the engine kept, and its time is split between them by the cost model of whence's"
    " own profiles, with what functions cost that engine where that was measured. What a kernel is"
    " attributed by stands with it: tensor (it makes a tensor of the file), name (the engine kept a"
    " name) or neighbour (only its place). Changes of layout that the engine put in are charged to"
    " what they are there for, in a column of their own. Kernels whose operators are not certain"
    " are residuals."
)
UNCERTAIN = "uncertain"
_MOST_NOTES = 20


def assemble(
    source: SourceGraph,
    recording: Recording,
    *,
    model: str,
    rates: MachineRates,
    shapes: Mapping[str, Sequence[int]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Profile, Placement]:
    """The profile, and the placement behind it. `rates` is what things cost the engine."""
    placement = place(
        operator_costs(source, CostModel(rates), shapes),
        recording.nodes,
        has_edges=recording.has_edges,
        busy_ps=_busy_ps(recording),
    )
    totals = recording.node_ns.sum(axis=0, dtype=np.int64)
    residual = dict(recording.residual_ns)
    kernels = []
    for column, each in enumerate(placement.places):
        time = int(totals[column])
        if not each.weights and time:
            name = f"{UNCERTAIN}: {each.node.op}"
            residual[name] = residual.get(name, 0) + time
        kernels.append(_kernel(each, time, recording, column))
    wall = sum(recording.runs_ns)
    ran = [row for row in kernels if row.calls or row.time_ns]
    sources = _sources(source, placement, ran, recording, wall)
    profile = Profile(
        model=model,
        engine=f"{recording.engine} {recording.version}".strip(),
        threads=recording.threads,
        runs=len(recording.runs_ns),
        wall_ns=wall,
        residual_ns=residual,
        overhead_ratio=recording.overhead_ratio,
        coverage=Coverage.of(Outcome(row.fate) for row in sources),
        sources=sources,
        kernels=tuple(ran),
        passes=_by_evidence(placement, totals),
        runs_ns=recording.runs_ns,
        timeline=recording.timeline,
        timeline_ns=recording.timeline_ns,
        policy=POLICY.format(engine=recording.engine),
        notes=(*recording.notes, *_notes(source, placement, totals)),
        environment=dict(environment or {}),
        writers=WRITERS,
        render=page,
    )
    return profile, placement


def _busy_ps(recording: Recording) -> dict[int, int]:
    """By node: what all threads together spend on it in the shortest of its runs."""
    shortest = recording.node_ns.min(axis=0) if len(recording.node_ns) else ()
    return {
        node.number: 1000 * int(time) * max(1, recording.threads)
        for node, time in zip(recording.nodes, shortest, strict=False)
    }


def _kernel(each: NodePlacement, time: int, recording: Recording, column: int) -> KernelRow:
    whole = sum(each.weights.values())
    parts = largest_remainder(time, list(each.weights.values())) if each.weights else []
    ran = recording.node_ns[:, column]
    calls = int(recording.node_calls[column])
    return KernelRow(
        id=each.node.number,
        name=each.node.name,
        origin=tuple(
            Part(number, weight / whole, part, part if each.is_inserted else 0)
            for (number, weight), part in zip(each.weights.items(), parts, strict=True)
        ),
        time_ns=time,
        calls=calls,
        # Where a node runs several times in a run, only their sum is known.
        min_ns=int(ran.min()) * len(ran) // calls if calls else 0,
        native=True,
        inserted=each.is_inserted,
        ops=(each.node.op,),
        shape=each.node.shape,
        evidence=each.evidence.value,
        uncertain=each.doubt,
    )


def _sources(
    source: SourceGraph,
    placement: Placement,
    kernels: Sequence[KernelRow],
    recording: Recording,
    wall: int,
) -> tuple[SourceRow, ...]:
    parts = parts_by_source(kernels)
    claimed = {number for region in placement.regions.values() for number in region.operators}
    uncertain = placement.uncertain
    possible = _possible(recording, claimed)
    known = find_modules(source.graph)
    placed = parts.keys() | claimed | set(possible)
    rows = []
    for origin, read in zip(source.graph.ledger.sources, outcomes(source.graph), strict=True):
        own = parts.get(origin.id, ())
        fate = _fate(source, origin.id, placed, read)
        became = possible.get(origin.id)
        if became is None:
            became = _became(source, origin.id, own, fate)
            if origin.id in uncertain:
                became += f" (uncertain: {uncertain[origin.id]})"
        rows.append(
            source_row(
                origin,
                known.get(origin.id),
                fate,
                became,
                own,
                wall_ns=wall,
                run_ns=run_times(recording.node_ns, own),
            )
        )
    return tuple(rows)


def _possible(recording: Recording, claimed: Collection[int]) -> dict[int, str]:
    """By operator that is in one of several kernels, without it being known which: those kernels."""
    found: dict[int, list[str]] = defaultdict(list)
    for node in recording.nodes:
        for number in node.may_be:
            if number not in claimed:
                found[number].append(node.op)
    return {
        number: "uncertain: one of "
        + ", ".join(f"{count} × {op}" for op, count in Counter(ops).items())
        for number, ops in found.items()
    }


def _fate(source: SourceGraph, number: int, placed: Collection[int], read: Outcome) -> Outcome:
    if number in placed:
        return Outcome.LIVE
    if read in (Outcome.REMOVED, Outcome.DEAD):
        return read
    if source[number].stands_for is not None:
        return Outcome.REMOVED
    if number not in source.live or source[number].is_known_from_sizes:
        return Outcome.FOLDED
    return Outcome.LOST if _is_needed(source, number, placed) else Outcome.DEAD


def _is_needed(source: SourceGraph, number: int, placed: Collection[int]) -> bool:
    """Do its elements reach a kernel or a result of the model? Of an operator that only sizes are
    taken of, engines that know the sizes compute nothing.
    """
    return any(
        each in placed or each in source.results or source[each].holder is not None
        for each in reached([number], source.readers)
    )


def _became(source: SourceGraph, number: int, own: KernelParts, fate: Outcome) -> str:
    if not own:
        if source[number].stands_for is not None:
            return "does nothing"
        return {
            Outcome.FOLDED: "computed when the model was loaded",
            Outcome.LIVE: "in a kernel that did not run",
            Outcome.LOST: "not found in the engine's graph",
            Outcome.DEAD: "its result was not used, or only its size",
        }.get(fate, "replaced by what is inside it")
    companions = dict.fromkeys(
        part.id
        for kernel, _ in own
        if not kernel.inserted
        for part in kernel.origin
        if part.id != number
    )
    others = company_text([source[each].name for each in companions], source[number].name)
    main = [kernel for kernel, _ in own if not kernel.inserted] or [kernel for kernel, _ in own]
    where = f"→ {' + '.join(dict.fromkeys(op for kernel in main for op in kernel.ops))}"
    return f"with {others} {where}" if others else where


def _by_evidence(placement: Placement, totals: np.ndarray) -> dict[str, int]:
    """Time by what it is attributed by, in place of the passes that whence would list."""
    found: dict[str, int] = {}
    for column, each in enumerate(placement.places):
        if each.weights:
            name = f"by {each.evidence.value}" + (", put in by the engine" * each.is_inserted)
            found[name] = found.get(name, 0) + int(totals[column])
    return found


def _notes(source: SourceGraph, placement: Placement, totals: np.ndarray) -> list[str]:
    checks, places = placement.checks, placement.places
    causes = Counter(edge.cause for edge in checks.missing)
    found = [
        f"{checks.edges - len(checks.missing)} of {checks.edges} data edges between kernels are"
        " edges of the engine's graph"
        + "".join(f"; {count}: {cause.value}" for cause, count in causes.most_common()),
        f"{checks.heavy - len(checks.heavy_elsewhere)} of {checks.heavy} convolutions, products and"
        " recurrent cells are in exactly one kernel",
    ]
    listed = [
        f"uncertain: kernel {each.node.name} ({each.node.op}): {each.doubt}"
        for column, each in sorted(enumerate(places), key=lambda pair: -int(totals[pair[0]]))
        if each.doubt and totals[column]
    ]
    listed += [
        f"uncertain: operator {source[number].name}: {reason}"
        for number, reason in checks.uncertain.items()
    ]
    found += [
        f"uncertain: the parts of {count} × {op}, {LONGER}"
        for op, count in Counter(each.node.op for each in places if each.inseparable).items()
    ]
    more = len(listed) - _MOST_NOTES
    return found + listed[:_MOST_NOTES] + ([f"... and {more} more uncertain"] if more > 0 else [])
