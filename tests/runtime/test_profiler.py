"""The ring of samples under the times."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_backend import cpu_backend
from tests.runtime.models import X, compiled, mixed
from whence.backends.cpu.instance import Instance
from whence.building.program import Program
from whence.runtime.engine import Engine
from whence.runtime.profiler import SAMPLE, Profiler


@pytest.fixture(scope="module")
def program(engine: Engine) -> Program:
    return compiled(mixed(), engine).programs[0]


def test_a_full_ring_drops_the_oldest_and_counts_them(engine: Engine, program: Program) -> None:
    steps = len(program.steps)
    whole, small = Profiler(), Profiler(ring=steps + 1)
    instance = Instance(program, cpu_backend(engine))
    for profiler in (whole, small):
        for _ in range(4):
            profiler.begin(program)
            instance.run([X], profiler)
    assert whole.dropped == 0
    assert small.dropped == 4 * steps - (steps + 1)
    kept = small.samples()
    assert [(int(each["execution"]), int(each["step"])) for each in kept] == [
        (2, steps - 1),
        *((3, step) for step in range(steps)),
    ]
    assert (np.diff(kept["begin"].astype(np.int64)) >= 0).all()
    # The times of executions do not depend on the ring.
    assert len(small.times()) == len(whole.times()) == 4


def test_reset_starts_again_from_zero(engine: Engine, program: Program) -> None:
    profiler = Profiler(ring=3)
    instance = Instance(program, cpu_backend(engine))
    for _ in range(100):
        profiler.begin(program)
        instance.run([X], profiler)
    profiler.reset()
    assert (profiler.dropped, profiler.times(), profiler.executions, len(profiler.samples())) == (
        0,
        [],
        (),
        0,
    )
    profiler.begin(program)
    instance.run([X], profiler)
    assert set(profiler.samples()["execution"].tolist()) == {0}
    assert profiler.executions == (program,)


def test_times_are_exact_integers_however_large() -> None:
    profiler = Profiler()
    start = 2**63
    profiler._programs.append(None)  # type: ignore[arg-type]
    profiler.note(start + 1, start + 2, 0)
    profiler.note(start + 10, start + 12, 1)
    assert profiler.times() == [11]
    assert profiler.samples().dtype == SAMPLE


def test_samples_are_a_copy() -> None:
    profiler = Profiler()
    profiler._programs.append(None)  # type: ignore[arg-type]
    profiler.note(1, 2, 0)
    profiler.samples()["end"] = 99
    assert profiler.samples()["end"].tolist() == [2]


def test_each_thread_notes_when_it_works(engine: Engine, program: Program) -> None:
    profiler = Profiler()
    instance = Instance(program, cpu_backend(engine))
    profiler.begin(program)
    instance.run([X], profiler)
    assert profiler.busy().shape == (0, 0), "nothing is noted unless it is asked for"
    profiler.record_workers(engine.threads, 2 * len(program.steps))
    for _ in range(2):
        profiler.reset()
        profiler.begin(program)
        instance.run([X], profiler)
    samples, busy = profiler.samples(), profiler.busy()
    assert busy.shape == (len(program.steps), engine.threads)
    native = np.array([bool(step.symbol) for step in program.steps])[samples["step"]]
    assert (busy["begin"][native, 0] >= samples["begin"][native]).all()
    assert (busy["end"][native] <= samples["end"][native, None]).all()
    assert (busy["end"] >= busy["begin"]).all()
    # Steps of the host are noted as a whole, and are the caller's.
    assert not busy["end"][~native].any()
