"""From what was measured to a profile: every kernel's time on the operators of the file."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.attribution.cost_model import CostModel
from whence.attribution.efficiency import NOT_KNOWN, Efficiency, efficiency_of, executed_part
from whence.attribution.equal_pressure import quantiles
from whence.attribution.executed_work import executed_work
from whence.attribution.leave_out import Measured
from whence.attribution.memory_use import is_continued, memory_use
from whence.attribution.modules import Module, find_modules
from whence.attribution.outcome_text import describe
from whence.attribution.policy import EXACT, MODELLED, REDUCED_PRECISION
from whence.attribution.profile import Background, Profile, Writer
from whence.attribution.rows import (
    Event,
    KernelRow,
    Part,
    Share,
    SourceRow,
    WorkerEvent,
)
from whence.attribution.shape_traits import contraction_of, trait_of
from whence.attribution.source_costs import own_work, sized, source_costs, source_kinds
from whence.attribution.source_row import parts_by_source, run_times, source_row
from whence.attribution.split import Splitter, largest_remainder
from whence.attribution.traffic import footprint, made_for_others
from whence.attribution.work_items import NOT_DIVIDED, work_items
from whence.building.program import Program, ProgramStep
from whence.graph import Graph
from whence.graph.outcomes import coverage, eliminated, outcomes
from whence.ops.definition import Cost
from whence.provenance import Ledger
from whence.rates import MachineRates
from whence.runtime.profiler import SAMPLE, ProgramPart

AS_READ = "as in the file"
# Times of single runs that a profile keeps of each kernel, for comparing it with another.
_STORED_RUNS, _STORED_SHORTEST = 64, 24


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the timed runs of one program gave. The times of kernels and the residuals add up to the
    wall times.
    """

    runs_ns: tuple[int, ...]
    residual_ns: Mapping[str, int]
    step_ns: np.ndarray
    """By step number: nanoseconds over all runs,"""
    step_calls: np.ndarray
    """how often it ran,"""
    step_waited_ns: np.ndarray
    """how much of its time the caller waited for other threads,"""
    step_min_ns: np.ndarray
    """and the shortest of its times."""
    per_run_ns: np.ndarray
    """Nanoseconds by run and step, for some of the runs."""
    busy_runs_ns: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """How long all threads together worked, by run and step, in some other runs; empty where nobody
    noted it.
    """
    busy_scatter: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """By step: how much that differs from moment to moment; empty where nobody noted it."""
    fixed_products_ns: tuple[int, ...] = ()
    """What a fixed piece of work took between runs."""
    timeline: tuple[Event, ...] = ()
    timeline_ns: int = 0
    workers: tuple[WorkerEvent, ...] = ()
    overhead_ratio: float = 0.0
    samples: np.ndarray = field(default_factory=lambda: np.zeros(0, SAMPLE))
    """Those of some of the runs, as an array of `SAMPLE`."""

    def stored_runs(self, step: int) -> list[int]:
        """What a step took in as many runs as a profile keeps, evenly among those there are."""
        runs = _of_step(self.per_run_ns, step)
        places = np.linspace(0, len(runs) - 1, min(len(runs), _STORED_RUNS)).round().astype(int)
        return [int(time) for time in runs[places]]

    def shortest_busy(self, step: int) -> list[int]:
        """The shortest times that all threads worked at a step."""
        return [int(time) for time in np.sort(_of_step(self.busy_runs_ns, step))[:_STORED_SHORTEST]]

    def busy_quantiles(self, step: int) -> list[int]:
        """Quantiles of the times that all threads worked at a step."""
        runs = _of_step(self.busy_runs_ns, step)
        return [int(time) for time in quantiles(runs)] if len(runs) else []

    def usual_ns(self, step: int) -> int:
        """The usual time of a step in a run: in a median run, or in one of those that were kept."""
        runs = _of_step(self.per_run_ns, step)
        return int(np.median(runs)) if len(runs) else 0


def _of_step(times: np.ndarray, step: int) -> np.ndarray:
    return times[:, step] if len(times) else np.zeros(0)


def _why(program: Program, step: ProgramStep, shown: Callable[[Program, int], str] | None) -> str:
    if step.symbol or shown is None or not step.nodes:
        return step.why_reference
    return shown(program, step.nodes[0]) or step.why_reference


