"""Models in memory, and files that have to be exported first."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest

import whence
from whence.errors import InputError, UnsupportedError


def _model() -> onnx.ModelProto:
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")],
        "one",
        [value("x", onnx.TensorProto.FLOAT, ["n", 2])],
        [value("y", onnx.TensorProto.FLOAT, None)],
    )
    return onnx.helper.make_model(graph)


X = np.array([[-1, 2]], np.float32)


@pytest.mark.parametrize("form", ["proto", "bytes", "memory"])
def test_an_onnx_model_in_memory(form: str) -> None:
    proto = _model()
    data = proto.SerializeToString()
    model: Any = {"proto": proto, "bytes": data, "memory": memoryview(data)}[form]
    assert whence.compile(model, threads=1)(X).tolist() == [[0, 2]]
    assert str(whence.load(model, shapes={"x": (3, 2)}).inputs[0].type) == "f32[3,2]"


@pytest.mark.skipif(importlib.util.find_spec("onnx_ir") is None, reason="onnx_ir is not installed")
def test_an_onnx_ir_model() -> None:
    import onnx_ir

    assert whence.compile(onnx_ir.from_proto(_model()), threads=1)(X).tolist() == [[0, 2]]


def test_tflite_bytes(tmp_path: Path) -> None:
    path = tmp_path / "one.tflite"
    whence.save(whence.load(_model(), shapes={"x": (1, 2)}), path)
    assert whence.compile(path.read_bytes(), threads=1)(X).tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("net.pt", "torch.export.save"),
        ("net.pth", "torch.export.save"),
        ("net.safetensors", "load them into the module"),
        ("net.pb", "tf2onnx"),
        ("net.keras", "model.export"),
        ("net.h5", "model.export"),
    ],
)
def test_other_formats_are_refused_with_a_way_out(tmp_path: Path, name: str, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"anything")
    with pytest.raises(UnsupportedError, match=says):
        whence.load(path)
    with pytest.raises(UnsupportedError, match=says):
        whence.compile(path)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InputError, match=r"a model is a path, .*, not int"):
        whence.compile(3)
    with pytest.raises(InputError, match=r"not list"):
        whence.load([1])


class Exchange:
    """An array that is known only by DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_inputs_by_dlpack() -> None:
    model = whence.compile(_model(), threads=1)
    assert model(Exchange(X)).tolist() == [[0, 2]]
    assert model(x=Exchange(X)).tolist() == [[0, 2]]
    assert model({"x": Exchange(X)}).tolist() == [[0, 2]]
    with pytest.raises(InputError, match="'x' is f64"):
        model(Exchange(X.astype(np.float64)))


def test_tensors_of_pytorch_for_an_onnx_model() -> None:
    from tests.pytorch import require_torch

    torch = require_torch()
    model = whence.compile(_model(), threads=1)
    found = model(torch.nn.Parameter(torch.from_numpy(X)))
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [[0, 2]]


def test_without_pytorch_a_line_says_what_to_install(tmp_path: Path) -> None:
    program = tmp_path / "net.pt2"
    program.write_bytes(b"anything")
    code = f"""
import sys
import whence
from whence.errors import UnsupportedError
assert not [name for name in sys.modules if name == "torch" or name.startswith("torch.")]
sys.modules["torch"] = None
try:
    whence.load({str(program)!r})
except UnsupportedError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs PyTorch, which is not installed" in done.stdout
    assert done.stdout.strip().endswith("pip install 'whence[torch]'")
