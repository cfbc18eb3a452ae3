"""The engines that can be profiled, and whether they are here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata, util
from typing import NamedTuple

from whence.errors import InputError, UnsupportedError


class EngineKind(NamedTuple):
    package: str
    """What its version is asked of."""
    extra: str
    """Of whence, that installs it."""
    module: str
    suffixes: tuple[str, ...]
    """The files that it reads."""


ENGINES: Mapping[str, EngineKind] = {
    "onnxruntime": EngineKind("onnxruntime", "onnxruntime", "onnxruntime", (".onnx",)),
    "openvino": EngineKind("openvino", "openvino", "openvino", (".onnx",)),
    "inductor": EngineKind("torch", "torch", "torch", (".pt2",)),
    "litert": EngineKind("ai-edge-litert", "litert", "ai_edge_litert", (".tflite", ".lite")),
}


def available() -> dict[str, str]:
    """The engines that are installed, with their versions."""
    return {
        name: _version(kind.package)
        for name, kind in ENGINES.items()
        if util.find_spec(kind.module) is not None
    }


def check_engine(name: str, suffix: str) -> None:
    """Refuse an engine that is unknown, not installed, or does not read such a file."""
    if name not in ENGINES:
        raise InputError(f"there is no engine '{name}'; there is {', '.join(ENGINES)}")
    kind = ENGINES[name]
    if util.find_spec(kind.module) is None:
        raise UnsupportedError(
            f"engine {name} is not installed: pip install 'whence[{kind.extra}]'"
        )
    if suffix.lower() not in kind.suffixes:
        raise UnsupportedError(f"{name} reads {' and '.join(kind.suffixes)} files, not '{suffix}'")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
