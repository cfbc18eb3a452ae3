"""Scaled dot-product attention written out, on four-dimensional (batch, heads, sequence, size)
values.

1. softmax(s·Q·Kᵀ + M)·V = Attention(Q, K, V, M, scale=s)
2. V'·softmax(...)ᵀ = (softmax(...)·V'ᵀ)ᵀ, so that rule 1 applies
3. softmax(where(C, s·Q·Kᵀ, -∞))·V = Attention(Q, K, V, C, scale=s), with C true where a key is
   seen; -10⁴ will do for -∞ when C is constant and leaves every query a key

The scale may be a factor or divisor of the scores, of Q, of K, or be spread over them. Kᵀ is best a
Transpose, which then goes away; otherwise one is inserted. where(isnan(p), 0, p) behind the softmax
p is part of the pattern: with finite scores p is NaN only where a query sees no key at all, and
there Attention is 0 by definition. M may be missing. A constant M of zeros is dropped, and one that
hides exactly the keys after each query becomes `is_causal`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.graph.search import producer_of
from whence.ops.attributes import get_int
from whence.ops.definition import Attr, OpClass
from whence.passes.base import RulePass
from whence.passes.layout.axes import is_identity, last_two_swapped, perm_of
from whence.passes.operands import FLOATS, other_operand, scalar_factor
from whence.passes.pattern import (
    dtype_of,
    few_consumers,
    is_closed,
    only_user,
    same_dim,
    scalar,
    shape_of,
)
from whence.passes.recognise.attention_mask import Mask, mask_fits, mask_input, masked_scores
from whence.provenance import EdgeKind
from whence.types import Shape

_SWAP = last_two_swapped(4)


class _Weights(NamedTuple):
    """softmax(scores)·V, or V'·softmax(scores)ᵀ when `transposed`."""

    scores: Ref
    v: Ref
    transposed: bool
    precision: int
    """The type the softmax is computed in when the scores are cast for it, else 0."""
    root: Node
    nodes: tuple[Node, ...]


class _Scores(NamedTuple):
    """scale·Q·Kᵀ + mask"""

    q: Ref
    k_transposed: Ref
    scale: float
    mask: Mask | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RecogniseAttention(RulePass):
    """Find attention between four-dimensional values."""

    name = "recognise_attention"
    summary = "softmax(s·Q·Kᵀ + mask)·V becomes Attention"
    classes = OpClass.MATMUL
    anchors = frozenset({"Softmax"})

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        weights = _weights(graph, node)
        scores = None if weights is None else _scores(graph, weights.scores)
        if (
            weights is None
            or scores is None
            or not is_closed((*weights.nodes, *scores.nodes), weights.root)
        ):
            return
        # (batch, heads, queries, keys)
        shape = _score_shape(graph, weights, scores)
        if shape is not None and (
            scores.mask is None or mask_fits(graph, scores.mask, shape, dtype_of(graph, scores.q))
        ):
            _apply(rewriter, weights, scores, shape)


def _weights(graph: Graph, softmax: Node) -> _Weights | None:
    """From the softmax down to V."""
    shape, scores = shape_of(graph, softmax.ref()), softmax.first_input
    if shape is None or len(shape) != 4 or get_int(softmax.attrs, "axis", -1) not in {-1, 3}:
        return None
    nodes, top, precision = [softmax], softmax, 0
    guard = _nan_guard(graph, softmax)
    if guard:
        nodes += guard
        top = guard[-1]
    after, before = only_user(graph, top, "Cast"), producer_of(graph, scores, "Cast")
    # A softmax in a wider type: Attention has an attribute for that.
    if after is not None and before is not None:
        precision, scores, top = int(dtype_of(graph, scores)), before.first_input, after
        nodes += [before, after]
    transpose = only_user(graph, top, "Transpose")
    if transpose is not None and perm_of(graph, transpose) == _SWAP:
        nodes.append(transpose)
        top = transpose
    root = only_user(graph, top, "MatMul")
    v = None if root is None else other_operand(root, top.ref())
    transposed = top is transpose
    if root is None or v is None or root.inputs[int(transposed)] != top.ref():
        return None
    return _Weights(scores, v, transposed, precision, root, (*nodes, root))


