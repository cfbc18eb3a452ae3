"""Models with state: what one call leaves is what the next begins with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import whence
from tests.runtime.stateful import (
    GRAPHS,
    accumulator,
    calls,
    counter,
    exchange,
    interpreted,
    unsized,
    window,
)
from whence.building.location import MemoryRegion
from whence.errors import InputError
from whence.graph import Graph
from whence.runtime.executable import Executable


def _outputs(model: Executable, inputs: list[np.ndarray]) -> list[np.ndarray]:
    made = model(*inputs)
    return list(made) if isinstance(made, tuple) else [made]


@pytest.mark.parametrize("make", [*GRAPHS.values(), unsized], ids=[*GRAPHS.keys(), "unsized"])
def test_compiled_calls_equal_the_interpreter(make: Callable[[], Graph]) -> None:
    graph = make()
    inputs = calls(graph, 50)
    model = whence.compile(graph, threads=1)
    for given, expected in zip(inputs, interpreted(graph, inputs), strict=True):
        for made, wanted in zip(_outputs(model, given), expected, strict=True):
            np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-4)


def test_reset_is_the_first_call_again() -> None:
    model = whence.compile(counter(), threads=1)
    x = np.arange(4, dtype=np.float32)
    model.reset()
    assert [float(model(x)[1]) for _ in range(3)] == [1, 2, 3]
    model.reset()
    assert [float(model(x)[1]) for _ in range(3)] == [1, 2, 3]
    np.testing.assert_array_equal(model.state["n"], np.full(4, 4, np.float32))


def test_a_clone_has_a_state_of_its_own() -> None:
    model = whence.compile(counter(), threads=1)
    x = np.ones(4, np.float32)
    model(x)
    twin = model.clone()
    assert (float(twin(x)[0]), float(model(x)[0]), float(twin(x)[0])) == (1, 2, 2)
    assert twin.programs == model.programs
    assert twin.graph is model.graph


def test_a_default_that_is_given_changes_nothing_else(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>\n'
        "g (float[1] x, float[1] total, float[1] w) => (float[1] y, float[1] next)"
        " <float[1] w = {2.0}> { a = Mul(x, w)\n next = Add(total, a)\n y = Identity(next) }"
    )
    onnx.save(proto, tmp_path / "m.onnx")
    model = whence.compile(tmp_path / "m.onnx", state={"total": "next"}, threads=1)
    one = np.ones(1, np.float32)
    assert [float(model(one, **given)[0]) for given in ({}, {"w": one}, {})] == [2, 3, 5]
    model.reset()
    assert float(model(one, w=one)[0]) == 1
    assert float(model.state["total"][0]) == 1
    assert float(model({"x": one, "w": one})[0]) == 2
    with pytest.raises(InputError, match="unknown input 'total'"):
        model(one, total=one)
    with pytest.raises(InputError, match="2 inputs given; the model takes 1"):
        model(one, one, w=one)
    with pytest.raises(InputError, match="input 'x' is given twice"):
        model(one, x=one, w=one)


def test_runs_of_a_model_with_open_sizes_follow_each_other(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>\n'
        "g (float[n] x, float[1] total) => (float[1] y, float[1] next)"
        " { a = ReduceSum(x)\n next = Add(total, a)\n y = Identity(next) }"
    )
    onnx.save(proto, tmp_path / "m.onnx")
    state = {"total": "next"}
    for model in (
        whence.compile(tmp_path / "m.onnx", state=state, threads=1),
        whence.compile(tmp_path / "m.onnx", state=state, threads=1),
        whence.compile(proto, state=state, threads=1),
    ):
        for each in (model, model.clone()):
            with pytest.raises(InputError, match="has state, so its runs follow each other"):
                each.run_many([np.ones(3, np.float32)] * 3)


def test_threads_take_turns_on_one_state() -> None:
    model = whence.compile(accumulator(), threads=2)
    seen: list[float] = []

    def work() -> None:
        for _ in range(100):
            seen.append(float(model(np.ones(4, np.float32))[0]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Every call saw what exactly one other left.
    assert sorted(seen) == list(range(1, 401))


def test_streams_of_one_model_share_its_state() -> None:
    model = whence.compile(accumulator(), threads=1)
    one, other = whence.Stream(model.engine), whence.Stream(model.engine)
    x = np.ones(4, np.float32)
    pending = [model.execute(one if turn % 2 else other, x) for turn in range(20)]
    one.wait()
    other.wait()
    assert sorted(float(each.outputs[0][0]) for each in pending) == list(range(1, 21))
    assert float(model(x)[0]) == 21


def test_what_nothing_reads_any_more_is_written_in_place() -> None:
    """The new window is cut from what was put together of the old one and the input, when nobody
    needs the old one; a counter is read by the step that makes the next number, and an exchange
    needs both.
    """
    (program,) = whence.compile(window(), threads=1).programs
    assert [each.in_place for each in program.plan.variables] == [True]
    assert not any(step.name == "assign" for step in program.steps)
    (program,) = whence.compile(exchange(), threads=1).programs
    assert [each.in_place for each in program.plan.variables] == [False, True, True]
    assert [step.name for step in program.steps].count("assign") == 3


def test_variables_lie_with_the_state() -> None:
    (program,) = whence.compile(counter(), threads=1).programs
    (variable,) = program.graph.variables
    (assign,) = program.graph.assigns
    assert program.layout.places[variable.ref()].region is MemoryRegion.STATE
    assert assign.inputs[0] is not None
    assert program.layout.places[assign.inputs[0]].region is MemoryRegion.NEXT


def test_a_model_from_the_cache_keeps_its_state(tmp_path: Path) -> None:
    graph = counter()
    x = np.ones(4, np.float32)
    file = tmp_path / "counter.tflite"
    whence.save(graph, file)
    for _ in range(2):
        model = whence.compile(file, threads=1)
        assert [float(model(x)[0]) for _ in range(3)] == [1, 2, 3]


def test_time_of_state_is_attributed() -> None:
    profile = whence.profile(exchange(), runs=3, warmup=1)
    rows = [row for row in profile.sources if row.op == "Assign"]
    assert len(rows) == 3
    assert all(row.kernels and row.fate == "live" for row in rows)
    assert profile.wall_ns == sum(row.time_ns for row in profile.sources) + sum(
        profile.residual_ns.values()
    )


def test_an_assignment_without_a_step_says_where_its_value_is_computed() -> None:
    profile = whence.profile(window(), runs=1, warmup=0)
    (row,) = (row for row in profile.sources if row.op == "Assign")
    assert row.became == "in place: what it assigns is computed where the variable lies"


def test_a_value_of_another_size_is_refused_in_the_operator_s_name() -> None:
    model = whence.compile(unsized(), threads=1)
    model(np.ones(4, np.float32))
    with pytest.raises(InputError, match=r"'Assign_4' \(Assign\): its variable is i64\[4,1\], the"):
        model(np.zeros(4, np.float32))
    # What is not written in place is as it was.
    np.testing.assert_array_equal(model(np.ones(4, np.float32))[:, 0], np.arange(4))
