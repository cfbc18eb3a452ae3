"""Operators that choose and move numbers do the same to their codes, when all are coded alike.

1. q(f(dq(x), dq(y), ...)) = f(x, y, ...), f being one of `ON_CODES`
2. for Concat, parts that are coded differently are brought to the coding of the result by a table
   first
3. max_pool of codes is taken channels last, where convolutions of codes are
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.edit import Edit
from whence.ops.attributes import get_str
from whence.ops.operand import OperandKind
from whence.ops.quantised.quantise import integer_range, round_away
from whence.ops.registry import REGISTRY, operators
from whence.ops.traits import Trait
from whence.passes.layout.axes import in_other_order, to_last
from whence.passes.pattern import dtype_of, rank_of
from whence.passes.quantised.fixed_point import all_codes
from whence.passes.quantised.quantised_op import BYTES, QuantisedOp, QuantisedOperand, coding_of
from whence.provenance import Reason

ON_CODES = operators(Trait.SELECTS) | {"Resize"}
"""The operators of rule 1."""
_COMPARING = operators(Trait.COMPARES, Trait.POOLS_WINDOWS)
_SHARED = frozenset({"Split"})


def rewrite_on_codes(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """Rules 1 and 2. True when one applied."""
    graph, node = rewriter.graph, match.op
    if (
        not _moves(node)
        or (node.op in _COMPARING and match.result.dtype not in BYTES)
        or (len(node.outputs) > 1 and node.op not in _SHARED)
    ):
        return False
    operands = REGISTRY[node.op].operands
    places = [
        place for place in range(len(node.inputs)) if operands.kind(place) is OperandKind.DATA
    ]
    if node.op == "Pad":
        places.append(operands.positions["constant_value"])
    inputs: dict[int, Ref | np.ndarray] = {}
    sources: dict[Node, None] = {}
    for place in places:
        ref, operand = node.input(place), match.operand(place)
        if ref is None:
            if node.op == "Pad" and place == 2:
                inputs[place] = np.asarray(match.result.zero, match.result.dtype.numpy)
            continue
        code = _code_of(graph, ref, match) if operand is None else None
        if operand is not None and operand.coding.equals(match.result):
            inputs[place] = operand.codes
            sources[operand.node] = None
        elif code is not None:
            inputs[place] = code
        elif (
            operand is not None
            and node.op == "Concat"
            and operand.coding.dtype in BYTES
            and operand.coding.is_single
        ):
            inputs[place] = _table(operand, match)
            sources[operand.node] = None
        else:
            return False
    if not sources:
        return False
    outputs = _quantisers(graph, match)
    if outputs is None:
        return False
    _apply(match, rewriter, inputs, list(sources), outputs)
    return True


def _moves(node: Node) -> bool:
    if node.op == "Resize":
        return (
            get_str(node.attrs, "mode", "nearest") == "nearest"
            and get_str(node.attrs, "coordinate_transformation_mode", "half_pixel")
            != "tf_crop_and_resize"
        )
    if node.op == "Pad":
        return get_str(node.attrs, "mode", "constant") in {"constant", "reflect", "edge", "wrap"}
    return node.op in ON_CODES


def _code_of(graph: Graph, ref: Ref, match: QuantisedOp) -> np.ndarray | None:
    """A constant as codes of the result, when each of its numbers is exactly the number of a
    code.
    """
    value = graph.const_value(ref)
    if value is None or value.dtype != np.float32:
        return None
    codes = np.rint(value.astype(np.float64) / np.float64(match.result.step)) + match.result.zero
    low, high = integer_range(match.result.dtype)
    numbers = ((codes - match.result.zero) * np.float64(match.result.step)).astype(np.float32)
    is_exact = np.all((codes >= low) & (codes <= high)) and np.array_equal(numbers, value)
    return codes.astype(match.result.dtype.numpy) if is_exact else None


def _table(operand: QuantisedOperand, match: QuantisedOp) -> np.ndarray:
    """The code of the result for every code of the operand."""
    low, high = integer_range(match.result.dtype)
    codes, step = all_codes(operand.coding.dtype), match.result.step
    if match.is_fixed_point:
        scale = operand.coding.step * (np.float32(1) / step)
        offset = np.float32(-operand.coding.zero) * scale
        codes = round_away(codes.astype(np.float32) * scale + offset) + np.float32(
            match.result.zero
        )
    else:
        real = (codes - operand.coding.zero).astype(np.float32) * operand.coding.step
        codes = np.rint(real / step) + np.float32(match.result.zero)
    return np.asarray(np.clip(codes, low, high)).astype(match.result.dtype.numpy)


def _quantisers(graph: Graph, match: QuantisedOp) -> list[tuple[Ref, Node]] | None:
    """What quantises each output that is used; `None` when an output is used in another way. One
    output has the match's own.
    """
    if len(match.op.outputs) == 1:
        return [(match.op.ref(), match.last)]
    if match.activations:
        return None
    found = []
    for user in graph.consumers(match.op):
        reads = [ref for ref in user.inputs if ref is not None and ref.node == match.op.id]
        coding = coding_of(graph, user, user.ref()) if user.op == "QuantizeLinear" else None
        if coding is None or len(reads) != 1 or not coding.equals(match.result):
            return None
        found.append((reads[0], user))
    return found


def _apply(
    match: QuantisedOp,
    rewriter: Rewriter,
    inputs: Mapping[int, Ref | np.ndarray],
    sources: list[Node],
    outputs: list[tuple[Ref, Node]],
) -> None:
    node = match.op
    lasts = [last for _, last in outputs]
    edit = rewriter.edit(
        *sources,
        node,
        *match.activations,
        *lasts,
        rule=f"quantise({node.op}(dequantise(x))) = {node.op}(x)",
    )
    built: list[Ref | None] = list(node.inputs) + [None] * (max(inputs) + 1 - len(node.inputs))
    for place, value in inputs.items():
        if isinstance(value, Ref):
            built[place] = value
            continue
        operand = match.operand(place)
        if operand is not None:
            built[place] = edit.node(
                "LookUp", [operand.codes, edit.const(value)], of=[operand.node, node]
            ).ref()
        else:
            built[place] = edit.const(value)
    moved = edit.node(node.op, built, node.attrs, of=[node], n_outputs=len(node.outputs))
    for ref, last in outputs:
        edit.replace(last.ref(), limited(edit, moved.ref(ref.index), match))
    for each in (*sources, *lasts):
        edit.tombstone(each, Reason.CANCELLED, moved.id)
    edit.apply()


def limited(edit: Edit, codes: Ref, match: QuantisedOp) -> Ref:
    """Codes within the limits of the activation."""
    if (match.low, match.high) == integer_range(match.result.dtype):
        return codes
    number = match.result.dtype.numpy
    ends = [edit.const(np.asarray(end, number)) for end in (match.low, match.high)]
    return edit.node("Clip", [codes, *ends], of=[*match.activations]).ref()


# max_pool(x) = transpose(channels_last_max_pool(transpose(x)))
def rewrite_max_pool(node: Node, rewriter: Rewriter) -> None:
    """Rule 3."""
    graph, x = rewriter.graph, node.inputs[0]
    rank = rank_of(graph, x)
    if rank is None or rank < 3 or dtype_of(graph, x) not in BYTES or len(node.outputs) != 1:
        return
    rule = "max_pool(x) = max_pool(x), channels last"
    in_other_order(rewriter, node, to_last(rank), "ChannelsLastMaxPool", rule)
