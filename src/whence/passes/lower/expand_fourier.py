"""Fourier transforms in front of a product become part of its weights.

1. real(rfft(x)) · B = x · A, where A[t] = Σ_bin cos(2π · bin · t / length) · B[bin]
   imag(rfft(x)) · B = x · A, where A[t] = -Σ_bin sin(2π · bin · t / length) · B[bin]

Spectrograms of models for sound are such: a few dozen filters of a linear transform are a product
with a few dozen columns, which takes less than the fast transform alone. A is the transform of B
itself, computed in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from whence.graph import Graph, Node, Rewriter
from whence.graph.maker import Maker
from whence.graph.search import producer_of
from whence.ops.attributes import get_int
from whence.ops.registry import one_of, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.origins import consts_with_origin
from whence.passes.parameters import only_multiplies
from whence.passes.pattern import only_user, static_shape_of
from whence.provenance import EdgeKind
from whence.types import DType

_RULE = "part of a transform, times weights = a product with transformed weights"
_PARTS = one_of("RealPart", "ImaginaryPart")
_VIEWS = operators(Trait.VIEW)
_MOST_COLUMNS = 256
"""With more, the fast transform is worth its name."""


@dataclass(frozen=True, slots=True)
class ExpandFourier(RulePass):
    name = "expand_fourier"
    summary = "Fourier transforms in front of a product become part of its weights"
    anchors = one_of("Gemm", "MatMul")

    def why_skip(self, graph: Graph) -> str:
        return RulePass.why_skip(self, graph) or (
            "" if "RealFourier2D" in graph.op_counts else "no RealFourier2D"
        )

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        weights, chain = _weights(graph, node), _chain(graph, node)
        if weights is None or not chain:
            return
        fourier, part = chain[0], next(each for each in chain if each.op in _PARTS)
        lengths = graph.const_value(fourier.operand("fft_length"))
        signal, data, result = (
            static_shape_of(graph, ref) for ref in (fourier.inputs[0], node.inputs[0], node.ref())
        )
        if (
            not signal
            or not data
            or result is None
            or lengths is None
            or signal[-2:] != tuple(lengths.reshape(-1).tolist())
            or signal[-2] != 1
            or data[-1] != len(weights)
            or len(weights) != signal[-1] // 2 + 1
            or weights.shape[1] > _MOST_COLUMNS
        ):
            return
        length = signal[-1]
        # Σ_bin B[bin] · exp(-2πi · bin · t / length) is the transform of B at t.
        waves = np.fft.fft(weights.astype(np.float64), length, axis=0)
        columns = (waves.real if part.op == "RealPart" else waves.imag).astype(np.float32)
        edit = rewriter.edit(*chain, node, rule=_RULE, kind=EdgeKind.FUSE)
        parents = (*consts_with_origin(graph, node.inputs), *chain, node)
        make = Maker(edit, parents)
        rows = edit.sizes([math.prod(signal[:-1]), length])
        frames = make("Reshape", fourier.inputs[0], rows)
        product = make("MatMul", frames, columns)
        bias = node.operand("C")
        if bias is not None:
            product = make("Add", product, bias)
        edit.finish(node.ref(), make("Reshape", product, edit.sizes(result)))


def _chain(graph: Graph, node: Node) -> list[Node]:
    """The transform, and what stands between it and the product: a part, and views. Empty where it
    is not so, or others read any of it.
    """
    found: list[Node] = []
    reader = node
    while True:
        each = producer_of(graph, reader.inputs[0], _PARTS | _VIEWS | {"RealFourier2D"})
        if each is None or only_user(graph, each) is not reader:
            return []
        found.insert(0, each)
        if each.op == "RealFourier2D":
            return found if sum(other.op in _PARTS for other in found) == 1 else []
        reader = each


def _weights(graph: Graph, node: Node) -> np.ndarray | None:
    """The constant right side of a product of two matrices, as it is multiplied."""
    value: np.ndarray | None = graph.const_value(node.operand("B"))
    if value is None or value.ndim != 2 or value.dtype != DType.F32.numpy:
        return None
    if not only_multiplies(node):
        return None
    return value.transpose() if get_int(node.attrs, "transB", 0) else value
