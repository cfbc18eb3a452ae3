"""What each operator adds to its kernel, measured: the kernel is timed whole and with the operator left out, in turns.

Kernels that the same code serves are measured once. A kernel of one operator needs no measuring, and one that has less than a thousandth of
the time is not worth it; neither is one that runs by reference. What could not be measured has a note and is modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from whence.attribution.anchor import anchor_of
from whence.attribution.kernel_timer import KernelTimer
from whence.attribution.source_costs import Kinds
from whence.attribution.split import Savings, inserted_nodes
from whence.attribution.variants import Nest, Role, Variant, left_outs, roles, sources_of, variant
from whence.errors import UnsupportedError, WhenceError
from whence.graph import Graph, Ref
from whence.kernels.choice import Choices
from whence.kernels.tile import Tile
from whence.provenance import NO_ORIGIN, Origin
from whence.runtime.build import tile_for
from whence.runtime.engine import CpuEngine, Engine
from whence.runtime.program import Program, ProgramStep

Progress = Callable[[str, int, int], None]
_LEAST_SHARE = 1000


@dataclass(frozen=True, slots=True)
class Measured:
    savings: Mapping[int, Savings]
    """By step."""
    notes: tuple[str, ...]
    """What had to be modelled, and why, a line each."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """One kernel to measure, and its variants by what is left out: a member by its position, or a part of the anchor."""

    whole: int
    without: Mapping[int | Role, int]
    dropped: Mapping[int, frozenset[int]]
    """By position of a member: the positions of those that were left out with it."""


def measure_savings(
    program: Program, prepared: Graph, engine: Engine, step_ns: Sequence[int], kinds: Kinds, progress: Progress | None = None
) -> Measured:
    """`prepared` is the graph of the program with its constants, `step_ns` the time of each step in the model, `kinds` what each operator is."""
    if not isinstance(engine, CpuEngine):
        raise UnsupportedError(f"an exact profile is for the cpu engine; on {engine.kind} leave out --exact")
    steps = [step for step in program.steps if step.symbol and step_ns[step.number] * _LEAST_SHARE >= sum(step_ns)]
    planner = _Planner(program, prepared, tile_for(engine.toolchain), engine.tuned.choices)
    for step in steps:
        planner.add(step)
    timer = KernelTimer(engine, planner.variants, progress and (lambda _, done, total: progress("compiling variants", done, total)))
    found: dict[str, tuple[int, Mapping[int | Role, int]]] = {}
    for done, (key, trial) in enumerate(planner.trials.items()):
        found[key] = _measure(timer, trial)
        if progress is not None:
            progress("leaving out", done + 1, len(planner.trials))
    folded, inserted = prepared.ledger.folded_origins(), inserted_nodes(prepared.ledger)
    savings = {}
    for number, key in planner.keys.items():
        whole, saved = found[key]
        nest = nest_of(program, prepared, program.steps[number])
        if whole and nest is not None:
            savings[number] = _savings(nest, sorted(prepared[nest.anchor].origin - folded.get(nest.anchor, NO_ORIGIN)), kinds, whole, saved)
    shared = (note for step in steps for note in _shared_nodes(prepared, step, savings.get(step.number), folded, inserted))
    return Measured(savings, (*planner.notes, *shared))


def _shared_nodes(prepared: Graph, step: ProgramStep, savings: Savings | None, folded: Mapping[int, Origin], inserted: Set[int]) -> Iterator[str]:
    """What stands for several operators of the file, between which only the model can tell."""
    told_apart = frozenset(savings.sources if savings is not None else ())
    for number in step.nodes:
        node = prepared[number]
        working = node.origin - folded.get(number, NO_ORIGIN) - told_apart
        if len(working) > 1 and number not in inserted:
            yield f"kernel {step.number} {step.name}: {node.op} stands for {len(working)} operators, between which it is split by the model"


class _Planner:
    """Collects what to compile."""

    def __init__(self, program: Program, prepared: Graph, tile: Tile, choices: Choices) -> None:
        self._program, self._prepared, self._tile, self._choices = program, prepared, tile, choices
        self.variants: list[Variant] = []
        self.trials: dict[str, _Trial] = {}
        self.keys: dict[int, str] = {}
        self.notes: list[str] = []

    def add(self, step: ProgramStep) -> None:
        nest = nest_of(self._program, self._prepared, step)
        if nest is None or not any(True for _ in left_outs(nest)):
            return
        entry = self._program.fused.entry_of(step.nodes[0])
        is_whole = entry is not None and len(entry.members) == len(step.nodes)
        key = f"{entry.key} {step.symbol}" if is_whole and entry is not None else f"step {step.number}"
        if key not in self.trials:
            trial = self._trial(step, nest)
            if trial is None:
                return
            self.trials[key] = trial
        self.keys[step.number] = key

    def _trial(self, step: ProgramStep, nest: Nest) -> _Trial | None:
        whole = self._variant(step, nest, None)
        if whole is None:
            return None
        position = {number: index for index, number in enumerate(nest.nodes)}
        without: dict[int | Role, int] = {}
        dropped: dict[int, frozenset[int]] = {}
        for left_out in left_outs(nest):
            made = self._variant(step, nest, left_out)
            if made is None:
                continue
            place = position[left_out] if isinstance(left_out, int) else left_out
            without[place] = made
            if isinstance(place, int):
                dropped[place] = frozenset(position[number] for number in self.variants[made].dropped if number != left_out)
        return _Trial(whole, without, dropped)

    def _variant(self, step: ProgramStep, nest: Nest, left_out: int | Role | None) -> int | None:
        try:
            made = variant(nest, self._tile, left_out, self._choices)
        except WhenceError as error:
            what = "it" if left_out is None else f"{nest.graph[left_out].op}" if isinstance(left_out, int) else f"what is {left_out.value}"
            self.notes.append(f"kernel {step.number} {step.name}: {what} is modelled, not measured: {error}")
            return None
        self.variants.append(made)
        return len(self.variants) - 1


def nest_of(program: Program, prepared: Graph, step: ProgramStep) -> Nest | None:
    """The step in the graph with constants; `None` when none of its members can be charged."""
    for number in step.nodes:
        node = prepared.get(number)
        if node is None or node.op != program.graph[number].op:
            raise UnsupportedError(f"the graph that was prepared again is not the one of the program: it differs in node %{number}")
    members = [member for member in step.members if prepared[member.node].origin]
    if not members:
        return None
    inside = set(step.nodes)
    outputs: dict[Ref, None] = {}
    for number in reversed(step.nodes):
        node = prepared[number]
        used = {ref for reader in prepared.consumers(node) if reader.id not in inside for ref in reader.inputs if ref is not None}
        outputs.update((node.ref(index), None) for index in range(len(node.outputs)) if node.ref(index) in used)
    return Nest(prepared, step.nodes, tuple(outputs), anchor_of(program, step, members).node) if outputs else None


def _measure(timer: KernelTimer, trial: _Trial) -> tuple[int, Mapping[int | Role, int]]:
    """The whole kernel's time, and what each left-out operator saves, less what was left out with it and is counted there."""
    tried = [place for place, number in trial.without.items() if timer.is_compiled(number)]
    if not timer.is_compiled(trial.whole) or not tried:
        return 0, {}
    whole, *times = timer.shortest([trial.whole, *(trial.without[place] for place in tried)])
    saved = {place: max(0, whole - time) for place, time in zip(tried, times, strict=True)}
    own = {
        place: max(0, value - sum(saved.get(other, 0) for other in trial.dropped[place])) if isinstance(place, int) else value
        for place, value in saved.items()
    }
    return whole, own


def _savings(nest: Nest, working: Sequence[int], kinds: Kinds, whole: int, saved: Mapping[int | Role, int]) -> Savings:
    """`working` are the source operators of the anchor."""
    members = {nest.nodes[place]: value for place, value in saved.items() if isinstance(place, int)}
    sources: dict[int, int] = {}
    for role in roles(nest):
        own = sources_of(role, working, kinds)
        if role in saved and own:
            # Where several operators are one activation, each has its part of what leaving all of them out saves.
            part, more = divmod(saved[role], len(own))
            sources.update((source, part + (position < more)) for position, source in enumerate(own))
    return Savings(whole, members, sources)
