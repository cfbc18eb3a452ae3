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
from whence.attribution.split import Savings, inserted_nodes, largest_remainder
from whence.attribution.traffic import made_for_others
from whence.attribution.variants import (
    LeftOut,
    Nest,
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
    without: Mapping[LeftOut, Variant]


def silently(_doing: str, _done: int, _total: int) -> None:
    """Progress that nobody is told of."""


def measure_savings(
    program: Program,
    prepared: Graph,
    engine: Engine,
    inputs: Sequence[Value],
    step_ns: Sequence[int],
    kinds: Kinds,
    progress: Progress = silently,
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
    notes: list[str] = []
    trials = [
        trial
        for step in steps
        if (trial := _trial(program, prepared, step, cpu.tuned.choices, notes)) is not None
    ]
    folded, inserted = prepared.ledger.folded_origins(), inserted_nodes(prepared.ledger)
    enough = {step.number: enough_for(step_ns[step.number] / total) for step in steps}
    found = _measured(program, cpu, trials, inputs, inserted, enough, progress, notes)
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
    return Measured(savings, (*notes, *unsure, *shared), errors)


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


def _trial(
    program: Program, prepared: Graph, step: ProgramStep, choices: Choices, notes: list[str]
) -> _Trial | None:
    """What to compile of a kernel; `None` when there is nothing to leave out."""
    nest = nest_of(program, prepared, step)
    places = list(left_outs(nest)) if nest is not None else []
    if nest is None or not places:
        return None
    made: dict[LeftOut | None, Variant] = {}
    for place in (None, *places):
        try:
            made[place] = variant(nest, program.details.tile, place, choices)
        except WhenceError as error:
            notes.append(_modelled(step, nest, place, str(error)))
    without = {place: made[place] for place in places if place in made}
    return _Trial(step, nest, made[None], without) if None in made and without else None


def _measured(
    program: Program,
    engine: CpuBackend,
    trials: Sequence[_Trial],
    inputs: Sequence[Value],
    inserted: Set[int],
    enough: Mapping[int, float],
    progress: Progress,
    notes: list[str],
) -> list[dict[LeftOut, Saving]]:
    """By trial: what leaving out saves. The variants of all trials are compiled together."""
    variants = [each for trial in trials for each in (trial.whole, *trial.without.values())]
    emitted = emit([each.kernel for each in variants], [["left out"] for _ in variants])
    symbols = iter(enumerate(emitted.symbols))
    by_trial: list[dict[LeftOut, Saving | int]] = []
    """What leaving out saves where known unmeasured, else the place among those that wait."""
    waiting: list[tuple[_Trial, Variant, str]] = []
    for trial in trials:
        _, whole = next(symbols)
        known: dict[LeftOut, Saving | int] = {}
        is_same = _code(whole) == _code(trial.step.symbol)
        if not is_same:
            why = "what would be compiled for it now is not what runs"
            notes.append(_modelled(trial.step, trial.nest, None, why))
        for place, made in trial.without.items():
            number, symbol = next(symbols)
            if not symbol:
                why = emitted.refused.get(number, "")
                notes.append(_modelled(trial.step, trial.nest, place, why))
            elif is_same and symbol == whole:
                known[place] = _NOTHING
            elif is_same:
                known[place] = len(waiting)
                waiting.append((trial, made, symbol))
        by_trial.append(known)
    wanted = {symbol for _, _, symbol in waiting}
    functions = (function for unit in emitted.units for function in unit.functions)
    units = pack(function for function in functions if function.symbol in wanted)
    found: list[Saving | None] = []
    if units:
        library = Library(
            engine.toolchain.build_library(
                units, progress=lambda _, done, total: progress("compiling variants", done, total)
            )
        )
        preparations = Preparations(program, inserted)
        tried = {trial.step.number for trial, _, _ in waiting}
        offers = []
        for trial, made, symbol in waiting:
            unread = frozenset(trial.whole.inputs) - frozenset(made.inputs)
            spared = preparations.spared(trial.step, unread, tried)
            offers.append(Offer(trial.step.number, symbol, made, trial.whole, spared))
        found = measure(
            Exchange(program, engine, inputs, library, offers),
            [offer.step for offer in offers],
            [enough[offer.step] for offer in offers],
            engine.runtime.now,
            progress=lambda spent, most: progress(
                "leaving out", spent // _TENTH_NS, most // _TENTH_NS
            ),
        )
    measured = []
    for trial, known in zip(trials, by_trial, strict=True):
        savings = {
            place: found[each] if isinstance(each, int) else each for place, each in known.items()
        }
        if None in savings.values():
            notes.append(_modelled(trial.step, trial.nest, None, "it did not run"))
        measured.append({place: saving for place, saving in savings.items() if saving is not None})
    return measured


def _code(symbol: str) -> str:
    """What tells functions with different bodies apart: the rest of a symbol is a name."""
    return symbol.rpartition("_")[2]


def _modelled(step: ProgramStep, nest: Nest, left_out: LeftOut | None, why: str) -> str:
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
    trial: _Trial, working: Sequence[int], kinds: Kinds, saved: Mapping[LeftOut, int]
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
            parts = largest_remainder(max(0, saved[role]), [1] * len(own))
            sources.update(zip(own, parts, strict=True))
    return Savings(_FINE, members, sources)