def assemble(
    source_graph: Graph,
    program: Program,
    measured: Measurement,
    *,
    model: str,
    engine: str,
    threads: int,
    rates: MachineRates,
    shapes: Mapping[str, Sequence[int]] | None = None,
    writers: Sequence[Writer] = (),
    left_out: Measured | None = None,
    environment: Mapping[str, str] | None = None,
    parts: Sequence[ProgramPart] = (),
    why_reference: Callable[[Program, int], str] | None = None,
) -> Profile:
    """The profile of `program`, which was compiled from `source_graph` for inputs of these shapes.

    `parts` are the program and what ran as part of it, if anything did; steps are numbered on.
    `left_out` has what was measured of what each operator adds to its kernel; without it, that is
    modelled, with the `rates` of the machine. `why_reference` says what runs have shown of a
    reference step, by its node.
    """
    graph = program.graph
    parts = parts or (ProgramPart(0, program),)
    tried = left_out or Measured({}, ())
    costs = CostModel(rates, sum(footprint(each.program) for each in parts))
    as_run = sized(source_graph, shapes)
    own_costs, kinds = source_costs(as_run, costs), source_kinds(source_graph)
    residual = dict(measured.residual_ns)
    passes: dict[str, int] = defaultdict(int)
    kernels: list[KernelRow] = []
    split: dict[int, Sequence[Share]] = {}
    for first, part in parts:
        splitter = Splitter(part, own_costs, kinds, costs, tried.savings)
        divided = work_items(part)
        executed = executed_work(part) if engine == "cpu" else {}
        steps = [
            dataclasses.replace(
                each,
                number=first + each.number,
                why_reference=_why(part, each, why_reference),
            )
            for each in part.steps
        ]
        made_in = {node: step.number for step in steps for node in step.nodes}
        made_by = {edge.child: edge.pass_name for edge in part.graph.ledger.edges}
        for step in steps:
            if is_continued(step) and not measured.step_calls[step.number]:
                continue
            items = divided.get(step.number - first, NOT_DIVIDED)
            busy_ps = 1000 * items.workers(threads) * measured.usual_ns(step.number)
            shares = split[step.number] = splitter.split(step, busy_ps)
            time = int(measured.step_ns[step.number])
            if not shares:
                name = step.residual or f"unattributed: {step.name}"
                residual[name] = residual.get(name, 0) + time
            times = largest_remainder(time, [share.weight for share in shares]) if shares else []
            for share, each in zip(shares, times, strict=True):
                passes[made_by.get(share.node, AS_READ)] += each
            error = tried.errors.get(step.number, 0.0)
            calls = int(measured.step_calls[step.number]) or 1
            waited = measured.step_waited_ns[step.number] / calls
            known = (
                efficiency_of(
                    part.graph,
                    step,
                    costs,
                    items,
                    threads,
                    # What disturbs a run is no bound of the kernel.
                    min(time / calls, measured.usual_ns(step.number) or math.inf),
                    waited,
                    executed.get(step.number - first),
                )
                if engine == "cpu"
                else NOT_KNOWN
            )
            kernels.append(
                _kernel(part.graph, step, measured, shares, times, error, known, made_in, made_by)
            )
    wall = sum(measured.runs_ns)
    return Profile(
        model=model,
        engine=engine,
        threads=threads,
        runs=len(measured.runs_ns),
        wall_ns=wall,
        residual_ns=residual,
        overhead_ratio=measured.overhead_ratio,
        coverage=coverage(graph),
        sources=_sources(
            graph,
            kernels,
            measured,
            wall,
            find_modules(source_graph),
            own_work(as_run),
        ),
        kernels=tuple(kernels),
        passes=dict(passes),
        runs_ns=measured.runs_ns,
        fixed_products_ns=measured.fixed_products_ns,
        timeline=measured.timeline,
        timeline_ns=measured.timeline_ns,
        workers=measured.workers,
        policy=MODELLED if left_out is None else EXACT,
        notes=(
            *(
                (REDUCED_PRECISION,)
                if any(each.program.details.reduced_precision for each in parts)
                else ()
            ),
            *tried.notes,
        ),
        environment=dict(environment or {}),
        rates=rates if engine == "cpu" else None,
        memory=memory_use(parts, [row.id for row in kernels]) if engine == "cpu" else None,
        # What is written about a program knows no parts of it yet.
        background=(
            Background(source_graph, program, split, measured.samples) if len(parts) == 1 else None
        ),
        writers=tuple(writers),
    )


