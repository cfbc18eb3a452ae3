"""Files that say less, or other things, than ONNX asks for, and that ONNX Runtime runs all the
same.
"""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

import whence
from tests.frontends.onnx.models import (
    MICROSOFT,
    assert_close,
    assert_like_ort,
    model,
    node,
    run_ort,
    run_whence,
    single,
)
from whence.errors import InputError, ModelError, UnsupportedError
from whence.frontends.onnx.reader import read_onnx
from whence.frontends.onnx.writer import write_onnx

RNG = np.random.default_rng(3)
X = np.arange(4, dtype=np.float32)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def saved(proto: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


# ---- optional inputs ----


def optional_model() -> ModelProto:
    proto = model([node("OptionalGetElement", ["x"], ["y"])], {"x": X}, ["y"], opset=18)
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    proto.graph.input[0].type.CopyFrom(helper.make_optional_type_proto(inner))
    return proto


def test_an_optional_input_is_given_a_tensor(tmp_path: Path) -> None:
    compiled = whence.compile(saved(optional_model(), tmp_path))
    np.testing.assert_array_equal(compiled(X), X)
    with pytest.raises(InputError, match="has shape"):
        compiled(X[:3])


def test_a_sequence_is_a_list_of_what_it_declares(tmp_path: Path) -> None:
    proto = model([node("SequenceAt", ["x", "i"], ["y"])], {"x": X, "i": np.array(0)}, ["y"])
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(inner))
    compiled = whence.compile(saved(proto, tmp_path))
    np.testing.assert_array_equal(compiled([X, X + 1], np.array(1)), X + 1)
    for wrong in (X, [X, X[:2]]):
        with pytest.raises(InputError, match="input 'x'"):
            compiled(wrong, np.array(0))


# ---- inputs declared as scalars ----


def scalar_model(op: str = "CumSum") -> ModelProto:
    """tf2onnx declares what it knows nothing about as a scalar: the output too."""
    if op == "CumSum":
        nodes = [node("CumSum", ["x", "axis"], ["y"], reverse=1)]
    else:
        nodes = [node(op, ["x"], ["y"])]
    proto = model(
        nodes, {"x": (TensorProto.FLOAT, [])}, ["y"], opset=14, constants={"axis": np.array(0)}
    )
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    proto.graph.output[0].type.tensor_type.shape.SetInParent()
    return proto


def test_what_is_declared_as_a_scalar_may_be_given_as_a_tensor(tmp_path: Path) -> None:
    proto = scalar_model("Relu")
    expected = run_ort(proto, {"x": X})
    assert expected[0].shape == (4,)
    for source in (saved(proto, tmp_path), read_onnx(proto)):
        compiled = whence.compile(source)
        with pytest.warns(UserWarning, match="declared as a scalar"):
            assert_close([compiled(X)], expected)


def test_what_cannot_be_a_scalar_is_read_with_its_shape_open(tmp_path: Path) -> None:
    proto = scalar_model("CumSum")
    assert str(read_onnx(proto).inputs[0].type) == "f32[...]"
    compiled = whence.compile(saved(proto, tmp_path))
    assert_close([compiled(X)], run_ort(proto, {"x": X}))


