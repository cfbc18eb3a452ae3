"""Files whose operands do not fit each other, or that declare what is not so: an error in one line,
or the truth; never memory that is not theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from whence.api import compile_model
from whence.errors import ModelError
from whence.runtime.engine import Engine

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def _model(
    op: str,
    given: dict[str, np.ndarray],
    constants: dict[str, Any],
    declared: Sequence[int] | None = None,
    outputs: int = 1,
    **attrs: Any,
) -> ModelProto:
    """One operator; an empty name is an absent input. `declared` is what the file says of its
    result.
    """
    names = [name if not name.startswith("-") else "" for name in (*given, *constants)]
    kinds = {
        np.dtype(np.float32): FLOAT,
        np.dtype(np.int64): INT64,
        np.dtype(np.int32): TensorProto.INT32,
    }
    results = ["t", *(f"t{number}" for number in range(1, outputs))]
    nodes = [
        helper.make_node(op, names, results, name="liar", **attrs),
        helper.make_node("Identity", ["t"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(name, kinds[value.dtype], value.shape)
            for name, value in given.items()
        ],
        [helper.make_tensor_value_info("y", FLOAT, declared)],
        [
            numpy_helper.from_array(np.asarray(value), name)
            for name, value in constants.items()
            if not name.startswith("-")
        ],
        value_info=[]
        if declared is None
        else [helper.make_tensor_value_info("t", FLOAT, declared)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def _run(model: ModelProto, given: dict[str, np.ndarray], engine: Engine, folder: Path) -> Any:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return compile_model(path, engine=engine)(**given)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


IMAGE = {"x": ones(1, 4, 8, 8)}
SERIES = {"x": ones(4, 2, 3)}
CASES: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any], dict[str, Any]]] = {
    "a bias too short": ("Conv", IMAGE, {"w": ones(8, 4, 3, 3), "b": ones(3)}, {}),
    "a bias too long": ("Conv", IMAGE, {"w": ones(8, 4, 3, 3), "b": ones(9)}, {}),
    "another kernel": ("Conv", IMAGE, {"w": ones(8, 4, 3, 3)}, {"kernel_shape": [5, 5]}),
    "uneven groups": ("Conv", IMAGE, {"w": ones(7, 2, 3, 3)}, {"group": 2}),
    "other channels": ("Conv", IMAGE, {"w": ones(8, 5, 3, 3)}, {}),
    "other axes": ("Conv", IMAGE, {"w": ones(8, 4, 3)}, {}),
    "transposed, other channels": ("ConvTranspose", IMAGE, {"w": ones(5, 2, 3, 3)}, {}),
    "transposed, a bias too short": (
        "ConvTranspose",
        IMAGE,
        {"w": ones(4, 2, 3, 3), "b": ones(3)},
        {"group": 2},
    ),
    "an addend too short": ("Gemm", {"x": X}, {"w": ones(4, 5), "b": ones(3)}, {}),
    "inner dimensions": ("MatMul", {"x": ones(3, 7)}, {"w": ones(4, 5)}, {}),
    "too few means": (
        "BatchNormalization",
        IMAGE,
        {"s": ones(4), "b": ones(4), "m": ones(3), "v": ones(4)},
        {},
    ),
    "too few scales": ("InstanceNormalization", IMAGE, {"s": ones(3), "b": ones(3)}, {}),
    "too few scales of groups": (
        "GroupNormalization",
        IMAGE,
        {"s": ones(2), "b": ones(2)},
        {"num_groups": 2},
    ),
    "a scale too short": ("LayerNormalization", {"x": X}, {"s": ones(3)}, {}),
    "a scale too short for rms": ("RMSNormalization", {"x": X}, {"s": ones(3)}, {}),
    "slopes": ("PRelu", {"x": X}, {"s": ones(3)}, {}),
    "bounds": ("Clip", {"x": X}, {"low": ones(3)}, {}),
    "recurrent weights": (
        "LSTM",
        SERIES,
        {"w": ones(1, 32, 3), "r": ones(1, 32, 5)},
        {"hidden_size": 8},
    ),
    "recurrent bias": (
        "LSTM",
        SERIES,
        {"w": ones(1, 32, 3), "r": ones(1, 32, 8), "b": ones(1, 5)},
        {"hidden_size": 8},
    ),
    "recurrent state": (
        "GRU",
        SERIES,
        {"w": ones(1, 24, 3), "r": ones(1, 24, 8), "-b": 0, "-l": 0, "h": ones(1, 1, 8)},
        {"hidden_size": 8},
    ),
    "fewer values than keys": (
        "Attention",
        {"q": ones(1, 3, 16), "k": ones(1, 5, 16), "v": ones(1, 4, 16)},
        {},
        {"q_num_heads": 2, "kv_num_heads": 2},
    ),
    "sizes of heads": (
        "Attention",
        {"q": ones(1, 2, 3, 8), "k": ones(1, 2, 5, 4), "v": ones(1, 2, 5, 8)},
        {},
        {},
    ),
    "parts": ("Split", {"x": X}, {"s": np.array([3, 30])}, {"axis": 1, "outputs": 2}),
    "cut to less than nothing": ("Pad", {"x": X}, {"p": np.array([-5, 0, 0, 0])}, {}),
    "repeated less than never": ("Tile", {"x": X}, {"r": np.array([-1, 2])}, {}),
    "channels that make no squares": ("DepthToSpace", IMAGE, {}, {"blocksize": 3}),
    "squares that do not fit": ("SpaceToDepth", IMAGE, {}, {"blocksize": 3}),
    "a shape of another size": ("Reshape", {"x": X}, {"s": np.array([5, 5])}, {}),
    "an order of axes": ("Transpose", {"x": X}, {}, {"perm": [0, 5]}),
    "a row that is not there": ("Gather", {"x": X}, {"i": np.array([3])}, {}),
    "a row before the first": ("Gather", {"x": X}, {"i": np.array([-4])}, {}),
    "an element that is not there": ("GatherElements", {"x": X}, {"i": np.full((2, 4), 3)}, {}),
    "elements of more columns": ("GatherElements", {"x": X}, {"i": np.zeros((2, 5), np.int64)}, {}),
    "a tuple that is not there": ("GatherND", {"x": X}, {"i": np.array([[0, 0], [2, 4]])}, {}),
    "tuples too long": ("GatherND", {"x": X}, {"i": np.zeros((1, 3), np.int64)}, {}),
    "a place to write": (
        "ScatterElements",
        {"x": X},
        {"i": np.full((1, 4), 10**12), "u": ones(1, 4)},
        {},
    ),
    "a row of nothing": ("Gather", {"x": ones(0, 4), "i": np.array([0, 1])}, {}, {}),
    "elements of nothing": (
        "GatherElements",
        {"x": ones(0, 4), "i": np.zeros((2, 4), np.int64)},
        {},
        {},
    ),
    "a tuple into nothing": ("GatherND", {"x": ones(0, 4), "i": np.array([[0]])}, {}, {}),
    "the edge of nothing": (
        "Pad",
        {"x": ones(0, 4)},
        {"p": np.array([1, 0, 1, 0])},
        {"mode": "edge"},
    ),
    "nothing again and again": (
        "Pad",
        {"x": ones(0, 4)},
        {"p": np.array([1, 0, 1, 0])},
        {"mode": "wrap"},
    ),
    "a tuple to write": ("ScatterND", {"x": X}, {"i": np.array([[3]]), "u": ones(1, 4)}, {}),
    "updates too short": ("ScatterND", {"x": X}, {"i": np.array([[0]]), "u": ones(1, 3)}, {}),
}


@pytest.mark.parametrize("what", CASES)
def test_operands_that_do_not_fit(what: str, engine: Engine, tmp_path: Path) -> None:
    op, given, constants, options = CASES[what]
    with pytest.raises(ModelError, match=rf"^operator 'liar' \({op}\): ") as caught:
        _run(_model(op, given, constants, **options), given, engine, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("declared", [[300, 400], [1, 1], [12], [3, 4, 5]])
def test_a_declared_shape_that_is_not_so_does_not_matter(
    declared: list[int], engine: Engine, tmp_path: Path
) -> None:
    given = {"x": X}
    np.testing.assert_array_equal(
        _run(_model("Relu", given, {}, declared), given, engine, tmp_path), X
    )


def test_data_shorter_than_its_shape(engine: Engine, tmp_path: Path) -> None:
    model = _model("MatMul", {"x": X}, {"w": ones(4, 5)})
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:40]
    with pytest.raises(ModelError, match="which is 80 bytes, but the file holds 40"):
        _run(model, {"x": X}, engine, tmp_path)
    model.graph.initializer[0].dims[0] = 2**40
    with pytest.raises(ModelError, match="the file holds 40"):
        _run(model, {"x": X}, engine, tmp_path)
