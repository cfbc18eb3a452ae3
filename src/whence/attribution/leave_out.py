"""What each operator adds to its kernel, measured: the program runs as it is and with variants of
its kernels from which an operator is left out.

A kernel of one operator needs no measuring, and one that has less than a thousandth of the time is
not worth it; neither is one that runs by reference. What could not be measured, or not well enough,
has a note; the former is modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from whence.attribution.anchor import anchor_of
from whence.attribution.exchange import Exchange, Offer
from whence.attribution.preparations import Preparations
from whence.attribution.rounds import Saving, measure
from whence.attribution.source_costs import Kinds
from whence.attribution.split import Savings, inserted_nodes
from whence.attribution.traffic import made_for_others
from whence.attribution.variants import (
    Nest,
    SupernodePart,
    Variant,
    left_outs,
    roles,
    sources_of,
    variant,
)
from whence.backends.cpu.backend import CpuBackend
from whence.building.backend import Progress
from whence.building.native_code import Library
from whence.building.program import Program, ProgramStep
from whence.codegen.emit import emit, pack
from whence.errors import UnsupportedError, WhenceError
from whence.graph import Graph
from whence.kernels.choice import Choices
from whence.kernels.tile import Tile
from whence.ops.definition import Value
from whence.provenance import NO_ORIGIN, Origin
from whence.runtime.engine import Engine

_LEAST_SHARE = 1000
_FINE = 1_000_000
_TENTH_NS = 100_000_000
_NOTHING = Saving(0.0, 0.0)
# The standard error that is good enough: a point of a kernel; of a small one a tenth of a point of
# the model, but never more than three of its own.
_ENOUGH, _ENOUGH_OF_MODEL, _WORST = 0.01, 0.001, 0.03


@dataclass(frozen=True, slots=True)
class Measured:
    savings: Mapping[int, Savings]
    """By step."""
    notes: tuple[str, ...]
    """What had to be modelled, or is not known well, and why, a line each."""
    errors: Mapping[int, float] = field(default_factory=dict)
    """By step: the standard error of what was measured of it, as a part of the kernel; the largest
    if there are several.
    """


@dataclass(frozen=True, slots=True)
class _Trial:
    """One kernel to measure, and its variants by what is left out: a member, or a part of the
    anchor.
    """

    step: ProgramStep
    nest: Nest
    whole: Variant
    without: Mapping[int | SupernodePart, Variant]


def measure_savings(
    program: Program,
    prepared: Graph,
    engine: Engine,
    inputs: Sequence[Value],
    step_ns: Sequence[int],
    kinds: Kinds,
    progress: Progress | None = None,
) -> Measured:
    """`prepared` is the graph of the program with its constants, `step_ns` the time of each step in
    the model, `kinds` what each operator is.
    """
    if not isinstance(engine.backend, CpuBackend):
        raise UnsupportedError(
            f"an exact profile is for the cpu engine; on {engine.kind} leave out --exact"
        )
    cpu = engine.backend
    total = sum(step_ns)
    if not total:
        # A model of empty tensors.
        return Measured({}, ())
    steps = [
        step
        for step in program.steps
        if step.symbol and step_ns[step.number] * _LEAST_SHARE >= total
    ]
    planner = _Planner(program, prepared, program.details.tile, cpu.tuned.choices)
    trials = [trial for step in steps if (trial := planner.trial(step)) is not None]
    folded, inserted = prepared.ledger.folded_origins(), inserted_nodes(prepared.ledger)
    bench = _Bench(program, cpu, trials, Preparations(program, inserted), progress)
    enough = {step.number: enough_for(step_ns[step.number] / total) for step in steps}
    found = bench.measure(inputs, enough, progress)
    savings, errors, unsure = {}, {}, []
    for trial, saved in zip(trials, found, strict=True):
        if not saved:
            continue
        step, anchor = trial.step, trial.nest.anchor
        working = sorted(prepared[anchor].origin - folded.get(anchor, NO_ORIGIN))
        savings[step.number] = _savings(
            trial,
            working,
            kinds,
            {place: round(each.part * _FINE) for place, each in saved.items()},
        )
        errors[step.number] = max(each.error for each in saved.values())
        if errors[step.number] > enough[step.number]:
            unsure.append(
                f"kernel {step.number} {step.name}: shares have a standard error of"
                f" {100 * errors[step.number]:.1f} points"
            )
    shared = (
        note
        for step in steps
        for note in _shared_nodes(prepared, step, savings.get(step.number), folded, inserted)
    )
    return Measured(savings, (*planner.notes, *bench.notes, *unsure, *shared), errors)


def enough_for(part: float) -> float:
    """The standard error that will do for the shares of a kernel that has this part of the time."""
    return max(_ENOUGH, min(_WORST, _ENOUGH_OF_MODEL / part)) if part else _WORST


def _shared_nodes(
    prepared: Graph,
    step: ProgramStep,
    savings: Savings | None,
    folded: Mapping[int, Origin],
    inserted: Set[int],
) -> Iterator[str]:
    """What stands for several operators of the file, between which only the model can tell."""
    told_apart = frozenset(savings.sources if savings is not None else ())
    for number in step.nodes:
        node = prepared[number]
        working = node.origin - folded.get(number, NO_ORIGIN) - told_apart
        if len(working) > 1 and number not in inserted:
            yield (
                f"kernel {step.number} {step.name}: {node.op} stands for {len(working)} operators,"
                " between which it is split by the model"
            )


class _Planner:
    """Finds what to compile."""

    def __init__(self, program: Program, prepared: Graph, tile: Tile, choices: Choices) -> None:
        self._program, self._prepared, self._tile, self._choices = program, prepared, tile, choices
        self.notes: list[str] = []

    def trial(self, step: ProgramStep) -> _Trial | None:
        """`None` when there is nothing to leave out."""
        nest = nest_of(self._program, self._prepared, step)
        tried = [] if nest is None else list(left_outs(nest))
        if nest is None or not tried:
            return None
        whole = self._variant(step, nest, None)
        made = {left_out: self._variant(step, nest, left_out) for left_out in tried}
        without = {left_out: each for left_out, each in made.items() if each is not None}
        return _Trial(step, nest, whole, without) if whole is not None and without else None

    def _variant(
        self, step: ProgramStep, nest: Nest, left_out: int | SupernodePart | None
    ) -> Variant | None:
        try:
            return variant(nest, self._tile, left_out, self._choices)
        except WhenceError as error:
            self.notes.append(_modelled(step, nest, left_out, str(error)))
            return None


class _Bench:
    """The variants of all trials, compiled, and the offers that come of them."""

    def __init__(
        self,
        program: Program,
        engine: CpuBackend,
        trials: Sequence[_Trial],
        preparations: Preparations,
        progress: Progress | None,
    ) -> None:
        self._program, self._engine, self._trials = program, engine, trials
        self.notes: list[str] = []
        kernels = [
            each.kernel for trial in trials for each in (trial.whole, *trial.without.values())
        ]
        emitted = emit(kernels, [["left out"] for _ in kernels])
        symbols = iter(emitted.symbols)
        reasons = iter(emitted.refused.get(number, "") for number in range(len(kernels)))
        self._known: list[dict[int | SupernodePart, Saving | int]] = []
        """By trial: what leaving out saves where known unmeasured, else the offer's number."""
        waiting: list[tuple[_Trial, Variant, str]] = []
        for trial in trials:
            whole, _ = next(symbols), next(reasons)
            known: dict[int | SupernodePart, Saving | int] = {}
            is_same = _code(whole) == _code(trial.step.symbol)
            if not is_same:
                self.notes.append(
                    _modelled(
                        trial.step,
                        trial.nest,
                        None,
                        "what would be compiled for it now is not what runs",
                    )
                )
            for place, made in trial.without.items():
                symbol, reason = next(symbols), next(reasons)
                if not symbol:
                    self.notes.append(_modelled(trial.step, trial.nest, place, reason))
                elif is_same and symbol == whole:
                    known[place] = _NOTHING
                elif is_same:
                    known[place] = len(waiting)
                    waiting.append((trial, made, symbol))
            self._known.append(known)
        wanted = {symbol for _, _, symbol in waiting}
        units = pack(
            function
            for unit in emitted.units
            for function in unit.functions
            if function.symbol in wanted
        )
        shown = (
            None
            if progress is None
            else lambda _, done, total: progress("compiling variants", done, total)
        )
        self._library = (
            Library(engine.toolchain.build_library(units, progress=shown)) if units else None
        )
        tried = {trial.step.number for trial, _, _ in waiting}
        self._offers = [
            Offer(
                trial.step.number,
                symbol,
                made,
                trial.whole,
                preparations.spared(
                    trial.step, frozenset(trial.whole.inputs) - frozenset(made.inputs), tried
                ),
            )
            for trial, made, symbol in waiting
        ]

    def measure(
        self, inputs: Sequence[Value], enough: Mapping[int, float], progress: Progress | None
    ) -> list[dict[int | SupernodePart, Saving]]:
        """By trial: what leaving out saves."""
        found: list[Saving | None] = []
        if self._library is not None:
            exchange = Exchange(self._program, self._engine, inputs, self._library, self._offers)
            shown = (
                None
                if progress is None
                else lambda spent, most: progress(
                    "leaving out", spent // _TENTH_NS, most // _TENTH_NS
                )
            )
            steps = [offer.step for offer in self._offers]
            found = measure(
                exchange,
                steps,
                [enough[step] for step in steps],
                self._engine.runtime.now,
                progress=shown,
            )
        measured = []
        for trial, known in zip(self._trials, self._known, strict=True):
            savings = {
                place: found[each] if isinstance(each, int) else each
                for place, each in known.items()
            }
            if None in savings.values():
                self.notes.append(_modelled(trial.step, trial.nest, None, "it did not run"))
            measured.append(
                {place: saving for place, saving in savings.items() if saving is not None}
            )
        return measured