def test_a_scalar_stays_one(tmp_path: Path) -> None:
    compiled = whence.compile(saved(scalar_model("Relu"), tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(np.array(2, np.float32)).shape == ()


def test_an_axis_of_a_scalar_that_no_input_can_help_is_refused() -> None:
    nodes = [node("CumSum", ["c", "axis"], ["y"])]
    constants = {"axis": np.array(0), "c": np.array(1, np.float32)}
    with pytest.raises(ModelError, match="CumSum"):
        read_onnx(model(nodes, {"x": X}, ["y"], constants=constants))


# ---- named dimensions ----


def test_dimensions_of_one_name_may_differ(tmp_path: Path) -> None:
    proto = model(
        [node("Concat", ["a", "b"], ["y"], axis=0)],
        {"a": (TensorProto.FLOAT, ["N"]), "b": (TensorProto.FLOAT, ["N"])},
        ["y"],
    )
    feeds = {"a": real(3), "b": real(5)}
    expected = run_ort(proto, feeds)
    with pytest.warns(UserWarning, match="dimension 'N' is given as 3"):
        assert_close([whence.compile(saved(proto, tmp_path))(**feeds)], expected)


# ---- initializers that are inputs too ----


def overridable_model() -> ModelProto:
    inputs = {"w": (TensorProto.FLOAT, [2, 3]), "x": (TensorProto.FLOAT, [4, 2])}
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    return model([node("MatMul", ["x", "w"], ["y"])], inputs, ["y"], constants={"w": weights})


def test_an_initializer_that_is_an_input_may_be_overridden(tmp_path: Path) -> None:
    proto, x, w = overridable_model(), real(4, 2), real(2, 3)
    path = saved(proto, tmp_path)
    for _ in range(2):
        compiled = whence.compile(path)
        assert [port.name for port in compiled.inputs] == ["x"]
        assert_close([compiled(x)], run_ort(proto, {"x": x}))
        assert_close([compiled(x=x, w=w)], run_ort(proto, {"x": x, "w": w}))
        assert_close([compiled(x, w=w)], run_ort(proto, {"x": x, "w": w}))
        assert_close([compiled(x=x)], run_ort(proto, {"x": x}))
    with pytest.raises(InputError, match="'w' has shape"):
        compiled(x=x, w=real(3, 3))
    with pytest.raises(InputError, match="unknown input 'z'"):
        compiled(x=x, z=w)


def test_an_initializer_with_a_shape_is_an_input() -> None:
    graph = read_onnx(overridable_model(), shapes={"w": (2, 3)})
    assert [each.name for each in graph.inputs] == ["w", "x"]


# ---- sparse tensors ----


def test_a_sparse_constant_may_be_an_output(tmp_path: Path) -> None:
    values = helper.make_tensor("s", TensorProto.FLOAT, [2], [1.5, 2.5])
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [1, 5])
    sparse = helper.make_sparse_tensor(values, indices, [2, 3])
    proto = model([node("Constant", [], ["y"], sparse_value=sparse)], {}, ["y"], opset=12)
    kind = proto.graph.output[0].type.sparse_tensor_type
    kind.elem_type = TensorProto.FLOAT
    for dim in (2, 3):
        kind.shape.dim.add().dim_value = dim
    compiled = whence.compile(saved(proto, tmp_path))
    np.testing.assert_array_equal(compiled(), [[0, 1.5, 0], [0, 0, 2.5]])


def test_a_sparse_input_is_refused_by_name() -> None:
    proto = model([node("Neg", ["x"], ["y"])], {"x": X}, ["y"])
    proto.graph.input[0].type.sparse_tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(UnsupportedError, match="'x' is a sparse tensor"):
        read_onnx(proto)


# ---- old coordinates ----

ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@pytest.mark.parametrize(("rounding", "opset"), [*itertools.product(ROUNDING, (11, 13))])
def test_half_pixels_for_nearest_neighbours(rounding: str, opset: int) -> None:
    image = real(1, 1, 5, 4)
    for sizes in ((3, 2), (7, 9), (10, 4)):
        proto = model(
            [
                node(
                    "Resize",
                    ["x", "roi", "roi", "sizes"],
                    ["y"],
                    mode="nearest",
                    nearest_mode=rounding,
                    coordinate_transformation_mode="tf_half_pixel_for_nn",
                )
            ],
            {"x": image},
            ["y"],
            opset=opset,
            constants={"roi": np.zeros(0, np.float32), "sizes": np.array((1, 1, *sizes))},
        )
        assert_like_ort(proto, {"x": image})


# ---- Scan with a batch ----


def scan_8(lengths: bool, directions: list[int] | None) -> ModelProto:
    row = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("s", "x")]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("t", "y")]
    body = helper.make_graph(
        [node("Add", ["s", "x"], ["t"]), node("Mul", ["t", "outer"], ["y"])], "b", row, made
    )
    attrs: dict[str, Any] = {"directions": directions} if directions else {}
    scan = node(
        "Scan",
        ["l" if lengths else "", "start", "rows"],
        ["end", "ys"],
        body=body,
        num_scan_inputs=1,
        **attrs,
    )
    inputs: dict[str, np.ndarray | tuple[int, Any]] = {
        "start": (TensorProto.FLOAT, [3, 2]),
        "rows": (TensorProto.FLOAT, [3, 4, 2]),
        "outer": (TensorProto.FLOAT, [2]),
    }
    if lengths:
        inputs["l"] = (TensorProto.INT64, [3])
    return model([scan], inputs, ["end", "ys"], opset=8, ir_version=3)