def _kernel(
    graph: Graph,
    step: ProgramStep,
    measured: Measurement,
    shares: Sequence[Share],
    times: Sequence[int],
    error: float,
    known: Efficiency,
    made_in: Mapping[int, int],
    made_by: Mapping[int, str],
) -> KernelRow:
    """`made_in` and `made_by` have the step and the pass that made each node."""
    whole = sum(share.weight for share in shares)
    weight: dict[int, int] = defaultdict(int)
    spent: dict[int, int] = defaultdict(int)
    inserted: dict[int, int] = defaultdict(int)
    for share, part in zip(shares, times, strict=True):
        weight[share.source] += share.weight
        spent[share.source] += part
        inserted[share.source] += part if share.inserted else 0
    is_inserted = bool(shares) and all(share.inserted for share in shares)
    makers = (made_by[node] for node in step.nodes if node in made_by)
    made, executed = made_for_others(graph, step), known.executed
    trait = trait_of(graph, step, executed_part(step, executed))
    inputs = (ref for node in map(graph.get, step.nodes) if node is not None for ref in node.inputs)
    read = dict.fromkeys(made_in.get(ref.node, step.number) for ref in inputs if ref is not None)
    return KernelRow(
        id=step.number,
        name=step.name,
        origin=tuple(
            Part(source, weight[source] / whole, spent[source], inserted[source])
            for source in sorted(weight)
        ),
        time_ns=int(measured.step_ns[step.number]),
        calls=int(measured.step_calls[step.number]),
        min_ns=int(measured.step_min_ns[step.number]),
        native=bool(step.symbol),
        why_reference=step.why_reference,
        inserted=is_inserted,
        ops=tuple(member.op for member in step.members),
        shape=", ".join(str(graph.type_of(ref)) for ref in made),
        waited_ns=int(measured.step_waited_ns[step.number]),
        flops=known.flops,
        bytes=known.bytes,
        defined_flops=sum(member.flops for member in step.members) if known.flops else 0,
        executed_flops=0 if executed is None else executed.operations,
        executed_bytes=0 if executed is None else executed.bytes,
        least_ns=known.least_ns,
        bound=str(known.bound),
        items=known.items,
        workers=known.workers,
        is_contraction=contraction_of(graph, step) is not None,
        trait_kind=trait.kind,
        trait=trait.words,
        reach=trait.reach,
        reads=tuple(number for number in read if number != step.number),
        made_bytes=sum(map(graph.nbytes, made)),
        inserted_by=next(makers, "") if is_inserted else "",
        runs_ns=tuple(measured.stored_runs(step.number)),
        shortest_busy_ns=tuple(measured.shortest_busy(step.number)),
        busy_quantiles_ns=tuple(measured.busy_quantiles(step.number)),
        busy_scatter=float(measured.busy_scatter[step.number]) if len(measured.busy_scatter) else 0,
        error=error,
    )


def _sources(
    graph: Graph,
    kernels: Sequence[KernelRow],
    measured: Measurement,
    wall: int,
    modules: Mapping[int, Module],
    work: Mapping[int, Cost],
) -> tuple[SourceRow, ...]:
    ledger = graph.ledger
    parts = parts_by_source(kernels)
    ends = {end.source_id: end for end in eliminated(graph)}
    holders = _holders(graph, ledger)
    stands_as: dict[int, set[str]] = defaultdict(set)
    for node in graph:
        for number in node.origin:
            stands_as[number].add(node.op)
    rows = []
    for source, fate in zip(ledger.sources, outcomes(graph), strict=True):
        own = parts.get(source.id, ())
        became = describe(
            ledger,
            source,
            fate,
            own,
            end=ends.get(source.id),
            holder=holders.get(source.id),
            stands_as=stands_as[source.id],
        )
        rows.append(
            source_row(
                source,
                modules.get(source.id),
                fate,
                became,
                own,
                wall_ns=wall,
                run_ns=run_times(measured.per_run_ns, own),
                work=work.get(source.id),
            )
        )
    return tuple(rows)


def _holders(graph: Graph, ledger: Ledger) -> dict[int, int]:
    """By source operator in a nested graph: one that holds the graph."""
    found: dict[int, int] = {}
    for outer in graph.nested():
        for node in outer:
            if not node.bodies or not node.origin:
                continue
            holder = min(node.origin)
            for body in node.bodies.values():
                for inner in body:
                    found.update(dict.fromkeys(inner.origin - node.origin, holder))
    return found