def _nan_guard(graph: Graph, softmax: Node) -> list[Node]:
    """The operators of where(isnan(p), 0, p), p being the softmax, when they are all that reads
    it.
    """
    users = few_consumers(graph, softmax, 2) or []
    test = next((user for user in users if user.op == "IsNaN"), None)
    guard = next((user for user in users if user.op == "Where"), None)
    if (
        test is None
        or guard is None
        or scalar(graph, guard.operand("X")) != 0
        or guard.inputs[::2] != (test.ref(), softmax.ref())
    ):
        return []
    return [test, guard]


def _scores(graph: Graph, ref: Ref) -> _Scores | None:
    """From the argument of the softmax up to Q and K."""
    node = graph.producer(ref)
    nodes: list[Node] = []
    mask = None
    if node.is_a("Add", "Where"):
        masked = masked_scores(graph, node)
        if masked is None:
            return None
        ref, mask = masked
        nodes.append(node)
    scale, ref = _unscaled(graph, ref, nodes)
    product = producer_of(graph, ref, "MatMul")
    if product is None or dtype_of(graph, ref) not in FLOATS:
        return None
    nodes.append(product)
    q_scale, q = _unscaled(graph, product.first_input, nodes)
    k_scale, k = _unscaled(graph, product.required("B"), nodes)
    scale *= q_scale * k_scale
    # Runtimes multiply Q and K by the root of it.
    return _Scores(q, k, scale, mask, tuple(nodes)) if scale > 0 else None


def _unscaled(graph: Graph, ref: Ref, nodes: list[Node]) -> tuple[float, Ref]:
    """A number and what `ref` is that multiple of. A multiple that others read as well stays as it
    is.
    """
    node = graph.producer(ref)
    factor = scalar_factor(graph, node)
    if factor is None or len(node._uses) != 1:
        return 1.0, ref
    nodes.append(node)
    return factor[1], factor[0]


def _score_shape(graph: Graph, weights: _Weights, scores: _Scores) -> Shape | None:
    """(b, h, q, k), when Q, Kᵀ and V certainly are (b, h, q, d), (b, h, d, k) and (b, h, k, e)."""
    q = shape_of(graph, scores.q)
    k = shape_of(graph, scores.k_transposed)
    v = shape_of(graph, weights.v)
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) == 4:
        return None
    keys = v[3] if weights.transposed else v[2]
    equal = ((q[0], k[0]), (q[1], k[1]), (q[0], v[0]), (q[1], v[1]), (q[3], k[2]), (k[3], keys))
    return (*q[:3], k[3]) if all(same_dim(a, b) for a, b in equal) else None


def _apply(rewriter: Rewriter, weights: _Weights, scores: _Scores, shape: Shape) -> None:
    graph, root = rewriter.graph, weights.root
    transpose = producer_of(graph, scores.k_transposed, "Transpose")
    perm = None if transpose is None else perm_of(graph, transpose)
    nodes = [*scores.nodes, *weights.nodes]
    parts = list(nodes)
    # What of the Transpose of K is not the swap of the last two axes stays a Transpose.
    rest = None if perm is None else (perm[0], perm[1], perm[3], perm[2])
    if transpose is not None and rest is not None and is_closed([transpose, *nodes], root):
        nodes.append(transpose)
        parts += [transpose] if is_identity(rest) else []
    if scores.mask is not None and scores.mask.maker is not None:
        nodes.append(scores.mask.maker)
    # 1. softmax(s·Q·Kᵀ + M)·V = Attention(Q, K, V, M, s)
    edit = rewriter.edit(*nodes, rule="softmax(s·Q·Kᵀ + M)·V = Attention(Q, K, V, M, s)")
    if transpose is None or rest is None:
        k = _swap(edit, scores.k_transposed, root)
    else:
        k = transpose.first_input
        if not is_identity(rest):
            k = edit.node("Transpose", [k], {"perm": rest}, of=[transpose]).ref()
    attrs: dict[str, Attr] = {"scale": scores.scale}
    if weights.precision:
        attrs["softmax_precision"] = weights.precision
    mask = None
    if scores.mask is not None:
        mask = mask_input(graph, edit, scores.mask, scores.q, shape, attrs)
    v = _swap(edit, weights.v, root) if weights.transposed else weights.v
    result = edit.node("Attention", [scores.q, k, v, mask], attrs, of=parts).ref()
    # 2. V'·Pᵀ = (P·V'ᵀ)ᵀ
    edit.finish(root.ref(), _swap(edit, result, root) if weights.transposed else result)


def _swap(edit: Edit, ref: Ref, cause: Node) -> Ref:
    return edit.node("Transpose", [ref], {"perm": _SWAP}, of=[cause], kind=EdgeKind.INSERT).ref()
