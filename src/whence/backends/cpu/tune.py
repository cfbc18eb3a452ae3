"""Choosing kernels by timing them: for every problem of a graph that is new here, all candidates
run on this machine, and the winner is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from whence.backends.cpu.candidate_timing import NEVER, Candidate, time_candidates
from whence.backends.cpu.generator import tile_for
from whence.building.backend import Progress
from whence.building.tuning_records import Winner
from whence.errors import UnsupportedError
from whence.fusion import find_groups, fuse
from whence.graph import Graph, Node
from whence.kernels.choice import Choice, candidates, kind_of, lower_choice, problem_of
from whence.kernels.group import Group
from whence.kernels.lower import lower
from whence.kernels.tile import Tile

if TYPE_CHECKING:
    from whence.backends.cpu.backend import CpuBackend

Measure: TypeAlias = (
    "Callable[[CpuBackend, Sequence[Sequence[Candidate]], int, Progress | None],"
    " Iterable[Sequence[int]]]"
)
"""Times kernels of a model whose constants take so many bytes: for each trial, nanoseconds of each
kernel. `time_candidates`, or what stands in for it.
"""

# A winner that is not ahead of the cost model's choice by this much is no winner: another run might
# see it behind.
_WORTHWHILE = 0.97


@dataclass(frozen=True, slots=True)
class TunedProblem:
    """What came of one problem."""

    problem: str
    layers: int
    """How many kernels of the model it stands for."""
    winner: Winner
    is_new: bool
    """It was timed just now, not remembered."""

    @property
    def kind(self) -> str:
        """The algorithm that the cost model takes."""
        return kind_of(self.winner.usual)

    @property
    def differs(self) -> bool:
        return self.winner.choice != self.winner.usual


@dataclass(frozen=True, slots=True)
class _Trial:
    problem: str
    choices: tuple[Choice, ...]
    candidates: tuple[Candidate, ...]


def tune(
    graph: Graph,
    engine: CpuBackend,
    *,
    fusion: str = "dominator",
    progress: Progress | None = None,
    measure: Measure = time_candidates,
) -> tuple[TunedProblem, ...]:
    """Find the fastest kernels for a prepared graph, which still has its constants, and remember
    them in `engine.tuned`.
    """
    layers, trials = _problems(
        graph, fusion, tile_for(engine.toolchain, engine.threads, bf16x2=True)
    )
    known = engine.tuned.winners
    trials = [trial for trial in trials if trial.problem not in known]
    found: dict[str, Winner] = {}
    constants = sum(node.value.nbytes for node in graph if node.value is not None)
    times = (
        measure(engine, [trial.candidates for trial in trials], constants, progress)
        if trials
        else ()
    )
    for trial, measured in zip(trials, times, strict=True):
        if measured[0] < NEVER:
            found[trial.problem] = _winner(trial, measured)
    if found:
        engine.tuned.add(found)
    winners = engine.tuned.winners
    return tuple(
        TunedProblem(problem, count, winners[problem], problem in found)
        for problem, count in layers.items()
        if problem in winners
    )


def _problems(graph: Graph, fusion: str, tile: Tile) -> tuple[Counter[str], list[_Trial]]:
    """How many kernels each problem stands for, and who competes for it."""
    fused = fuse(graph, find_groups(graph, fusion))
    layers: Counter[str] = Counter()
    trials: dict[str, _Trial] = {}
    for step in lower(fused, tile):
        if step.kernel is None:
            continue
        entry = fused.entry_of(step.members[0].id)
        anchor = (
            entry.anchor if entry is not None and entry.anchor in step.members else step.members[0]
        )
        group = Group(graph, step.name, step.members, step.inputs, step.outputs)
        problem = problem_of(group, anchor, tile)
        if problem is None:
            continue
        if problem not in trials:
            choices = candidates(group, anchor, tile)
            made = {
                choice: candidate
                for choice in choices
                if (candidate := _candidate(group, choice, anchor, tile)) is not None
            }
            if len(made) < 2 or choices[0] not in made:
                continue
            trials[problem] = _Trial(problem, tuple(made), tuple(made.values()))
        layers[problem] += 1
    return layers, list(trials.values())


def _candidate(group: Group, choice: Choice, anchor: Node, tile: Tile) -> Candidate | None:
    nodes = [group.graph[ref.node] for ref in group.inputs]
    constants = tuple(node if node.is_const else None for node in nodes)
    try:
        kernel = lower_choice(group, anchor, tile, choice)
    except UnsupportedError:
        return None
    return Candidate(kernel, group.inputs, group.outputs, constants)


def _winner(trial: _Trial, measured: Sequence[int]) -> Winner:
    usual, usual_ns = trial.choices[0], measured[0]
    best = min(range(len(measured)), key=measured.__getitem__)
    if measured[best] > _WORTHWHILE * usual_ns:
        return Winner(usual, usual_ns, usual, usual_ns)
    return Winner(trial.choices[best], measured[best], usual, usual_ns)