@pytest.mark.parametrize("directions", [None, [1]])
@pytest.mark.parametrize("lengths", [False, True])
def test_scan_with_a_batch(lengths: bool, directions: list[int] | None, tmp_path: Path) -> None:
    proto = scan_8(lengths, directions)
    feeds = {"start": real(3, 2), "rows": real(3, 4, 2), "outer": real(2)}
    if lengths:
        feeds["l"] = np.array([4, 2, 1])
    expected = run_ort(proto, feeds)
    assert_close(run_whence(proto, feeds), expected)
    assert_close(list(whence.compile(read_onnx(proto))(**feeds)), expected)
    write_onnx(read_onnx(proto), tmp_path / "new.onnx")
    assert_close(run_ort((tmp_path / "new.onnx").read_bytes(), feeds), expected)


# ---- a quantised table that is computed ----


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("zero", [False, True])
def test_a_quantised_table_is_computed_from_constants(packed: bool, zero: bool) -> None:
    ids = np.array([[2, 0, 5]], np.int64)
    dtype: Any = np.uint8 if packed else np.int8
    table = RNG.integers(0, 256 if packed else 16, (6, 32 if packed else 64)).astype(dtype)
    names = ["table", "ids", "scales", *(["zeros"] if zero else [])]
    constants = {"raw": table.reshape(-1), "shape": np.array(table.shape), "scales": real(6, 4)}
    if packed:
        constants["zeros"] = RNG.integers(0, 256, (6, 2)).astype(np.uint8)
        computed = [node("Reshape", ["raw", "shape"], ["table"])]
    else:
        constants["raw_zeros"] = RNG.integers(-8, 8, (6, 4)).astype(np.int8)
        computed = [
            node("Reshape", ["raw", "shape"], ["bytes"]),
            node("Cast", ["bytes"], ["table"], to=TensorProto.INT4),
            node("Cast", ["raw_zeros"], ["zeros"], to=TensorProto.INT4),
        ]
    gather = node("GatherBlockQuantized", names, ["y"], domain=MICROSOFT, block_size=16)
    proto = model([*computed, gather], {"ids": ids}, ["y"], constants=constants)
    assert_like_ort(proto, {"ids": ids})
    assert_close([whence.compile(read_onnx(proto))(ids)], run_ort(proto, {"ids": ids}))


# ---- tensors without elements ----


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceSumSquare", "ReduceLogSumExp"])
def test_reductions_of_nothing(op: str) -> None:
    x = np.zeros((2, 0, 3), np.float32)
    for axis in (0, 1):
        proto = model(
            [node(op, ["x", "axes"], ["y"])], {"x": x}, ["y"], constants={"axes": np.array([axis])}
        )
        expected = run_ort(proto, {"x": x})
        assert_close([whence.compile(read_onnx(proto))(x)], expected)


def test_the_largest_of_nothing() -> None:
    x = np.zeros((2, 0), np.float32)
    along = single("ArgMax", {"x": x}, 21, axis=0)
    assert_close([whence.compile(read_onnx(along))(x)], run_ort(along, {"x": x}))
    none = single("ArgMax", {"x": x}, 21, axis=1)
    with pytest.raises(ModelError, match="operator 'it'"):
        whence.compile(read_onnx(none))(x)


# ---- bounds that are lists of one number ----


def test_a_bound_may_be_a_list_of_one_number() -> None:
    x, low, high = real(3, 4), np.array([-0.5], np.float32), np.array([0.5], np.float32)
    proto = single("Clip", {"x": x, "low": low, "high": high}, 11)
    feeds = {"x": x, "low": low, "high": high}
    assert_close([whence.compile(read_onnx(proto))(**feeds)], run_ort(proto, feeds))