def _code(symbol: str) -> str:
    """What tells functions with different bodies apart: the rest of a symbol is a name."""
    return symbol.rpartition("_")[2]


def _modelled(step: ProgramStep, nest: Nest, left_out: int | SupernodePart | None, why: str) -> str:
    what = (
        "it"
        if left_out is None
        else (
            f"{nest.graph[left_out].op}"
            if isinstance(left_out, int)
            else f"what is {left_out.value}"
        )
    )
    return f"kernel {step.number} {step.name}: {what} is modelled, not measured: {why}"


def nest_of(program: Program, prepared: Graph, step: ProgramStep) -> Nest | None:
    """The step in the graph with constants; `None` when none of its members can be charged."""
    for number in step.nodes:
        node = prepared.get(number)
        if node is None or node.op != program.graph[number].op:
            raise UnsupportedError(
                "the graph that was prepared again is not the one of the program: it differs in"
                f" node %{number}"
            )
    members = [member for member in step.members if prepared[member.node].origin]
    if not members:
        return None
    made = made_for_others(prepared, step)
    if not made:
        return None
    last_first = sorted(made, key=lambda ref: step.nodes.index(ref.node), reverse=True)
    return Nest(prepared, step.nodes, tuple(last_first), anchor_of(program, step, members).node)


def _savings(
    trial: _Trial, working: Sequence[int], kinds: Kinds, saved: Mapping[int | SupernodePart, int]
) -> Savings:
    """In millionths of the kernel. `working` are the source operators of the anchor."""
    members = {}
    for place, value in saved.items():
        if isinstance(place, int):
            # What was left out with it is counted there.
            with_it = trial.without[place].dropped - {place}
            members[place] = max(0, value - sum(max(0, saved.get(other, 0)) for other in with_it))
    sources: dict[int, int] = {}
    for role in roles(trial.nest):
        own = sources_of(role, working, kinds)
        if role in saved and own:
            # Where several operators are one activation, each has its part of what leaving all of
            # them out saves.
            part, more = divmod(max(0, saved[role]), len(own))
            sources.update(
                (source, part + (position < more)) for position, source in enumerate(own)
            )
    return Savings(_FINE, members, sources)
