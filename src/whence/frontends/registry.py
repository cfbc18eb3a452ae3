"""Which reader reads a model: a file by its ending, or by how its content begins; an object of
another library by its class.

whence's own readers are found without a search. Other files are offered to the frontends of
plugins; what none of them knows is read as ONNX, whatever it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from whence.errors import InputError, ModelError, UnsupportedError, WhenceError
from whence.frontends.naming import quoted
from whence.plugins import FRONTENDS, Plugin, load_plugins, warn_left_out
from whence.types import Dim

if TYPE_CHECKING:
    from whence.graph import Graph

Shapes = Mapping[str, Sequence[Dim]]


class Reader(Protocol):
    """Reads a model file. `shapes` fixes the shapes of inputs that the file leaves open."""

    def __call__(self, path: Path, /, *, shapes: Shapes | None = None) -> Graph: ...


@dataclass(frozen=True, slots=True)
class Frontend:
    """A format of model files."""

    name: str
    suffixes: tuple[str, ...]
    """In small letters, with their dot."""
    read: Reader
    magic: bytes = b""
    """The bytes that files of this format begin with; empty where the ending has to do."""


def find_reader(path: Path) -> Reader:
    """What reads this file."""
    own = _OWN.get(path.suffix.lower())
    if own is not None:
        return own()
    found = find_plugin(path)
    if found is not None:
        return _named_reader(*found)
    # Files of other formats have to be exported first.
    how = _OTHER_FORMATS.get(path.suffix.lower())
    if how is not None:
        raise UnsupportedError(f"{quoted(str(path))} {how}")
    return _onnx()


def find_plugin(path: Path) -> tuple[Plugin, Frontend] | None:
    """The plugin that reads this file; `None` for a format of whence's own."""
    suffix = path.suffix.lower()
    if suffix in _OWN:
        return None
    frontends = _plugins()
    for plugin, each in frontends:
        if suffix in each.suffixes:
            return plugin, each
    longest = max((len(each.magic) for _, each in frontends), default=0)
    begin = _begin(path, longest) if longest else b""
    for plugin, each in frontends:
        if each.magic and begin.startswith(each.magic):
            return plugin, each
    return None


def _named_reader(plugin: Plugin, frontend: Frontend) -> Reader:
    """The plugin's reader. What it raises that is not meant for the user is told as its failure."""

    def read(path: Path, /, *, shapes: Shapes | None = None) -> Graph:
        try:
            return frontend.read(path, shapes=shapes)
        except (WhenceError, MemoryError, RecursionError, OSError):
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ModelError(f"'{path}' cannot be read: {plugin} fails with {why}") from error

    return read


def _begin(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError:
        # The reader will say so, in its own words.
        return b""


def _plugins() -> list[tuple[Plugin, Frontend]]:
    found = []
    for plugin, loaded in load_plugins(FRONTENDS):
        if isinstance(loaded, Frontend):
            found.append((plugin, loaded))
        else:
            kind = type(loaded).__name__
            warn_left_out(plugin, f"it is a {kind}, not a whence.frontends.registry.Frontend")
    return found


def _onnx() -> Reader:
    from whence.frontends.onnx.reader import read_onnx

    return read_onnx


def _tflite() -> Reader:
    from whence.frontends.tflite.reader import read_tflite

    return read_tflite


def _exported() -> Reader:
    from whence.frontends.torch.exported import load_exported, read_exported

    def read(path: Path, /, *, shapes: Shapes | None = None) -> Graph:
        # Open sizes are fixed when the graph is there.
        return read_exported(load_exported(path), name=path.stem)

    return read


_OWN: Mapping[str, Callable[[], Reader]] = {
    ".onnx": _onnx,
    ".tflite": _tflite,
    ".lite": _tflite,
    ".circle": _tflite,
    ".pt2": _exported,
}

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


def read_object(model: Any, shapes: Shapes | None = None) -> Graph:
    """The graph of a model in memory: the bytes of an ONNX, TFLite or Circle file, an
    `onnx.ModelProto`, an `onnx_ir.Model`, a `torch.export.ExportedProgram`.
    """
    if isinstance(model, bytes | bytearray | memoryview):
        model = bytes(model)
        # A flatbuffer of these formats names itself in bytes 4 to 8.
        if model[4:8] in (b"TFL3", b"CIR0"):
            from whence.frontends.tflite.reader import read_tflite

            return read_tflite(model, shapes=shapes)
    elif _is_instance(model, "onnx_ir", "Model"):
        import onnx_ir

        model = onnx_ir.to_proto(model)
    if isinstance(model, bytes) or _is_instance(model, "onnx", "ModelProto"):
        from whence.frontends.onnx.reader import read_onnx

        return read_onnx(model, shapes)
    if is_exported_program(model):
        from whence.frontends.torch.exported import read_exported

        return read_exported(model)
    if is_torch_module(model):
        raise InputError(
            "a module of PyTorch is compiled with example inputs: whence.compile(module, (x,))"
        )
    raise InputError(
        "a model is a path, the bytes of a file, an onnx.ModelProto, an onnx_ir.Model, a graph of"
        " whence.load, or a module or exported program of PyTorch, not"
        f" {type(model).__name__}"
    )


def is_exported_program(model: Any) -> bool:
    return _is_instance(model, "torch.export", "ExportedProgram")


def is_torch_module(model: Any) -> bool:
    return _is_instance(model, "torch.nn", "Module")


def _is_instance(model: Any, module: str, name: str) -> bool:
    """Is it of a class of a library that may not even be installed? Then nobody has made one."""
    loaded = sys.modules.get(module)
    kind = None if loaded is None else getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(model, kind)
