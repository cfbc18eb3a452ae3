"""Explicit padding becomes the padding of the next operator, where that means the same."""

from __future__ import annotations

import numpy as np

from tests.graph.structure import structure
from whence.graph import Rewriter
from whence.graph.builder import GraphBuilder
from whence.passes.fold.fold_pad import FoldPad
from whence.types import DType


def test_amounts_must_be_constant() -> None:
    build = GraphBuilder()
    y = build.op(
        "Pad", build.input("x", DType.F32, [1, 1, 6, 6]), build.input("pads", DType.I64, [8])
    )
    build.output("y", build.op("Conv", y, build.const(np.ones((1, 1, 1, 1), np.float32))))
    graph = build.finish()
    text = structure(graph)
    # Random amounts cannot be run, so only the structure is compared.
    FoldPad().run(Rewriter(graph, FoldPad.name))
    assert structure(graph) == text
