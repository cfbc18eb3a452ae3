"""Files that are no models, or not whole: one line, and never another kind of exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from tests.frontends.onnx.models import model, node
from whence.errors import ModelError, WhenceError
from whence.frontends.onnx.reader import read_onnx

F32, BOOL = TensorProto.FLOAT, TensorProto.BOOL

X = np.zeros((2, 3), np.float32)
PLAIN = model(
    [node("Relu", ["x"], ["a"], name="first"), node("Neg", ["a"], ["y"])], {"x": X}, ["y"]
)


def _branch(made: Any) -> Any:
    output = helper.make_tensor_value_info(made.output[0], TensorProto.FLOAT, None)
    return helper.make_graph([made], "body", [], [output])


WHOLE = model(
    [
        node("Constant", [], ["k"], value_floats=[1.0, 2.0, 3.0]),
        node("Softmax", ["x"], ["s"], axis=1),
        node("Clip", ["s"], ["p"], min=0.0),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=_branch(node("Add", ["p", "k"], ["t"])),
            else_branch=_branch(node("Neg", ["p"], ["e"])),
        ),
    ],
    {"x": X, "c": (TensorProto.BOOL, [])},
    ["y"],
    opset=9,
    constants={"unused": np.ones((2, 2), np.float32)},
).SerializeToString()


@pytest.mark.parametrize("opset", [6, 18])
def test_axes_that_no_tensor_has_take_no_memory(opset: int) -> None:
    axis = -(10**12)
    made = (
        node("Add", ["x", "w"], ["y"], broadcast=1, axis=axis)
        if opset == 6
        else node("SimplifiedLayerNormalization", ["x", "w"], ["y", "factor"], axis=axis)
    )
    weights = {"w": np.ones(3, np.float32)}
    with pytest.raises(ModelError, match="its axis is"):
        read_onnx(model([made], {"x": X}, list(made.output), opset=opset, constants=weights))


def test_files_that_are_no_models(tmp_path: Path) -> None:
    whole = PLAIN.SerializeToString()
    for content in (
        b"",
        b"not a model",
        whole[:-7],
        whole[:20],
        b"\xff" * 100,
        b"PK\x03\x04" + bytes(50),
    ):
        path = tmp_path / "m.onnx"
        path.write_bytes(content)
        with pytest.raises(
            ModelError, match=r"m\.onnx' (is not an ONNX model, or is cut off|holds no graph)"
        ):
            read_onnx(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.onnx", tmp_path, Path("a\0b")):
        with pytest.raises(ModelError, match="cannot read"):
            read_onnx(path)


def test_names_that_are_not_utf8() -> None:
    content = PLAIN.SerializeToString().replace(b"first", b"\xff\xfe\xfd\xfc\xfb")
    with pytest.raises(ModelError, match="is not UTF-8 text"):
        read_onnx(content)


def test_external_data(tmp_path: Path) -> None:
    proto = ModelProto()
    proto.CopyFrom(PLAIN)
    tensor = proto.graph.initializer.add(
        name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="../../etc/passwd")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"tensor 'w' .*outside the model's folder"):
        read_onnx(tmp_path / "m.onnx")
    tensor.external_data[0].value = "gone.bin"
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"'gone\.bin', which is missing"):
        read_onnx(tmp_path / "m.onnx")


def problem_with(content: bytes) -> str:
    try:
        read_onnx(content)
    except WhenceError as error:
        return str(error)
    return ""


@given(
    st.lists(
        st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=8
    ),
    st.integers(0, len(WHOLE)),
)
def test_damaged_files_never_raise_anything_else(damage: list[tuple[int, int]], cut: int) -> None:
    content = bytearray(WHOLE)
    for position, byte in damage:
        content[position] = byte
    for candidate in (bytes(content), bytes(content[:cut])):
        assert "\n" not in problem_with(candidate)
