"""Tuning: the winner is the one that was timed shortest, it is remembered, and every later
compilation uses it. Times are made up here.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from whence import api
from whence.backends.cpu.backend import CpuBackend
from whence.backends.cpu.candidate_timing import NEVER, Candidate, time_candidates
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.tune import tune
from whence.building.backend import Backend, Progress
from whence.building.tuning_records import TuningRecords
from whence.codegen.cache import Cache
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.errors import UnsupportedError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.kernels.conv.winograd import WinogradPlan
from whence.kernels.product.gemm import GemmPlan
from whence.runtime.engine import Engine
from whence.types import DType

X = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned") / "kernels"


@pytest.fixture
def folder(compiled: Path) -> Path:
    """A cache that has code in it, but nothing that was tuned."""
    shutil.rmtree(compiled / "tuned", ignore_errors=True)
    return compiled


def _engine(folder: Path, threads: int = 2, target: Target | None = None) -> CpuBackend:
    return CpuBackend(threads=threads, toolchain=Toolchain(target, cache=Cache(folder)))


@pytest.fixture
def engine(folder: Path) -> CpuBackend:
    return _engine(folder)


def _net(name: str = "net", layers: int = 2) -> Graph:
    """Convolutions that are one problem, and a product."""
    rng, build = np.random.default_rng(1), GraphBuilder(name)
    y = build.input("x", DType.F32, X.shape)
    for number in range(layers):
        weights = rng.standard_normal((16, 16, 3, 3)).astype(np.float32)
        y = build.op(
            "Conv",
            y,
            build.const(weights),
            pads=(1, 1, 1, 1),
            kernel_shape=(3, 3),
            name=f"conv{number}",
        )
        y = build.op("Relu", y, name=f"relu{number}")
    y = build.op("Flatten", y, axis=1, name="flat")
    build.output(
        "y",
        build.op(
            "MatMul",
            y,
            build.const(rng.standard_normal((1024, 40)).astype(np.float32)),
            name="product",
        ),
    )
    return build.finish()


def _prepared(graph: Graph | None = None) -> Graph:
    return api.prepare(graph if graph is not None else _net())


class Stopwatch:
    """Times that are made up: 1000 for everybody, except for the candidate at some place, counted
    from the end.
    """

    def __init__(self, place: int = -1, nanoseconds: int = 500) -> None:
        self.place, self.nanoseconds = place, nanoseconds
        self.trials: list[int] = []

    def __call__(
        self,
        _engine: CpuBackend,
        trials: Sequence[Sequence[Candidate]],
        _bytes: int,
        _progress: Progress | None,
    ) -> Iterator[list[int]]:
        for trial in trials:
            self.trials.append(len(trial))
            times = [1000] * len(trial)
            times[self.place] = self.nanoseconds
            yield times


def _refuse(*_: object) -> Iterator[list[int]]:
    raise AssertionError("kernels were timed")


def _bodies(graph: Graph, engine: CpuBackend) -> list[str]:
    program = build_program(
        graph,
        engine.toolchain,
        threads=engine.threads,
        choices=engine.tuned.choices,
        load=False,
    )
    return [step.symbol for step in program.steps]


def _file(folder: Path) -> Path:
    (path,) = (folder / "tuned").iterdir()
    return path


# ---- winners ----


def test_the_shortest_time_wins(engine: CpuBackend) -> None:
    watch = Stopwatch()
    findings = tune(_prepared(), engine, measure=watch)
    assert [(each.layers, each.is_new, each.differs) for each in findings] == [
        (2, True, True),
        (1, True, True),
    ]
    assert len(watch.trials) == 2
    assert min(watch.trials) > 2
    assert [(each.winner.nanoseconds, each.winner.usual_nanoseconds) for each in findings] == [
        (500, 1000)
    ] * 2
    conv, product = (each.winner.choice for each in findings)
    assert isinstance(conv, WinogradPlan)
    assert isinstance(product, GemmPlan)
    assert engine.tuned.choices == {each.problem: each.winner.choice for each in findings}


@pytest.mark.parametrize(("place", "nanoseconds"), [(0, 500), (-1, 990), (-1, 1000), (-1, NEVER)])
def test_the_cost_model_keeps_what_nothing_beats_clearly(
    engine: CpuBackend, place: int, nanoseconds: int
) -> None:
    before = _bodies(_prepared(), engine)
    findings = tune(_prepared(), engine, measure=Stopwatch(place, nanoseconds))
    assert [each.differs for each in findings] == [False, False]
    assert len(engine.tuned.choices) == 2
    assert _bodies(_prepared(), engine) == before


def test_a_kernel_that_cannot_run_teaches_nothing(engine: CpuBackend) -> None:
    assert tune(_prepared(), engine, measure=Stopwatch(0, NEVER)) == ()
    assert engine.tuned.choices == {}


def test_the_winner_is_compiled_and_right(engine: CpuBackend) -> None:
    graph = _net()
    (expected,) = graph.run([X])
    before = _bodies(_prepared(), engine)
    tune(_prepared(), engine, measure=Stopwatch())
    after = _bodies(_prepared(), engine)
    assert len(after) == len(before)
    assert not set(after) & {symbol for symbol in before if "conv" in symbol or "matmul" in symbol}
    made = api.compile_model(graph, engine=Engine.of(engine))(X)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-3)


def test_a_model_without_choices(engine: CpuBackend) -> None:
    build = GraphBuilder("net")
    build.output("y", build.op("Relu", build.input("x", DType.F32, (4, 4)), name="relu"))
    assert tune(api.prepare(build.finish()), engine, measure=_refuse) == ()
    assert not (engine.toolchain.cache.folder / "tuned").exists()


# ---- remembering ----


def test_what_is_known_is_not_timed_again(folder: Path, engine: CpuBackend) -> None:
    first = tune(_prepared(), engine, measure=Stopwatch())
    for each in (engine, _engine(folder)):
        again = tune(_prepared(_net("another", layers=3)), each, measure=_refuse)
        assert [finding.winner for finding in again] == [finding.winner for finding in first]
        assert [(finding.layers, finding.is_new) for finding in again] == [(3, False), (1, False)]


def test_another_process_remembers(folder: Path, engine: CpuBackend) -> None:
    tune(_prepared(), engine, measure=Stopwatch())
    script = (
        "import sys; from pathlib import Path; from whence.codegen.cache import Cache; from"
        " whence.codegen.toolchain import Toolchain\nfrom whence.building.tuning_records import TuningRecords\nfor"
        " problem, choice in TuningRecords(Toolchain(cache=Cache(Path(sys.argv[1]))), 2).choices.items():"
        " print(problem, choice, sep=' -> ')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert done.stdout.splitlines() == [
        f"{problem} -> {choice}" for problem, choice in engine.tuned.choices.items()
    ]
    assert len(engine.tuned.choices) == 2


def test_what_others_wrote_meanwhile_stays(folder: Path) -> None:
    one, two = _engine(folder), _engine(folder)
    assert one.tuned.choices == two.tuned.choices == {}
    build = GraphBuilder("small")
    weights = build.const(np.ones((33, 50), np.float32))
    build.output(
        "y", build.op("MatMul", build.input("x", DType.F32, (20, 33)), weights, name="product")
    )
    tune(_prepared(), one, measure=Stopwatch())
    tune(api.prepare(build.finish()), two, measure=Stopwatch())
    assert len(_engine(folder).tuned.choices) == 3
    assert one.tuned.choices.keys() < two.tuned.choices.keys()


def test_other_ways_of_running_learn_nothing_from_it(
    folder: Path, engine: CpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(_prepared(), engine, measure=Stopwatch())
    toolchain = engine.toolchain
    other_cpu = Toolchain(replace(toolchain.target, cpu="another"), cache=Cache(folder))
    fewer = Toolchain(replace(toolchain.target, features=frozenset()), cache=Cache(folder))
    assert TuningRecords(toolchain, 2).digest
    for tuned in (
        TuningRecords(toolchain, 1),
        TuningRecords(other_cpu, 2),
        TuningRecords(fewer, 2),
    ):
        assert (tuned.choices, tuned.digest) == ({}, "")
    monkeypatch.setattr(
        "whence.building.tuning_records.kernel_digest", lambda: "kernels of another version"
    )
    assert TuningRecords(toolchain, 2).choices == {}


DAMAGED = [
    b"{",
    b"\xff\xfe",
    b"[]",
    b'{"winners": 3}',
    b'{"winners": {"problem": {}}}',
    (
        b'{"winners": {"problem": {"choice": {"kind": "magic"}, "nanoseconds": 1, "usual": {"kind":'
        b' "magic"}, "usual_nanoseconds": 1}}}'
    ),
    (
        b'{"winners": {"problem": {"choice": 7, "nanoseconds": 1, "usual": 7, "usual_nanoseconds":'
        b" 1}}}"
    ),
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_as_good_as_none(
    folder: Path, engine: CpuBackend, content: bytes
) -> None:
    tune(_prepared(), engine, measure=Stopwatch())
    good = _file(folder).read_bytes()
    _file(folder).write_bytes(content)
    again = _engine(folder)
    with pytest.warns(
        RuntimeWarning, match="is damaged: kernels are chosen as if nothing had been tuned"
    ):
        assert again.tuned.choices == {}
    watch = Stopwatch()
    with pytest.warns(RuntimeWarning, match="is damaged"):
        tune(_prepared(), again, measure=watch)
    assert len(watch.trials) == 2
    assert _file(folder).read_bytes() == good


def test_a_choice_that_cannot_be_is_passed_over(folder: Path, engine: CpuBackend) -> None:
    usual = _bodies(_prepared(), engine)
    tune(_prepared(), engine, measure=Stopwatch())
    record = json.loads(_file(folder).read_bytes())
    for winner in record["winners"].values():
        for name in set(winner["choice"]) - {"kind"}:
            winner["choice"][name] = 1 << 50
    _file(folder).write_text(json.dumps(record), encoding="ascii")
    assert _bodies(_prepared(), _engine(folder)) == usual


def test_only_its_owner_can_read_or_write_it(folder: Path, engine: CpuBackend) -> None:
    tune(_prepared(), engine, measure=Stopwatch())
    assert _file(folder).stat().st_mode & 0o077 == 0
    assert _file(folder).parent.stat().st_mode & 0o077 == 0


def test_a_cache_that_cannot_be_written(
    folder: Path, engine: CpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("whence.codegen.cache.tempfile.mkstemp", full)
    with pytest.warns(
        RuntimeWarning,
        match="what was tuned is not kept for the next start: .*No space left on device",
    ):
        tune(_prepared(), engine, measure=Stopwatch())
    # It is used all the same.
    assert len(engine.tuned.choices) == 2
    assert _engine(folder).tuned.choices == {}


# ---- models that were compiled before ----


def test_new_results_lead_to_a_new_compilation(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    api.save(_net(), path)

    def symbols(threads: int) -> list[str]:
        model = api.compile_model(path, engine=Engine.of(_engine(folder, threads)))
        return [step.symbol for step in model.programs[0].steps]

    before, alone = symbols(2), symbols(1)
    tune(_prepared(api.load(path)), _engine(folder), measure=Stopwatch())
    tuned = api.compile_model(path, engine=Engine.of(_engine(folder)))
    after = [step.symbol for step in tuned.programs[0].steps]
    assert after != before
    np.testing.assert_allclose(tuned(X), _net().run([X])[0], rtol=1e-4, atol=1e-3)
    # And from then on it starts at once, as before it was tuned.
    monkeypatch.setattr("whence.building.prepare.prepare_and_build", _refuse)
    again = api.compile_model(path, engine=Engine.of(_engine(folder)))
    assert [step.symbol for step in again.programs[0].steps] == after
    # With another number of threads nothing was tuned.
    monkeypatch.undo()
    assert symbols(1) == alone


# ---- real time ----


def test_compiling_with_tuning(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    api.save(_net(layers=1), path)
    engine, seen = _engine(folder), set()
    made = api.compile_model(
        path,
        engine=Engine.of(engine),
        tune=True,
        progress=lambda doing, _done, _total: seen.add(doing),
    )
    np.testing.assert_allclose(made(X), _net(layers=1).run([X])[0], rtol=1e-4, atol=1e-3)
    assert {"compiling candidates", "timing candidates"} <= seen
    winners = engine.tuned.winners.values()
    assert len(winners) == 2
    assert all(0 < winner.nanoseconds <= winner.usual_nanoseconds < NEVER for winner in winners)
    # What was compiled with tuning is what later starts find.
    monkeypatch.setattr("whence.building.prepare.prepare_and_build", _refuse)
    again = api.compile_model(path, engine=Engine.of(_engine(folder)))
    assert [step.symbol for step in again.programs[0].steps] == [
        step.symbol for step in made.programs[0].steps
    ]


def test_a_race(engine: CpuBackend) -> None:
    trials: list[Sequence[Candidate]] = []

    def keep(
        _engine: CpuBackend,
        given: Sequence[Sequence[Candidate]],
        model_bytes: int,
        _progress: Progress | None,
    ) -> Iterator[list[int]]:
        assert model_bytes >= 4 * (2 * 16 * 16 * 9 + 1024 * 40)
        trials.extend(given)
        return Stopwatch()(_engine, given, model_bytes, _progress)

    tune(_prepared(), engine, measure=keep)
    one, two = trials[0][0], trials[0][-1]
    # C has no such type.
    refused = replace(
        one,
        kernel=replace(
            one.kernel,
            params=tuple(replace(each, dtype=DType.STRING) for each in one.kernel.params),
        ),
    )
    # Constants of a model that is larger and smaller than these kernels' own.
    for model_bytes in (1 << 20, 1):
        (times,) = time_candidates(engine, [[one, one, two, refused]], model_bytes)
        assert times[0] == times[1] > 0
        assert 0 < times[2] < NEVER
        assert times[3] == NEVER
    assert list(time_candidates(engine, [[refused, refused]], 0)) == [[NEVER, NEVER]]


def test_an_engine_that_cannot_be_tuned() -> None:
    class Elsewhere(CpuBackend):
        kind = "elsewhere"
        tune = Backend.tune

    with pytest.raises(UnsupportedError, match="only the cpu engine can be tuned, not elsewhere"):
        Elsewhere().tune(_prepared(), fusion="dominator", progress=None)
