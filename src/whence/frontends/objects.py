"""Models given as objects of other libraries, and files of no model that whence reads."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from whence.errors import InputError, UnsupportedError
from whence.frontends.naming import quoted
from whence.graph.graph import Graph
from whence.types import Dim

_TORCH = (
    "holds weights or a pickled module of PyTorch, not a graph: load it into its module, and give"
    " that to whence.compile(module, example_inputs), or export it:"
    " torch.export.save(torch.export.export(module.eval(), example_inputs), 'model.pt2')"
)
_KERAS = (
    "is a model of Keras: export it with model.export('model.onnx', format='onnx'), or as TFLite"
    " with tf.lite.TFLiteConverter.from_keras_model(model).convert()"
)
_OTHER_FORMATS = {
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".ckpt": _TORCH,
    ".bin": _TORCH,
    ".safetensors": "holds weights without a graph: load them into the module they belong to, and"
    " give that to whence.compile(module, example_inputs)",
    ".pb": "is a graph of TensorFlow: convert it with python -m tf2onnx.convert --saved-model"
    " FOLDER --output model.onnx, or as TFLite with tf.lite.TFLiteConverter",
    ".keras": _KERAS,
    ".h5": _KERAS,
    ".hdf5": _KERAS,
    ".mlmodel": "is a model of Core ML; whence reads what it was converted from",
    ".gguf": "holds weights of a language model; whence reads ONNX models of such",
}


def refuse_other_format(path: Path) -> None:
    """Raise for a file of a format that has to be exported first, and say how."""
    how = _OTHER_FORMATS.get(path.suffix.lower())
    if how is not None:
        raise UnsupportedError(f"{quoted(str(path))} {how}")


def read_object(model: Any, shapes: Mapping[str, Sequence[Dim]] | None = None) -> Graph:
    """The graph of a model in memory: the bytes of an ONNX, TFLite or Circle file, an
    `onnx.ModelProto`, an `onnx_ir.Model`, a `torch.export.ExportedProgram`.
    """
    if isinstance(model, bytes | bytearray | memoryview):
        return _read_bytes(bytes(model), shapes)
    kind = type(model)
    if _is_instance(model, "onnx", "ModelProto"):
        from whence.frontends.onnx.reader import read_onnx

        return read_onnx(model, shapes)
    if _is_instance(model, "onnx_ir", "Model"):
        import onnx_ir

        from whence.frontends.onnx.reader import read_onnx

        return read_onnx(onnx_ir.to_proto(model), shapes)
    if is_exported_program(model):
        from whence.frontends.torch.exported import read_exported

        return read_exported(model)
    if is_torch_module(model):
        raise InputError(
            "a module of PyTorch is compiled with example inputs: whence.compile(module, (x,))"
        )
    return _refuse(kind.__name__)


def is_exported_program(model: Any) -> bool:
    return _is_instance(model, "torch.export", "ExportedProgram")


def is_torch_module(model: Any) -> bool:
    return _is_instance(model, "torch.nn", "Module")


def _is_instance(model: Any, module: str, name: str) -> bool:
    """Is it of a class of a library that may not even be installed? Then nobody has made one."""
    loaded = sys.modules.get(module)
    kind = None if loaded is None else getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(model, kind)


def _read_bytes(data: bytes, shapes: Mapping[str, Sequence[Dim]] | None) -> Graph:
    # A flatbuffer of these formats names itself in bytes 4 to 8.
    if data[4:8] in (b"TFL3", b"CIR0"):
        from whence.frontends.tflite.reader import read_tflite

        return read_tflite(data, shapes=shapes)
    from whence.frontends.onnx.reader import read_onnx

    return read_onnx(data, shapes=shapes)


def _refuse(name: str) -> NoReturn:
    raise InputError(
        "a model is a path, the bytes of a file, an onnx.ModelProto, an onnx_ir.Model, a graph of"
        f" whence.load, or a module or exported program of PyTorch, not {name}"
    )
