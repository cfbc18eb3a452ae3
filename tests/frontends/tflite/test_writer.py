"""Files that whence writes: LiteRT and onert get the same results from them as from the models they
were made of.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from circle_schema.v0_10.circle.Model import Model as Circle

from tests.frontends.tflite.making import Model, Quantised, compare, read, run_litert
from tests.frontends.tflite.runtimes import convert, operators, run_onert
from whence.api import save
from whence.errors import UnsupportedError
from whence.frontends.tflite.records import read_records
from whence.frontends.tflite.serialise import serialise
from whence.frontends.tflite.writer import to_records
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.graph import Graph
from whence.types import DType

RNG = np.random.default_rng(5)
IMAGE = (1, 8, 9, 4)
Case = tuple[Model, list[np.ndarray]]


def built(make: Callable[[GraphBuilder, Symbol], Symbol], *shape: int) -> Graph:
    build = GraphBuilder("built")
    build.output("y", make(build, build.input("x", DType.F32, shape)))
    return build.finish()


def weights(build: GraphBuilder, *shape: int) -> Symbol:
    return build.const(real(*shape))


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def codes(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


# ---- models of one operator or few ----


def conv(
    dtype: Any = np.float32,
    *,
    depthwise: bool = False,
    padding: int = 0,
    stride: int = 1,
    dilation: int = 1,
    activation: int = 0,
) -> Case:
    model = Model()
    out = 8
    shape = (1, 3, 3, out) if depthwise else (out, 3, 3, 4)
    quantised = dtype is not np.float32
    x = model.input(
        IMAGE, dtype, Quantised(0.05, 0 if dtype is np.int16 else 3) if quantised else None
    )
    if dtype is np.uint8:
        w = model.const(codes(shape, np.uint8), np.uint8, Quantised(0.01, 120))
        b = model.const(RNG.integers(-500, 500, out), np.int32, Quantised(0.05 * 0.01))
    elif quantised:
        scales = RNG.uniform(0.005, 0.02, out)
        w = model.const(
            RNG.integers(-127, 127, shape),
            np.int8,
            Quantised(list(scales), [0] * out, 3 if depthwise else 0),
        )
        b = model.const(
            RNG.integers(-500, 500, out),
            np.int64 if dtype is np.int16 else np.int32,
            Quantised(list(0.05 * scales), [0] * out),
        )
    else:
        w, b = model.const(real(*shape)), model.const(real(out))
    height, width = ((size if padding == 0 else size - 2 * dilation) for size in IMAGE[1:3])
    made = (1, -(-height // stride), -(-width // stride), out)
    options: dict[str, Any] = {
        "stride_w": stride,
        "stride_h": stride,
        "padding": padding,
        "fused_activation_function": activation,
    }
    options |= {"dilation_w_factor": dilation, "dilation_h_factor": dilation} | (
        {"depth_multiplier": 2} if depthwise else {}
    )
    result = Quantised(0.1, 0 if dtype is np.int16 else 7) if quantised else None
    model.output(
        model.op(
            "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
            [x, w, b],
            made,
            dtype,
            result,
            version=3 if quantised else 1,
            **options,
        )
    )
    return model, [codes(IMAGE, dtype) if quantised else real(*IMAGE)]


def pool(op: str, dtype: Any = np.float32, padding: int = 0) -> Case:
    model = Model()
    meaning = None if dtype is np.float32 else Quantised(0.05, 3)
    made = (1, 4, 5, 4) if padding == 0 else (1, 3, 4, 4)
    x = model.input(IMAGE, dtype, meaning)
    options: dict[str, Any] = {
        "stride_w": 2,
        "stride_h": 2,
        "filter_width": 3,
        "filter_height": 3,
        "padding": padding,
        "fused_activation_function": 0,
    }
    model.output(
        model.op(op, [x], made, dtype, meaning, version=1 if meaning is None else 2, **options)
    )
    return model, [real(*IMAGE) if meaning is None else codes(IMAGE, dtype)]


def dense(dtype: Any = np.float32, *, keep: bool = False) -> Case:
    model = Model()
    shape = (2, 3, 16) if keep else (6, 16)
    made = (*shape[:-1], 5)
    quantised = dtype is not np.float32
    x = model.input(shape, dtype, Quantised(0.05, -2) if quantised else None)
    w = (
        model.const(codes((5, 16), np.int8) // 2, np.int8, Quantised(0.01))
        if quantised
        else model.const(real(5, 16))
    )
    b = (
        model.const(RNG.integers(-500, 500, 5), np.int32, Quantised(0.05 * 0.01))
        if quantised
        else model.const(real(5))
    )
    options: dict[str, Any] = {"fused_activation_function": 1, "keep_num_dims": keep}
    model.output(
        model.op(
            "FULLY_CONNECTED",
            [x, w, b],
            made,
            dtype,
            Quantised(0.08, 4) if quantised else None,
            version=4 if quantised else 2,
            **options,
        )
    )
    return model, [codes(shape, dtype) if quantised else real(*shape)]


def binary(op: str, dtype: Any, **options: Any) -> Case:
    model = Model()
    meaning = (
        (Quantised(0.05, 3), Quantised(0.02, -4), Quantised(0.08, 1))
        if dtype in (np.int8,)
        else (None,) * 3
    )
    x, y = (model.input(IMAGE, dtype, each) for each in meaning[:2])
    model.output(
        model.op(op, [x, y], IMAGE, dtype, meaning[2], version=2 if meaning[0] else 1, **options)
    )
    return model, [codes(IMAGE, dtype) if meaning[0] else real(*IMAGE) for _ in range(2)]


def unary(
    op: str,
    dtype: Any = np.float32,
    before: Quantised | None = None,
    after: Quantised | None = None,
    version: int = 1,
    **options: Any,
) -> Case:
    model = Model()
    model.output(
        model.op(
            op, [model.input(IMAGE, dtype, before)], IMAGE, dtype, after, version=version, **options
        )
    )
    return model, [real(*IMAGE) if dtype is np.float32 else codes(IMAGE, dtype)]


def shaped(op: str, made: tuple[int, ...], *constants: Any, **options: Any) -> Case:
    model = Model()
    model.output(
        model.op(
            op,
            [model.input(IMAGE), *(model.const(each, np.int32) for each in constants)],
            made,
            **options,
        )
    )
    return model, [real(*IMAGE)]


I8 = Quantised(0.05, 3)
CASES: dict[str, Callable[[], Case]] = {
    "conv": lambda: conv(activation=3),
    "conv valid": lambda: conv(padding=1, stride=2),
    "conv dilated": lambda: conv(dilation=2),
    "depthwise": lambda: conv(depthwise=True, activation=1),
    "conv i8": lambda: conv(np.int8, activation=1),
    "conv u8": lambda: conv(np.uint8, stride=2),
    "depthwise i8": lambda: conv(np.int8, depthwise=True),
    "max pool": lambda: pool("MAX_POOL_2D"),
    "average pool": lambda: pool("AVERAGE_POOL_2D", padding=1),
    "max pool i8": lambda: pool("MAX_POOL_2D", np.int8),
    "average pool u8": lambda: pool("AVERAGE_POOL_2D", np.uint8),
    "dense": dense,
    "dense i8": lambda: dense(np.int8),
    "add": lambda: binary("ADD", np.float32, fused_activation_function=1),
    "add i8": lambda: binary("ADD", np.int8, fused_activation_function=1),
    "mul i8": lambda: binary("MUL", np.int8),
    "sub": lambda: binary("SUB", np.float32),
    "squared difference": lambda: binary("SQUARED_DIFFERENCE", np.float32),
    "floor mod": lambda: binary("FLOOR_MOD", np.float32),
    "softmax": lambda: unary("SOFTMAX", beta=1.0),
    "softmax i8": lambda: unary("SOFTMAX", np.int8, I8, Quantised(1 / 256, -128), 2, beta=1.0),
    "logistic i8": lambda: unary("LOGISTIC", np.int8, I8, Quantised(1 / 256, -128), 2),
    "leaky relu": lambda: unary("LEAKY_RELU", alpha=0.2),
    "leaky relu i8": lambda: unary("LEAKY_RELU", np.int8, I8, Quantised(0.04, -5), 2, alpha=0.2),
    "tanh": lambda: unary("TANH"),
    "l2 normalisation": lambda: unary("L2_NORMALIZATION", fused_activation_function=0),
    "mean": lambda: shaped("MEAN", (1, 4), [1, 2], keep_dims=False),
    "transpose": lambda: shaped("TRANSPOSE", (1, 4, 8, 9), [0, 3, 1, 2]),
    "pad": lambda: shaped("PAD", (1, 10, 12, 4), [[0, 0], [1, 1], [2, 1], [0, 0]]),
    "strided slice": lambda: shaped(
        "STRIDED_SLICE",
        (1, 4, 3, 4),
        [0, 0, 1, 0],
        [1, 8, 9, 4],
        [1, 2, 3, 1],
        begin_mask=0,
        end_mask=0,
    ),
    "resize": lambda: shaped("RESIZE_BILINEAR", (1, 16, 18, 4), [16, 18], half_pixel_centers=True),
    "depth to space": lambda: shaped("DEPTH_TO_SPACE", (1, 16, 18, 1), block_size=2),
    "reshape": lambda: shaped("RESHAPE", (9, 32), [9, 32], new_shape=[9, 32]),
}
NOT_IN_ONERT = {
    "conv u8": "its Python package takes no uint8",
    "average pool u8": "its Python package takes no uint8",
    "dense i8": "its kernel takes no int8",
    "max pool i8": "its kernel takes no int8",
    "logistic i8": "its kernel takes no int8",
    "leaky relu i8": "its kernel takes no int8",
}


@pytest.mark.parametrize("name", CASES)
def test_litert_gets_the_same_from_what_is_written(name: str, tmp_path: Path) -> None:
    model, feeds = CASES[name]()
    written = convert(model, tmp_path / "out.tflite")
    compare(
        run_litert((tmp_path / "out.tflite").read_bytes(), feeds),
        run_litert(model, feeds),
        quanta=0,
    )
    assert operators(written) == operators(read_records(model.bytes()))


def test_onert_gets_the_same_from_what_is_written(tmp_path: Path) -> None:
    names = [name for name in CASES if name not in NOT_IN_ONERT]
    cases = [CASES[name]() for name in names]
    files = [tmp_path / f"{number}.circle" for number in range(len(cases))]
    for (model, _), file in zip(cases, files, strict=True):
        convert(model, file)
    made = run_onert(
        [(file, feeds) for file, (_, feeds) in zip(files, cases, strict=True)], tmp_path
    )
    for name, (model, feeds), results in zip(names, cases, made, strict=True):
        try:
            compare(results, run_litert(model, feeds), relative=1e-4, quanta=1)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_activations_of_16_bits(tmp_path: Path) -> None:
    model, feeds = conv(np.int16)
    assert operators(convert(model, tmp_path / "out.tflite")) == ["CONV_2D"]
    compare(
        run_litert((tmp_path / "out.tflite").read_bytes(), feeds),
        run_litert(model, feeds),
        quanta=0,
    )


@pytest.mark.parametrize("asymmetric", [True, False])
@pytest.mark.parametrize("ending", ["tflite", "circle"])
def test_float_operators_keep_their_quantised_weights(
    asymmetric: bool, ending: str, tmp_path: Path
) -> None:
    model = Model()
    w = model.const(codes((5, 16), np.int8), np.int8, Quantised(0.01))
    model.output(
        model.op(
            "FULLY_CONNECTED",
            [model.input((2, 16)), w, -1],
            (2, 5),
            asymmetric_quantize_inputs=asymmetric,
            version=9,
        )
    )
    written = convert(model, tmp_path / f"out.{ending}")
    assert operators(written) == ["FULLY_CONNECTED"]
    (operator,) = written.subgraphs[0].operators
    assert written.subgraphs[0].tensors[operator.inputs[1]].type == "INT8"
    assert bool(operator.options.get("asymmetric_quantize_inputs")) is asymmetric
    if ending == "circle":
        return
    feeds = [real(2, 16) + 0.5]
    compare(run_litert((tmp_path / "out.tflite").read_bytes(), feeds), run_litert(model, feeds))


def test_a_chain_of_quantised_operators_stays_one(tmp_path: Path) -> None:
    """Reshapes between codes and products, concatenation, and codes that two operators read."""
    model = Model()
    x = model.input(IMAGE, np.int8, I8)
    doubled = model.op("CONCATENATION", [x, x], (1, 8, 9, 8), np.int8, I8, axis=3, version=2)
    w = model.const(RNG.integers(-100, 100, (3, 8 * 9 * 8)), np.int8, Quantised(0.002))
    b = model.const(np.zeros(3), np.int32, Quantised(0.05 * 0.002))
    y = model.op("FULLY_CONNECTED", [doubled, w, b], (1, 3), np.int8, Quantised(0.1, 1), version=4)
    model.output(
        y, model.op("SOFTMAX", [y], (1, 3), np.int8, Quantised(1 / 256, -128), beta=1.0, version=2)
    )
    feeds = [codes(IMAGE, np.int8)]
    written = convert(model, tmp_path / "out.tflite")
    assert operators(written) == ["CONCATENATION", "RESHAPE", "FULLY_CONNECTED", "SOFTMAX"]
    compare(
        run_litert((tmp_path / "out.tflite").read_bytes(), feeds),
        run_litert(model, feeds),
        quanta=0,
    )


# ---- the file itself ----


@pytest.mark.parametrize(
    ("op", "attrs", "written"),
    [
        ("Swish", {}, ["LOGISTIC", "MUL"]),
        ("Swish", {"alpha": 2.0}, ["MUL", "LOGISTIC", "MUL"]),
        (
            "Celu",
            {},
            ["MAXIMUM", "MINIMUM", "ELU", "MAXIMUM", "EXP", "SUB", "ADD", "MINIMUM", "ADD"],
        ),
    ],
)
def test_nothing_is_multiplied_by_one(
    op: str, attrs: dict[str, float], written: list[str], tmp_path: Path
) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 5])
    build.output("y", build.op(op, x, attrs=attrs))
    graph, path = build.finish(), tmp_path / "out.tflite"
    save(graph, path)
    data = path.read_bytes()
    assert operators(read_records(data)) == written
    values = np.linspace(-3, 3, 10, dtype=np.float32).reshape(2, 5)
    np.testing.assert_allclose(read(data).run([values])[0], graph.run([values])[0], atol=1e-6)


def test_what_the_format_does_not_have_is_named() -> None:
    graph = built(lambda b, x: b.op("Det", x, name="the determinant"), 3, 3)
    for form, label in (("tflite", "TFLite"), ("circle", "Circle")):
        with pytest.raises(
            UnsupportedError,
            match=rf"operator 'the determinant' \(Det\) cannot be written as {label}",
        ):
            to_records(graph, form)


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_roots_and_logarithms_of_whole_numbers_are_not_written(op: str, tmp_path: Path) -> None:
    """The file has neither."""
    build = GraphBuilder()
    build.output("y", build.op(op, build.input("x", DType.I64, [2, 3]), build.const(np.array([1]))))
    with pytest.raises(UnsupportedError, match=op):
        save(build.finish(), tmp_path / "model.tflite")


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"\.onnx, \.tflite and \.circle"):
        save(built(lambda b, x: b.op("Relu", x), 2), tmp_path / "model.pb")


def test_codes_of_operators_in_circle_and_tflite() -> None:
    model = Model(circle=True)
    model.output(
        model.op(
            "RMS_NORM", [model.input((2, 3, 8)), model.const(real(8))], (2, 3, 8), epsilon=1e-5
        )
    )
    data = serialise(to_records(read(model), "circle"))
    code = Circle.GetRootAs(data, 0).OperatorCodes(0)
    assert data[4:8] == b"CIR0"
    assert (code.DeprecatedBuiltinCode(), code.BuiltinCode()) == (-6, -6)
    model = Model()
    model.output(model.op("GELU", [model.input((2, 3))], (2, 3), options=""))
    data = serialise(to_records(read(model), "tflite"))
    code = tflite.Model.GetRootAs(data, 0).OperatorCodes(0)
    assert data[4:8] == b"TFL3"
    assert (code.DeprecatedBuiltinCode(), code.BuiltinCode()) == (127, 150)


def test_records_survive_and_buffers_may_stand_outside() -> None:
    """What is too large for a flatbuffer stands behind it; LiteRT reads it there."""
    model, feeds = conv(np.int8)
    expected = run_litert(model, feeds)
    before = read_records(model.bytes())
    for limit in (0, 1 << 20):
        data = serialise(before, most_inline=limit)
        after = read_records(data)
        assert [each.tobytes() for each in after.buffers] == [
            each.tobytes() for each in before.buffers
        ]
        for old, new in zip(before.subgraphs[0].tensors, after.subgraphs[0].tensors, strict=True):
            assert (old.name, old.type, old.shape, old.buffer) == (
                new.name,
                new.type,
                new.shape,
                new.buffer,
            )
        compare(run_litert(data, feeds), expected, quanta=0)


def test_open_dimensions_are_kept(tmp_path: Path) -> None:
    build = GraphBuilder("open")
    x = build.input("x", DType.F32, ("batch", 4))
    build.output("y", build.op("Relu", build.op("Gemm", x, weights(build, 4, 5))))
    written = convert(build.finish(), tmp_path / "out.tflite")
    assert written.subgraphs[0].tensors[written.subgraphs[0].inputs[0]].signature == (-1, 4)
    (made,) = run_litert((tmp_path / "out.tflite").read_bytes(), [real(3, 4)])
    assert made.shape == (3, 5)
