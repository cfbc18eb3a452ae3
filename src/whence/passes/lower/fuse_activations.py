"""Supernodes: a convolution or matrix product together with what is added to its sum and applied to
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.search import is_single_consumer, producer_of, unique_consumer
from whence.ops.attributes import get_float, get_int, get_str
from whence.ops.definition import Attr
from whence.ops.neural.activation import ACTIVATIONS
from whence.ops.neural.fused import FUSED_ACTIVATIONS
from whence.ops.registry import REGISTRY, form_of, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.layout.axes import last_two_swapped, perm_of
from whence.passes.operands import (
    is_addition,
    is_exact_attribute,
    is_float,
    other_operand,
    same_shape,
    scalar_factor,
)
from whence.passes.origins import consts_with_origin
from whence.passes.parameters import limits
from whence.passes.pattern import dtype_of, only_user, rank_of, same_dim
from whence.types import Shape

_SUPERNODES = operators(Trait.FUSED) - operators(Trait.BLOCKED)
_SCALES = operators(Trait.SCALES)


@dataclass(frozen=True, slots=True)
class FuseActivations(RulePass):
    """Makes FusedConv, FusedConvTranspose, FusedGemm and FusedMatMul out of an operator and its
    surroundings, as far as they go:

    1. MatMul: transposes of the last two axes of an operand, and constant numbers times an operand
       or the result;
    2. Conv and ConvTranspose: the addition of a value of the same shape; MatMul: that, or the
       addition of a constant vector;
    3. all: the activation of the sum.

    Each value on the way must have no other use, except that a transpose may be shared. An operator
    with nothing to take in stays. The supernode stands where the last node it replaces stood, after
    everything that any of them read, so it can always be placed.
    """

    name = "fuse_activations"
    summary = "fuse convolutions and products with bias, residual and activation into supernodes"
    anchors = _SUPERNODES | {REGISTRY[name].plain for name in _SUPERNODES}

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        if get_str(node.attrs, "activation", "") or not is_float(graph, node.ref()):
            return
        plan = _Plan(
            form_of(node.op, Trait.FUSED) or node.op,
            list(node.inputs),
            dict(node.attrs),
            [node],
            node,
        )
        if plan.op == "FusedMatMul":
            _take_operands(graph, plan)
            _take_factor(graph, plan)
        _take_addition(graph, plan)
        _take_activation(graph, plan)
        if len(plan.matched) == 1:
            return
        absorbed = [ref for each in plan.matched for ref in each.inputs if ref not in plan.inputs]
        edit = rewriter.edit(
            *consts_with_origin(graph, absorbed),
            *plan.matched,
            rule=f"{'·'.join(plan.composition)} = {plan.op}",
        )
        made = edit.node(plan.op, plan.inputs, plan.attrs, plan.last.outputs, name=node.name)
        edit.finish(plan.last, made)


@dataclass(slots=True)
class _Plan:
    """A supernode in the making."""

    op: str
    inputs: list[Ref | None]
    attrs: dict[str, Attr]
    matched: list[Node]
    last: Node
    """The matched node whose result the supernode computes so far."""

    @property
    def composition(self) -> list[str]:
        """The operators in the order in which they apply, as mathematicians write them: the first
        on the right.
        """
        return [node.op for node in reversed(self.matched)]

    def take(self, *nodes: Node) -> None:
        self.matched.extend(nodes)
        self.last = nodes[-1]


def _take_operands(graph: Graph, plan: _Plan) -> None:
    for index, flag in enumerate(("trans_a", "trans_b")):
        reader, shared = plan.last, False
        value: Ref | None
        while not shared:
            ref = plan.inputs[index]
            transpose = producer_of(graph, ref, "Transpose")
            scaling = producer_of(graph, ref, _SCALES)
            if transpose is not None and _swaps_last_two(graph, transpose):
                # matmul(transpose(a), b) = matmul with trans_a transposed over; likewise b
                plan.attrs[flag] = 1 - get_int(plan.attrs, flag, 0)
                shared = not is_single_consumer(graph, transpose, reader)
                reader, value = transpose, transpose.first_input
            elif (
                scaling is not None
                and is_single_consumer(graph, scaling, reader)
                and (value := _take_number(graph, plan, scaling)) is not None
            ):
                # matmul(s·a, b) = s·matmul(a, b)
                reader = scaling
            else:
                break
            plan.matched.insert(0, reader)
            plan.inputs[index] = value


def _swaps_last_two(graph: Graph, transpose: Node) -> bool:
    rank = rank_of(graph, transpose.inputs[0])
    return rank is not None and rank > 1 and perm_of(graph, transpose) == last_two_swapped(rank)


def _take_number(graph: Graph, plan: _Plan, scaling: Node) -> Ref | None:
    """Multiply alpha by the constant number that the node multiplies by, if it is one that alpha
    can hold; returns what the node multiplies.
    """
    found = scalar_factor(graph, scaling)
    if found is None:
        return None
    alpha = get_float(plan.attrs, "alpha", 1.0) * found[1]
    if not is_exact_attribute(alpha, dtype_of(graph, scaling.ref())):
        return None
    plan.attrs["alpha"] = alpha
    return found[0]


def _take_factor(graph: Graph, plan: _Plan) -> None:
    # s·matmul(a, b) = matmul with s·alpha, before anything is added
    while len(plan.inputs) < 3:
        scaling = unique_consumer(graph, plan.last, _SCALES)
        if scaling is None or _take_number(graph, plan, scaling) is None:
            return
        plan.take(scaling)


def _take_addition(graph: Graph, plan: _Plan) -> None:
    # FusedGemm has no operand that is added whole.
    place = REGISTRY[plan.op].operands.positions.get("Z")
    addition = only_user(graph, plan.last, operators(Trait.ADDS))
    if place is None or len(plan.inputs) > place or addition is None or not is_addition(addition):
        return
    addend = other_operand(addition, plan.last.ref())
    kind, total = graph.tensor_type(addend), graph.tensor_type(plan.last.ref())
    if kind is None or total is None:
        return
    is_vector = (
        plan.op == "FusedMatMul"
        and graph.const_value(addend) is not None
        and _is_row(kind.shape, total.shape)
    )
    # conv(x, w, b) + z = FusedConv(x, w, b, z); matmul(a, b) + c = FusedMatMul(a, b, c)
    if is_vector or same_shape(kind, total):
        plan.inputs.extend([None] * (place - len(plan.inputs)))
        plan.inputs.append(addend)
        plan.take(addition)


def _is_row(shape: Shape | None, total: Shape | None) -> bool:
    """Does a value of `shape` vary along the last axis of one of shape `total` only?"""
    if not shape or not total or len(shape) > len(total):
        return False
    return all(same_dim(dim, 1) for dim in shape[:-1]) and same_dim(shape[-1], total[-1])


def _take_activation(graph: Graph, plan: _Plan) -> None:
    # act(sum) is the supernode's own last step
    found = _activation_after(graph, plan.last)
    if found is None:
        return
    plan.attrs["activation"] = found.name
    if found.alpha is not None:
        plan.attrs["activation_alpha"] = found.alpha
    if found.beta is not None:
        plan.attrs["activation_beta"] = found.beta
    plan.take(*found.nodes)


class _Activation(NamedTuple):
    """A function that a supernode can apply to its sum, under the name and the two numbers that
    supernodes know it by.
    """

    name: str
    alpha: float | None
    beta: float | None
    nodes: tuple[Node, ...]
    """One operator, or a gate x·g(x); the last makes the result."""


def _activation_after(graph: Graph, node: Node) -> _Activation | None:
    """The activation that is all that ever happens to output 0 of `node`, or `None`."""
    consumer = only_user(graph, node)
    if consumer is not None:
        return _single(graph, consumer) if consumer.input(0) == node.ref() else None
    return _gate(graph, node)


def _single(graph: Graph, node: Node) -> _Activation | None:
    name = node.op
    if name == "Gelu" and get_str(node.attrs, "approximate", "none") == "tanh":
        name = "GeluTanh"
    if name == "Clip":
        ends = limits(graph, node)
        return None if ends is None else _Activation("Clip", *ends, (node,))
    if name == "PRelu":
        return _prelu(graph, node)
    if name not in FUSED_ACTIVATIONS:
        return None
    known = ACTIVATIONS[name]
    alpha = None if known.alpha is None else get_float(node.attrs, "alpha", known.alpha)
    beta = None if known.beta is None else get_float(node.attrs, "beta", known.beta)
    return _Activation(name, alpha, beta, (node,))


def _prelu(graph: Graph, node: Node) -> _Activation | None:
    """One slope for all elements is LeakyRelu."""
    slope, rank = graph.const_value(node.operand("slope")), rank_of(graph, node.input(0))
    if slope is None or slope.size != 1 or rank is None or slope.ndim > rank:
        return None
    return _Activation("LeakyRelu", float(slope.reshape(())), None, (node,))


def _gate(graph: Graph, node: Node) -> _Activation | None:
    """x·sigmoid(x) and x·hardsigmoid(x), where `node` makes x and nothing else reads x or the
    gate.
    """
    consumers = graph.consumers(node)
    if len(consumers) != 2:
        return None
    gate, product = consumers
    if (
        gate.inputs != (node.ref(),)
        or product.op != "Mul"
        or other_operand(product, node.ref()) != gate.ref()
    ):
        return None
    if not is_single_consumer(graph, gate, product):
        return None
    if gate.op == "Sigmoid":
        return _Activation("Swish", 1.0, None, (gate, product))
    if gate.op == "HardSigmoid":
        alpha, beta = get_float(gate.attrs, "alpha", 0.2), get_float(gate.attrs, "beta", 0.5)
        if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
            return _Activation("HardSwish", None, None, (gate, product))
    return None
