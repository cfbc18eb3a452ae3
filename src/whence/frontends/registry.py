"""Which reader reads a file: by its ending, or by how its content begins.

whence's own readers are found without a search. Other files are offered to the frontends of
plugins; what none of them knows is read as ONNX, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from whence.errors import ModelError, WhenceError
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
    from whence.frontends.objects import refuse_other_format

    refuse_other_format(path)
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
