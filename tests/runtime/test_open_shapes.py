"""Models with open shapes: compiled once, called with any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whence import api
from whence.codegen.cache import Cache
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.kernels import lower
from whence.runtime.engine import Engine
from whence.runtime.program_set import MOST_SIZES
from whence.types import DType


def _encoder() -> Graph:
    """A product, a softmax over the sequence, and a sum of two inputs of the same sizes."""
    build = GraphBuilder("encoder")
    x = build.input("x", DType.F32, ["batch", "sequence", 16])
    bias = build.input("bias", DType.F32, ["batch", "sequence", 16])
    weights = np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32)
    y = build.op("MatMul", build.op("Add", x, bias, name="sum"), build.const(weights))
    build.output("y", build.op("Softmax", y, axis=1))
    return build.finish()


def _given(batch: int, sequence: int) -> list[np.ndarray]:
    dice = np.random.default_rng(batch * 100 + sequence)
    return [dice.standard_normal((batch, sequence, 16)).astype(np.float32) for _ in range(2)]


def _check(model: Any, graph: Graph, batch: int, sequence: int) -> None:
    x, bias = _given(batch, sequence)
    (wanted,) = graph.run({"x": x, "bias": bias})
    np.testing.assert_allclose(model(x, bias), wanted, rtol=1e-5, atol=1e-6)


def test_one_compilation_serves_twenty_shapes(engine: Engine) -> None:
    graph = _encoder()
    model = api.compile_model(graph, engine=engine)
    assert model.compilations == 0
    for batch in (2, 3, 4, 7):
        for sequence in (2, 5, 16, 33, 64):
            _check(model, graph, batch, sequence)
    assert model.compilations == 1
    assert "compiled 1 time, for 20 shapes" in repr(model)
    # Sizes of 1 broadcast, and are compiled apart.
    _check(model, graph, 1, 8)
    _check(model, graph, 1, 9)
    assert model.compilations == 2


def test_sizes_that_were_not_used_for_long_are_let_go(engine: Engine) -> None:
    graph = _encoder()
    model = api.compile_model(graph, engine=engine)
    for sequence in range(2, MOST_SIZES + 8):
        _check(model, graph, 2, sequence)
    assert model.compilations == 1
    # Besides those that what was compiled is laid out for, the one it was compiled for.
    assert len(model.programs) == MOST_SIZES + 1
    _check(model, graph, 2, 3)


def test_shapes_that_are_given_are_specialised_for(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    api.save(_encoder(), path)
    shapes = {"x": (2, 9, 16), "bias": (2, 9, 16)}
    model = api.compile_model(path, engine=engine, shapes=shapes)
    (program,) = model.programs
    assert program.template is None
    assert program.sizes == {}


def test_another_process_with_another_size_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, path = _encoder(), tmp_path / "m.onnx"
    api.save(graph, path)

    def engine() -> Engine:
        return Engine(threads=2, toolchain=Toolchain(cache=Cache(tmp_path / "cache")))

    _check(api.compile_model(path, engine=engine()), graph, 3, 10)
    again = api.compile_model(path, engine=engine())
    monkeypatch.setattr("whence.api.compile_file.load", None)
    monkeypatch.setattr("whence.api.compile_file.build", None)
    for batch, sequence in ((3, 10), (2, 4), (5, 31)):
        _check(again, graph, batch, sequence)
    assert again.compilations == 1
    # What explains it is loaded, and has the numbers of the sizes.
    x, bias = _given(5, 31)
    program = again.program_for([x, bias])
    assert program.sizes == {"batch": 5, "sequence": 31}
    assert "f32[5,31,16]" in str(program.graph)


def _recurrent() -> Graph:
    """Recurrent layers have no kernels for open sizes yet; the product has."""
    build = GraphBuilder("recurrent")
    x = build.input("x", DType.F32, ["steps", "batch", 3])
    dice = np.random.default_rng(0)
    weights = [dice.standard_normal((1, 15, size)).astype(np.float32) for size in (3, 5)]
    build.output("y", build.op("GRU", x, *map(build.const, weights), hidden_size=5))
    z = build.input("z", DType.F32, ["rows", 8])
    product = dice.standard_normal((8, 5)).astype(np.float32)
    build.output("w", build.op("MatMul", z, build.const(product)))
    return build.finish()


def test_sizes_that_kernels_need_are_numbers_in_what_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, path = _recurrent(), tmp_path / "m.onnx"
    api.save(graph, path)

    def engine() -> Engine:
        return Engine(threads=2, toolchain=Toolchain(cache=Cache(tmp_path / "cache")))

    def run(model: Any, batch: int, steps: int, rows: int) -> None:
        x = np.ones((steps, batch, 3), np.float32)
        z = np.ones((rows, 8), np.float32)
        for got, want in zip(model(x, z), graph.run({"x": x, "z": z}), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

    model = api.compile_model(path, engine=engine())
    run(model, 2, 9, 4)
    assert model.programs[0].sizes == {"rows": 4}
    run(model, 2, 9, 7)
    assert model.compilations == 1
    run(model, 2, 10, 7)
    assert model.compilations == 2
    again = api.compile_model(path, engine=engine())
    monkeypatch.setattr("whence.api.compile_file.build", None)
    for steps in (9, 10):
        run(again, 2, steps, 11)


def test_a_dimension_that_contradicts_another_input(engine: Engine) -> None:
    model = api.compile_model(_encoder(), engine=engine)
    x, _ = _given(2, 8)
    _, bias = _given(2, 9)
    with (
        pytest.warns(UserWarning, match="sequence"),
        pytest.raises(
            InputError,
            match="dimension 'sequence' is given as 8 for input 'x' and as 9 for input 'bias'",
        ),
    ):
        model(x, bias)
    # And the model is as it was.
    _check(model, _encoder(), 2, 8)


def test_profiles_have_the_numbers_of_the_sizes_that_ran(engine: Engine) -> None:
    model = api.compile_model(_encoder(), engine=engine)
    flops = []
    for sequence in (8, 80):
        profile = api.profile_model(model, inputs=_given(2, sequence), runs=2, warmup=1)
        flops.append(sum(row.flops for row in profile.kernels))
        assert profile.environment["dimension sequence"] == str(sequence)
    assert flops[1] == 10 * flops[0]


def test_a_size_that_one_kernel_needs_as_a_number_and_another_does_not(engine: Engine) -> None:
    """Fewer rows than a tile of attention has, known to be so only since the pool asked."""
    build = GraphBuilder("mixed")
    x = build.input("x", DType.F32, ["batch", "sequence", 16])
    pooled = build.op("MaxPool", x, kernel_shape=(3,), strides=(1,), pads=(1, 1))
    build.output("pooled", pooled)
    build.output("y", build.op("Attention", x, x, x, q_num_heads=2, kv_num_heads=2))
    graph = build.finish()
    model = api.compile_model(graph, engine=engine)
    for batch, sequence in ((3, 5), (2, 2), (2, 3), (2, 40)):
        x_given, _ = _given(batch, sequence)
        for found, wanted in zip(model(x_given), graph.run({"x": x_given}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_running_sums_of_any_length(engine: Engine) -> None:
    build = GraphBuilder("running")
    x = build.input("x", DType.F32, ["batch", "sequence", 16])
    build.output("y", build.op("CumSum", x, build.const(np.array(1)), reverse=1))
    graph = build.finish()
    model = api.compile_model(graph, engine=engine)
    for batch, sequence in ((3, 5), (2, 2), (4, 40)):
        x_given, _ = _given(batch, sequence)
        (wanted,) = graph.run({"x": x_given})
        np.testing.assert_allclose(model(x_given), wanted, rtol=1e-5, atol=1e-5)
    assert model.compilations == 1


def test_values_made_of_sizes_beside_values_that_are_not(engine: Engine) -> None:
    """Whoever reads a constant place of the concatenation names one outside of its first
    operand.
    """
    build = GraphBuilder("joined")
    x = build.input("x", DType.F32, ["batch", "sequence", 16])
    given = build.input("given", DType.I64, [3])
    both = build.op("Concat", build.op("Shape", x), build.op("Abs", given), axis=0)
    last = build.op("Gather", both, build.const(np.array([5, 2, 0])), axis=0)
    build.output("y", build.op("Split", last, num_outputs=3, axis=0))
    graph = build.finish()
    model = api.compile_model(graph, engine=engine)
    x_given, _ = _given(2, 3)
    np.testing.assert_array_equal(model(x_given, np.array([4, 5, -6])), [6])


def test_a_value_that_is_made_of_nothing_but_sizes(engine: Engine) -> None:
    build = GraphBuilder("filled")
    x = build.input("x", DType.F32, ["batch", "sequence", 16])
    ones = build.op("ConstantOfShape", build.op("Shape", x), value=np.ones(1, np.float32))
    build.output("y", build.op("Concat", build.op("Softmax", ones, axis=1), x, axis=0))
    build.output("z", build.op("MatMul", ones, build.op("Transpose", x, perm=(0, 2, 1))))
    graph = build.finish()
    model = api.compile_model(graph, engine=engine)
    for batch, sequence in ((2, 3), (5, 4)):
        x_given, _ = _given(batch, sequence)
        for found, wanted in zip(model(x_given), graph.run({"x": x_given}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_an_axis_that_is_a_size_is_asked_for_its_number(engine: Engine) -> None:
    build = GraphBuilder()
    x, axes = build.input("x", DType.F32, [3, 4]), build.input("axes", DType.I64, ["m"])
    build.output("y", build.op("Unsqueeze", x, build.op("Shape", axes)))
    model = api.compile_model(build.finish(), engine=engine)
    for size, shape in ((2, (3, 4, 1)), (1, (3, 1, 4))):
        assert model(np.ones((3, 4), np.float32), np.zeros(size, np.int64)).shape == shape


def test_an_operator_of_a_group_that_fell_apart_reads_sizes_from_the_code(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shape that it expands to is no operand in memory: no step makes it."""
    monkeypatch.setattr(lower, "_MOST_MEMBERS", 1)
    build = GraphBuilder("spread")
    x = build.input("x", DType.F32, ["batch", 1])
    like = build.input("like", DType.F32, ["batch", "columns"])
    wide = build.op("Expand", x, build.op("Shape", like))
    build.output("y", build.op("Tanh", build.op("Mul", wide, like)))
    graph = build.finish()
    model = api.compile_model(graph, engine=engine)
    for batch, columns in ((2, 3), (5, 7)):
        dice = np.random.default_rng(batch)
        given = {
            "x": dice.standard_normal((batch, 1)).astype(np.float32),
            "like": dice.standard_normal((batch, columns)).astype(np.float32),
        }
        (wanted,) = graph.run(given)
        np.testing.assert_allclose(model(**given), wanted, rtol=1e-5, atol=1e-6)
    assert model.compilations == 1
