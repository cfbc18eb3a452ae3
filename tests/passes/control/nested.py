"""Graphs with nested graphs, written as ONNX text and read as any model is."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser

from whence.frontends.onnx.reader import read_onnx
from whence.graph import Graph


def read_text(text: str, folder: Path) -> Graph:
    """The graph of a model given in the text form of the `onnx` package. Each operator's source
    name is its first output's.
    """
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return read_onnx(path)
