"""Linear operators with constant weights, and how their constants take in an affine map that stands
before or after them.

Conv, ConvTranspose (channels last as well), Gemm and MatMul are all seen as y = W·x + b over
channels: groups of (outputs × inputs) matrices, one for each position of the kernel. Arithmetic is
in float64 and rounded once, to the type of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.graph.search import unique_consumer
from whence.ops.attributes import get_float, get_int, get_ints, get_str
from whence.ops.neural.channels_last import plain_name
from whence.passes.operands import CONVOLUTIONS, FLOATS, PRODUCTS
from whence.passes.origins import consts_with_origin
from whence.passes.pattern import rank_of
from whence.types import DType, Shape, ValueType

LINEAR_OPS = CONVOLUTIONS | PRODUCTS


@dataclass(frozen=True, slots=True)
class Affine:
    """x ↦ scale · x + shift. Both in float64, each one number or one per channel."""

    scale: np.ndarray
    shift: np.ndarray

    @property
    def scales(self) -> bool:
        return bool(np.any(self.scale != 1))

    @property
    def shifts(self) -> bool:
        return bool(np.any(self.shift != 0))


@dataclass(frozen=True, slots=True)
class FoldedConstants:
    """The constants of a linear operator after folding; `None` leaves what the operator has."""

    weights: np.ndarray | None
    bias: np.ndarray | None


@dataclass(frozen=True, slots=True)
class Linear:
    """One application of a linear operator to its input 0, with constant weights and a constant
    bias or none.
    """

    node: Node
    weights: np.ndarray
    bias: np.ndarray | None
    """One number per output channel, in float64, as it is added."""
    groups: int
    n_in: int
    n_out: int
    rank: int
    """The rank of input 0 and of the output."""
    in_axis: int
    """The axis of input 0 that the input channels lie on."""
    out_axis: int
    """The axis of the output that the output channels lie on."""
    inputs_first: bool
    """Whether the weights have their input channels before their output channels."""
    padded: bool
    """Whether some output sums fewer terms than others, so that a shift of the input is not a shift
    of the output.
    """

    @property
    def holds_bias(self) -> bool:
        """Can the operator, or the Gemm it turns into, add a bias itself?"""
        return self.node.op != "MatMul" or self.rank == 2

    def after(self, affine: Affine) -> FoldedConstants | None:
        """The constants that make the operator compute `affine` of its output. `None` when they are
        not finite numbers.
        """
        # s·(W·x + b) + t = (s·W)·x + (s·b + t)
        weights = None
        if affine.scales:
            # In float64, rounded once; NumPy does that a few thousand elements at a time, where a
            # copy in float64 would be twice as large as the weights.
            weights = np.empty(self.weights.shape, self.weights.dtype)
            with np.errstate(all="ignore"):
                np.multiply(
                    self._matrices(self.weights),
                    self._spread(affine.scale, self.n_out)[:, :, np.newaxis, np.newaxis],
                    out=self._matrices(weights),
                    dtype=np.float64,
                    casting="unsafe",
                )
        return self._finite(
            weights, affine.shift if self.bias is None else self.bias * affine.scale + affine.shift
        )

    def before(self, affine: Affine) -> FoldedConstants | None:
        """The constants that make the operator apply `affine` to its input first. `None` when there
        are none, or not finite ones.
        """
        # W·(s·x + t) + b = (W·s)·x + (W·t + b)
        if self.padded and affine.shifts:
            return None
        weights = np.array(self.weights, dtype=np.float64, order="C")
        alpha = get_float(self.node.attrs, "alpha", 1.0) if self.node.op == "Gemm" else 1.0
        moved = alpha * np.einsum(
            "goip,gi->go", self._matrices(weights), self._spread(affine.shift, self.n_in)
        ).reshape(-1)
        self._matrices(weights)[...] *= self._spread(affine.scale, self.n_in)[
            :, np.newaxis, :, np.newaxis
        ]
        with np.errstate(all="ignore"):
            rounded = weights.astype(self.weights.dtype) if affine.scales else None
        return self._finite(rounded, moved if self.bias is None else self.bias + moved)

    def _matrices(self, weights: np.ndarray) -> np.ndarray:
        """A view of an array like the weights as (group, output, input, position)."""
        outputs, inputs = self.n_out // self.groups, self.n_in // self.groups
        if self.inputs_first:
            return weights.reshape(self.groups, inputs, outputs, -1).swapaxes(1, 2)
        return weights.reshape(self.groups, outputs, inputs, -1)

    def _spread(self, vector: np.ndarray, channels: int) -> np.ndarray:
        """One number per channel, as (group, channel of the group)."""
        return np.broadcast_to(vector, (channels,)).reshape(self.groups, -1)

    def _finite(self, weights: np.ndarray | None, bias: np.ndarray) -> FoldedConstants | None:
        """New weights, if any, and the new bias, in float64; unless some are not finite."""
        with np.errstate(all="ignore"):
            new_bias = np.broadcast_to(bias, (self.n_out,)).astype(self.weights.dtype)
        # A scale that drives a weight out of its type's range would turn finite outputs into
        # infinities.
        if not np.isfinite(new_bias).all() or (
            weights is not None and not np.isfinite(weights).all()
        ):
            return None
        return FoldedConstants(
            weights, None if self.bias is None and not np.any(bias) else new_bias
        )


def linear_of(graph: Graph, node: Node) -> Linear | None:
    """The node as a linear operator, or `None` when it is none or its weights or bias are not
    constant floats.
    """
    weights = graph.const_value(node.operand("W", "B"))
    if (
        node.op not in LINEAR_OPS
        or not isinstance(weights, np.ndarray)
        or weights.size == 0
        or DType.of(weights) not in FLOATS
    ):
        return None
    linear = (_convolution if node.op in CONVOLUTIONS else _product)(graph, node, weights)
    ref = _bias(node)
    if linear is None or ref is None:
        return linear
    bias = _row(graph.const_value(ref), linear.n_out)
    # Of these operators, only Gemm has a factor for it.
    beta = get_float(node.attrs, "beta", 1.0)
    return None if bias is None else replace(linear, bias=bias * beta)


def _bias(node: Node) -> Ref | None:
    return node.operand("B") if node.op in CONVOLUTIONS else node.operand("C")


def _product(graph: Graph, node: Node, weights: np.ndarray) -> Linear | None:
    rank = rank_of(graph, node.input(0))
    if weights.ndim != 2 or rank is None or rank < 2:
        return None
    is_gemm = node.op == "Gemm"
    outputs_first = is_gemm and bool(get_int(node.attrs, "transB", 0))
    in_axis = 0 if is_gemm and get_int(node.attrs, "transA", 0) else rank - 1
    n_in, n_out = weights.shape[::-1] if outputs_first else weights.shape
    inputs_first, padded = not outputs_first, False
    return Linear(
        node, weights, None, 1, n_in, n_out, rank, in_axis, rank - 1, inputs_first, padded
    )


def _convolution(graph: Graph, node: Node, weights: np.ndarray) -> Linear | None:
    groups = get_int(node.attrs, "group", 1)
    transposed = plain_name(node.op) == "ConvTranspose"
    n_in, n_out = (
        (weights.shape[0], weights.shape[1] * groups)
        if transposed
        else (weights.shape[1] * groups, weights.shape[0])
    )
    if weights.ndim < 3 or groups < 1 or n_in % groups or n_out % groups:
        return None
    padded = transposed or _is_padded(node, weights.shape[2:])
    axis = 1 if node.op == plain_name(node.op) else weights.ndim - 1
    return Linear(
        node, weights, None, groups, n_in, n_out, weights.ndim, axis, axis, transposed, padded
    )


def _is_padded(node: Node, kernel: Sequence[int]) -> bool:
    auto_pad = get_str(node.attrs, "auto_pad", "NOTSET")
    if auto_pad == "VALID":
        return False
    if auto_pad in {"SAME_UPPER", "SAME_LOWER"}:
        return math.prod(kernel) != 1
    return any(get_ints(node.attrs, "pads"))


def _row(value: np.ndarray | None, size: int) -> np.ndarray | None:
    """A constant that varies over the last axis only, as a float64 vector of `size`."""
    if (
        value is None
        or value.size == 0
        or math.prod(value.shape[:-1]) != 1
        or value.size not in {1, size}
    ):
        return None
    return np.broadcast_to(value.reshape(-1).astype(np.float64), (size,))


def along_axis(
    value: np.ndarray, shape: Shape | None, rank: int, axis: int, size: int
) -> np.ndarray | None:
    """`value` as one number, or one for each of `size` channels on `axis`, in float64.

    `None` when it varies along another axis of a tensor of `rank`, or when combining it with one of
    `shape` would change that shape.
    """
    if value.size == 0 or value.ndim > rank:
        return None
    value = value.reshape((1,) * (rank - value.ndim) + value.shape)
    for other in range(rank):
        if other == axis or value.shape[other] == 1:
            continue
        first = value.take([0], axis=other)
        is_uniform = np.array_equal(np.broadcast_to(first, value.shape), value)
        if (
            not is_uniform
            or shape is None
            or len(shape) != rank
            or shape[other] != value.shape[other]
        ):
            return None
        value = first
    if value.shape[axis] not in {1, size}:
        return None
    return value.reshape(() if value.size == 1 else (-1,)).astype(np.float64)


def linear_after(graph: Graph, node: Node) -> Linear | None:
    """The linear operator that works on the result of `node`, when nothing else reads that."""
    consumer = unique_consumer(graph, node, LINEAR_OPS)
    reads_it = consumer is not None and consumer.input(0) == node.ref()
    return linear_of(graph, consumer) if consumer is not None and reads_it else None


def fold_into_consumer(
    rewriter: Rewriter, node: Node, x: Ref, affine: Affine, linear: Linear, rule: str
) -> bool:
    """Let `linear` read `x`, and its constants do what `node`, which stands between, does to it.
    True when they can.
    """
    constants = linear.before(affine)
    if constants is None:
        return False
    edit = rewriter.edit(linear.node, rule=rule, folded=(node,))
    made = rebuild(edit, linear, constants, node, x, linear.node.outputs)
    return edit.finish(linear.node, made)


def rebuild(
    edit: Edit,
    linear: Linear,
    constants: FoldedConstants,
    folded: Node,
    x: Ref,
    types: Sequence[ValueType],
) -> Node:
    """The linear operator once more, on `x` and with constants that `folded` went into. A MatMul
    that gains a bias becomes a Gemm.

    It comes from both, and from what made the constants that it no longer reads.
    """
    node = linear.node
    of = (node, folded)
    op, attrs = node.op, dict(node.attrs)
    inputs = [x, node.operand("W", "B"), _bias(node)]
    if constants.weights is not None:
        inputs[1] = edit.const(constants.weights, name=_const_name(edit.graph, node, 1))
    if constants.bias is not None:
        op = "Gemm" if op == "MatMul" else op
        # The bias is stated as it is added.
        attrs.pop("beta", None)
        inputs[2] = edit.const(constants.bias, name=_const_name(edit.graph, node, 2))
    gone = [
        ref
        for parent in of
        for ref in parent.inputs[1 if parent is node else 0 :]
        if ref not in inputs
    ]
    return edit.node(
        op, inputs, attrs, types, of=(*consts_with_origin(edit.graph, gone), *of), name=node.name
    )


def _const_name(graph: Graph, node: Node, index: int) -> str:
    ref = node.input(index)
    return "" if ref is None else graph.producer(ref).name
