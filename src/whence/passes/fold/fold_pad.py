"""Padding in front of an operator that can pad by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.search import producer_of
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.definition import Attr
from whence.ops.registry import one_of, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.origins import consts_with_origin
from whence.passes.parameters import limits, padding_of
from whence.passes.pattern import rank_of
from whence.types import DType


class _Padding(NamedTuple):
    """What a constant Pad does that touches spatial axes only."""

    data: Ref
    value: float
    begins: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FoldPad(RulePass):
    """Folds a Pad with constant amounts, none negative, on spatial axes only, into the padding of
    what reads it:

    1. zeros into Conv;
    2. zeros into AveragePool, which then counts its padding; not if it has padding that it does not
       count;
    3. minus infinity into MaxPool; so too any value that the padded data is certainly never below
       (zeros after a Relu).

    A pool keeps its padding smaller than its kernel, as runtimes demand. Other readers of the Pad
    keep reading it.
    """

    name = "fold_pad"
    summary = "fold explicit padding into convolutions and pools"
    anchors = one_of("Conv", "AveragePool", "MaxPool")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        pad = producer_of(graph, node.input(0), "Pad")
        padding = None if pad is None else _padding(graph, pad)
        if pad is None or padding is None or len(node.outputs) != 1:
            return
        attrs = _merged(node, padding)
        if attrs is None:
            return
        if node.op == "Conv":
            # conv(pad(x, 0)) = conv(x) with the pads added
            fits, rule = padding.value == 0, "conv(pad(x, 0)) = conv'(x)"
        elif node.op == "AveragePool":
            # avgpool(pad(x, 0)) = avgpool(x) with the pads added and counted
            fits, rule = (
                padding.value == 0 and _counts_padding(node),
                "avgpool(pad(x, 0)) = avgpool'(x)",
            )
            attrs["count_include_pad"] = 1
        else:
            # maxpool(pad(x, v)) = maxpool(x) with the pads added, if v is below every element
            fits = _is_never_the_maximum(graph, node, padding)
            rule = "maxpool(pad(x, v)) = maxpool'(x), v <= min(x)"
        if not fits:
            return
        edit = rewriter.edit(*consts_with_origin(graph, pad.inputs), pad, node, rule=rule)
        made = edit.node(
            node.op, (padding.data, *node.inputs[1:]), attrs, node.outputs, name=node.name
        )
        edit.finish(node, made)


def _padding(graph: Graph, node: Node) -> _Padding | None:
    data, given = node.first_input, node.operand("constant_value")
    rank = rank_of(graph, data)
    if not rank or get_str(node.attrs, "mode", "constant") != "constant":
        return None
    pads = padding_of(graph, node, rank)
    value = np.zeros(()) if given is None else graph.const_value(given)
    # A constant without a value means zero.
    if pads is None or value is None or value.size > 1:
        return None
    begins, ends = zip(*pads, strict=True)
    if any(begins[:2]) or any(ends[:2]) or min(*begins, *ends) < 0:
        return None
    return _Padding(data, float(value.reshape(-1)[0]) if value.size else 0.0, begins[2:], ends[2:])


def _merged(node: Node, padding: _Padding) -> dict[str, Attr] | None:
    """The node's attributes with the padding added to its own."""
    rank = len(padding.begins)
    auto_pad = get_str(node.attrs, "auto_pad", "NOTSET")
    own = (
        (0,) * (2 * rank)
        if auto_pad == "VALID"
        else get_ints(node.attrs, "pads", (0,) * (2 * rank))
    )
    # Automatic padding depends on the size of what it pads.
    if auto_pad not in {"NOTSET", "VALID", ""} or len(own) != 2 * rank:
        return None
    pads = tuple(
        mine + added for mine, added in zip(own, (*padding.begins, *padding.ends), strict=True)
    )
    if node.op in operators(Trait.POOLS_WINDOWS):
        kernel = get_ints(node.attrs, "kernel_shape")
        # With ceil_mode the number of windows depends on where the data ends and the padding
        # begins.
        if (
            get_int(node.attrs, "ceil_mode", 0)
            or len(kernel) != rank
            or any(pad >= size for pad, size in zip(pads, kernel * 2, strict=True))
        ):
            return None
    return {
        **{name: value for name, value in node.attrs.items() if name != "auto_pad"},
        "pads": pads,
    }


def _counts_padding(node: Node) -> bool:
    has_own = get_str(node.attrs, "auto_pad", "NOTSET") != "VALID" and any(
        get_ints(node.attrs, "pads")
    )
    return bool(get_int(node.attrs, "count_include_pad", 0)) or not has_own


def _is_never_the_maximum(graph: Graph, node: Node, padding: _Padding) -> bool:
    kind = graph.tensor_type(padding.data)
    if kind is not None and kind.dtype.is_integer:
        return padding.value == {DType.I8: -128, DType.U8: 0}.get(kind.dtype)
    if padding.value == -np.inf:
        return True
    # Padding is smaller than the kernel, so without dilation every window holds an element of the
    # data.
    return padding.value <= _lower_bound(graph, padding.data) and all(
        step == 1 for step in get_ints(node.attrs, "dilations")
    )


def _lower_bound(graph: Graph, ref: Ref) -> float:
    """A number that no element is below; minus infinity when nothing is known. A NaN is neither,
    and wins over any padding.
    """
    node = graph.producer(ref)
    if node.op in operators(Trait.NOT_NEGATIVE):
        return 0.0
    ends = limits(graph, node) if node.op == "Clip" else None
    # The upper bound wins where the two contradict each other.
    return -np.inf if ends is None else min(ends)
