"""Random inputs have the shapes and values that a model accepts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from zoo.inputs import Hint, load_hints, random_inputs
from zoo.manifest import load_manifest

RUNNABLE_SMALL = [
    m.name for m in load_manifest().values() if m.small and m.suffix == ".onnx" and not m.rejected
]


def test_open_dimensions_are_one_and_known_ones_stay() -> None:
    arrays = random_inputs("unlisted", [("x", np.float32, ("batch", 3, None, -1, 8))], 0)
    assert arrays["x"].shape == (1, 3, 1, 1, 8)
    assert arrays["x"].dtype == np.float32


def test_hints_give_shapes_ranges_values_and_named_dimensions() -> None:
    magika = random_inputs("magika_v3_3", [("bytes", np.int32, ("b", 2048))], 0)["bytes"]
    assert magika.shape == (1, 2048)
    assert magika.min() >= 0
    assert 200 < magika.max() < 256
    rate = random_inputs("silero_vad_v6", [("sr", np.int64, ())], 0)["sr"]
    assert rate.shape == ()
    assert rate == 16000
    graph = random_inputs(
        "minimol_gnn",
        [("node_feat", np.float32, ("num_nodes", 5)), ("edge_index", np.int64, (2, "num_edges"))],
        0,
    )
    assert graph["node_feat"].shape == (20, 5)
    assert graph["edge_index"].shape == (2, 40)


def test_one_number_fills_a_declared_shape() -> None:
    assert random_inputs("silero_vad_v6", [("sr", np.int64, (1,))], 0)["sr"].tolist() == [16000]


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (np.uint8, 0, 255),
        (np.int8, -128, 127),
        (np.int64, 0, 1),
        (np.int32, 0, 1),
        (np.uint64, 0, 1),
        (np.bool_, 0, 1),
    ],
)
def test_integers_cover_their_range(dtype: type, low: int, high: int) -> None:
    array = random_inputs("unlisted", [("x", dtype, (20000,))], 0)["x"]
    assert array.dtype == dtype
    assert (int(array.min()), int(array.max())) == (low, high)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16, np.complex64])
def test_floats_are_normal(dtype: type) -> None:
    array = random_inputs("unlisted", [("x", dtype, (4000,))], 0)["x"]
    assert array.dtype == np.dtype(dtype)
    assert abs(float(np.mean(array.astype(np.complex128).real))) < 0.1
    assert abs(float(np.std(array.astype(np.complex128).real)) - 1) < 0.1


def test_strings_and_scalars() -> None:
    arrays = random_inputs(
        "unlisted", [("text", np.object_, (2,)), ("x", np.float32, ()), ("flag", np.bool_, ())], 0
    )
    assert arrays["text"].tolist() == ["whence", "whence"]
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


def test_a_seed_fixes_each_input_by_itself() -> None:
    x, y = ("x", np.float32, (8,)), ("y", np.float32, (8,))
    both, alone = random_inputs("unlisted", [x, y], 7), random_inputs("unlisted", [y], 7)
    assert np.array_equal(both["y"], alone["y"])
    assert not np.array_equal(both["x"], both["y"])
    assert not np.array_equal(alone["y"], random_inputs("unlisted", [y], 8)["y"])


def test_hints_say_something() -> None:
    for name, model in load_hints().items():
        assert all(hint != Hint() for hint in model.inputs.values()), name
        assert all(
            hint.low < hint.high
            for hint in model.inputs.values()
            if hint.low is not None and hint.high is not None
        ), name


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNABLE_SMALL)
def test_the_small_models_accept_them(zoo_model: Callable[[str], Path], name: str) -> None:
    path = zoo_model(name)
    initialised = {tensor.name for tensor in onnx.load(path).graph.initializer}
    declared = [i for i in onnx.load(path).graph.input if i.name not in initialised]
    specs = [
        (
            i.name,
            onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type),
            [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim],
        )
        for i in declared
    ]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = session.run(None, random_inputs(name, specs, 0))
    assert outputs
    assert all(np.isfinite(o).all() for o in outputs if o.dtype.kind == "f")
