"""Models as people call them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.error_bounds import product_bound
from tests.runtime.models import X, assert_same, compiled, mixed, outputs, parsed, relu, reshape
from whence.api import compile_model, save
from whence.errors import InputError, WhenceError
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.runtime.program_set import Specialise
from whence.types import DType


def _two(engine: Engine) -> Executable:
    build = GraphBuilder("two")
    a, b = build.input("a", DType.F32, [4]), build.input("b/weird name", DType.F32, [4])
    build.output("sum", build.op("Add", a, b))
    build.output("less", build.op("Sub", a, b))
    return compiled(build.finish(), engine)


# ---- giving inputs ----


def test_inputs_in_order_or_by_name(engine: Engine) -> None:
    model = _two(engine)
    expected = [X + 1, X - 1]
    one = np.ones(4, np.float32)
    assert_same(outputs(model(X, one)), expected)
    assert_same(outputs(model(X, **{"b/weird name": one})), expected)
    assert_same(outputs(model({"a": X, "b/weird name": one})), expected)
    assert_same(outputs(model(**{"b/weird name": one, "a": X})), expected)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "0 inputs given; the model takes 2"),
        ((X,), {}, "1 inputs given; the model takes 2"),
        ((X, X, X), {}, "3 inputs given; the model takes 2"),
        ((X, X, X), {"b/weird name": X}, "3 inputs given; the model takes 2"),
        ((), {"a": X}, "input 'b/weird name' is missing"),
        ((X,), {"c": X}, "unknown input 'c'"),
        ((X, X), {"a": X}, "input 'a' is given twice"),
        ((X, X.astype(np.float64)), {}, "input 'b/weird name' is f64"),
        ((X, X.astype(np.int32)), {}, "is i32"),
        ((X, X.astype(">f4")), {}, "is >f4"),
        ((X, X.astype("datetime64[s]")), {}, "is datetime64"),
        ((X, np.array(["a"] * 4)), {}, "is string"),
        ((X, [1.0, 2.0, 3.0, 4.0]), {}, "is f64"),
        ((X, X[:3]), {}, r"has shape \[3\], the model takes f32\[4\]"),
        ((X, X.reshape(2, 2)), {}, r"has shape \[2, 2\]"),
        ((X, X[None]), {}, r"has shape \[1, 4\]"),
        ((X, np.float32(1)), {}, r"has shape \[\]"),
        ((X, np.zeros(0, np.float32)), {}, r"has shape \[0\]"),
        ((X, object()), {}, "is string"),
    ],
)
def test_inputs_that_do_not_fit(
    engine: Engine, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        _two(engine)(*args, **kwargs)
    assert "\n" not in str(caught.value)


def test_a_dictionary_is_checked_as_names_are(engine: Engine) -> None:
    with pytest.raises(InputError, match="unknown input 'c'"):
        _two(engine)({"a": X, "c": X})
    with pytest.raises(InputError, match="input 'b/weird name' is missing"):
        _two(engine)({"a": X})


def test_what_a_model_prints_is_short(engine: Engine) -> None:
    model = _two(engine)
    expected = f"<Executable(a: f32[4], b/weird name: f32[4]) on {engine.kind}, {engine.threads}"
    assert repr(model) == f"{expected} threads, compiled 1 time, for 1 shape>"
    assert "<td" in model._repr_html_()
    assert repr(model.graph).startswith("<Graph 'two': (a: f32[4], b/weird name: f32[4]) → (sum,")
    assert '<td style="text-align:left">Sub</td>' in model.graph._repr_html_()


def test_an_input_that_is_absent_where_a_tensor_is_wanted(engine: Engine) -> None:
    with pytest.raises(WhenceError):
        _two(engine)(X, None)


# ---- results ----


def test_results_are_new_arrays_each_call(engine: Engine) -> None:
    build = GraphBuilder("fresh")
    x = build.input("x", DType.F32, [4])
    y = build.op("Relu", x)
    build.output("y", y)
    build.output("y2", y)
    build.output("x", x)
    build.output("c", build.const(np.arange(3)))
    model = compiled(build.finish(), engine)
    given = X.copy()
    first = outputs(model(given))
    kept = [each.copy() for each in first]
    second = outputs(model(-given))
    everything = [given, *first, *second]
    assert not any(
        np.shares_memory(one, two)
        for index, one in enumerate(everything)
        for two in everything[:index]
    )
    assert_same(first, kept)
    for each in first:
        each[...] = 0
    assert_same(outputs(model(given)), kept)
    np.testing.assert_array_equal(given, X)


def test_one_output_is_an_array_and_several_are_a_tuple(engine: Engine) -> None:
    assert isinstance(compiled(relu(), engine)(X), np.ndarray)
    assert isinstance(_two(engine)(X, X), tuple)


# ---- small and strange models ----


def test_a_model_without_inputs(engine: Engine) -> None:
    build = GraphBuilder("none")
    build.output("c", build.const(np.arange(3)))
    build.output("r", build.op("RandomNormal", shape=(2, 3), seed=1.0))
    c, r = compiled(build.finish(), engine)()
    np.testing.assert_array_equal(c, [0, 1, 2])
    assert r.shape == (2, 3)


def test_a_model_of_one_number(engine: Engine) -> None:
    build = GraphBuilder("one")
    build.output("y", build.op("Neg", build.input("x", DType.F32, [])))
    model = compiled(build.finish(), engine)
    result = model(np.float32(2))
    assert result.shape == ()
    assert result == -2


def test_a_model_without_outputs(engine: Engine) -> None:
    build = GraphBuilder("sink")
    build.input("x", DType.F32, [4])
    assert compiled(build.finish(), engine)(X) == ()


def test_a_model_that_does_nothing(engine: Engine) -> None:
    build = GraphBuilder("nothing")
    build.output("y", build.input("x", DType.F32, [4]))
    model = compiled(build.finish(), engine)
    assert_same(outputs(model(X)), [X])
    assert model.programs[0].steps == ()
    assert model.programs[0].library is None


# ---- open shapes ----


def test_a_program_for_each_signature(engine: Engine) -> None:
    model = compiled(relu("n", 4), engine)
    assert model.programs == ()
    for rows in (1, 3, 1, 0, 3):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) - 3
        assert_same(outputs(model(x)), [np.maximum(x + 1, 0)])
    assert len(model.programs) == 3
    # Nothing is to be done where there are no rows.
    assert sorted(len(program.steps) for program in model.programs) == [0, 1, 1]
    assert all(step.symbol for program in model.programs for step in program.steps)
    with pytest.raises(InputError):
        model(np.zeros((2, 5), np.float32))


def test_open_shapes_of_a_file(engine: Engine, tmp_path: Path) -> None:
    save(relu("n", "m"), tmp_path / "m.onnx")
    model = compile_model(tmp_path / "m.onnx", engine=engine)
    for shape in ((2, 3), (3, 2)):
        x = np.ones(shape, np.float32)
        assert_same(outputs(model(x)), [x + 1])
    assert len(model.programs) == 2
    fixed = compile_model(tmp_path / "m.onnx", engine=engine, shapes={"x": (2, 3)})
    assert len(fixed.programs) == 1
    with pytest.raises(InputError):
        fixed(np.ones((3, 2), np.float32))


def test_a_named_dimension_that_two_inputs_share(engine: Engine) -> None:
    build = GraphBuilder("shared")
    a, b = build.input("a", DType.F32, ["n"]), build.input("b", DType.F32, ["n"])
    build.output("y", build.op("Add", a, b))
    model = compiled(build.finish(), engine)
    assert_same(outputs(model(X, X)), [X + X])
    with pytest.warns(UserWarning, match="dimension 'n'"), pytest.raises(WhenceError):
        model(X, X[:3])
    assert_same(outputs(model(X[:3], X[:3])), [X[:3] * 2])


def test_an_input_of_unknown_rank(engine: Engine) -> None:
    build = GraphBuilder("any")
    build.output("y", build.op("Neg", build.input("x", DType.F32, None)))
    model = compiled(build.finish(), engine)
    for shape in ((), (4,), (2, 2)):
        x = np.ones(shape, np.float32)
        assert_same(outputs(model(x)), [-x])


def test_shapes_that_follow_from_open_ones(engine: Engine) -> None:
    graph = parsed(
        """computed (float[n,m] x) => (float[k] y, int64[2] s) {
            s = Shape(x)  all = Constant<value_ints = [-1]>()  flat = Reshape(x, all)  y = Neg(flat)
        }"""
    )
    model = compiled(graph, engine)
    for shape in ((2, 3), (4, 1)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        assert_same(outputs(model(x)), [-x.reshape(-1), np.array(shape)])
    assert all(step.symbol for program in model.programs for step in program.steps)


def test_a_signature_that_cannot_be_compiled_leaves_the_model_usable(engine: Engine) -> None:
    build = GraphBuilder("product")
    x = build.input("x", DType.F32, ["n", "k"])
    build.output("y", build.op("MatMul", x, build.const(np.eye(3, dtype=np.float32))))
    model = compiled(build.finish(), engine)
    with pytest.raises(WhenceError):
        model(np.ones((2, 4), np.float32))
    assert_same(outputs(model(np.ones((2, 3), np.float32))), [np.ones((2, 3), np.float32)])


def test_what_is_computed_from_values_fails_when_it_runs(engine: Engine) -> None:
    model = compiled(reshape(), engine)
    with pytest.raises(WhenceError, match="'fold'"):
        model(X, np.array([3, 3]))
    assert model(X, np.array([2, -1])).shape == (2, 2)


# ---- several threads ----


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []
    ready = threading.Barrier(count)

    def guarded(mine: int) -> None:
        try:
            ready.wait(60)
            work(mine)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(mine,)) for mine in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []


def test_many_threads_call_one_model(engine: Engine) -> None:
    build = GraphBuilder("many")
    x = build.input("x", DType.F32, ["n", 32])
    weights = build.const(np.linspace(-1, 1, 32 * 32, dtype=np.float32).reshape(32, 32))
    hidden = build.op("Softmax", build.op("MatMul", x, weights))
    build.output("y", build.op("MatMul", hidden, weights))
    build.output("hidden", hidden)
    graph = build.finish()
    model = compiled(graph, engine)
    given = [
        np.random.default_rng(seed).standard_normal((4 + seed % 2, 32)).astype(np.float32)
        for seed in range(6)
    ]
    expected = [graph.run([each]) for each in given]

    def work(mine: int) -> None:
        for _ in range(20):
            for got, wanted in zip(outputs(model(given[mine])), expected[mine], strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)

    _in_threads(len(given), work)
    assert len(model.programs) == 2


def test_one_thread_s_error_is_not_another_s(engine: Engine) -> None:
    model = compiled(reshape(), engine)

    def work(mine: int) -> None:
        for _ in range(20):
            if mine % 2:
                with pytest.raises(WhenceError):
                    model(X, np.array([3, 3]))
            else:
                assert model(X, np.array([2, 2])).shape == (2, 2)

    _in_threads(4, work)


def test_a_signature_is_compiled_once(engine: Engine) -> None:
    model = compiled(relu("n", 7), engine)
    calls: list[int] = []
    inner: Specialise = model._programs._specialise

    def counted(shapes: Any) -> Any:
        calls.append(1)
        return inner(shapes)

    model._programs._specialise = counted

    def work(_: int) -> None:
        assert model(np.ones((3, 7), np.float32)).shape == (3, 7)

    _in_threads(4, work)
    assert len(calls) == 1


# ---- the end ----


def test_a_dropped_model_releases_its_memory_and_code(engine: Engine) -> None:
    build = GraphBuilder("short lived")
    x = build.input("x", DType.F32, [17, 19])
    weights = build.const(np.random.default_rng(3).standard_normal((19, 23)).astype(np.float32))
    build.output("y", build.op("Softmax", build.op("Softmax", build.op("MatMul", x, weights))))
    model = compiled(build.finish(), engine)
    model(np.ones((17, 19), np.float32))
    program = model.programs[0]
    assert program.library is not None
    code = str(program.library.path)
    assert code in Path("/proc/self/maps").read_text(encoding="utf-8")
    held = [
        weakref.ref(each)
        for each in (
            program,
            program.library,
            program.weights,
            next(iter(model._programs._prepared.values())).free[0]._arena,
        )
    ]
    # Nothing holds them in a circle: they are gone at once, without waiting for the collector.
    gc.disable()
    try:
        del model, program
        assert [each() for each in held] == [None] * 4
    finally:
        gc.enable()
    assert code not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_a_model_from_a_file_holds_its_weights_once(engine: Engine, tmp_path: Path) -> None:
    build = GraphBuilder("heavy")
    x = build.input("x", DType.F32, [4, 100])
    values = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
    weights = build.const(values, name="weights")
    late = build.op(
        "Compress",
        build.op("MatMul", x, weights),
        build.const(np.array([True, False, True, True])),
        axis=0,
    )
    build.output("late", late)
    build.output("weights", weights)
    build.output(
        "y", build.op("MatMul", x, build.const(np.ones((100, 100), np.float32), name="ones"))
    )
    graph = build.finish()
    save(graph, tmp_path / "m.onnx")
    given = np.random.default_rng(1).standard_normal((4, 100)).astype(np.float32)
    expected = graph.run([given])
    model = compile_model(tmp_path / "m.onnx", engine=engine)
    rows = given[[True, False, True, True]]
    bounds = [product_bound(rows, values), 0, product_bound(given, np.ones((100, 100)))]
    for _ in range(2):
        for ours, theirs, bound in zip(model(given), expected, bounds, strict=True):
            assert isinstance(theirs, np.ndarray)
            assert ours.dtype == theirs.dtype
            assert (np.abs(ours - theirs) <= bound).all()
    held = {
        id(node.value): node.value.nbytes
        for each in (model.graph, model.programs[0].graph)
        for node in each
        if node.value is not None
    }
    assert sum(held.values()) < 50_000, "only what is an output, or read by reference"
    # A graph that somebody else holds is left as it is.
    compile_model(graph, engine=engine)
    assert all(node.value is not None for node in graph if node.is_const)


def test_results_outlive_the_model(engine: Engine) -> None:
    model = compiled(mixed(), engine)
    results = outputs(model(X))
    del model
    gc.collect()
    np.testing.assert_array_equal(results[1], -X)
