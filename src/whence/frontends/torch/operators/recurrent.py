"""Recurrent layers: LSTM and GRU, stacked and in both directions."""

from __future__ import annotations

from collections.abc import Sequence

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref
from whence.ops.definition import Attr

# PyTorch's gates in the order of the canonical operators, which begin with input and output gate,
# or with the update gate.
_ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}


def _layers(call: AtenCall, op: str, first: Sequence[Ref]) -> Value:
    """The sequence after the last layer, and the last state of every layer, end to end."""
    if "batch_sizes" in call.args:
        call.unsupported("a packed sequence; pad it instead")
    if call.plain("train") and call.real("dropout") > 0:
        call.unsupported("dropout between layers, as in training; call .eval() first")
    directions = 2 if call.plain("bidirectional") else 1
    count, biased = call.integer("num_layers"), bool(call.plain("has_biases"))
    weights = call.refs("params")
    each = 4 if biased else 2
    if len(weights) != each * count * directions:
        call.unsupported("a recurrent layer with projections")
    x = call.ref("input")
    swap = (1, 0, 2)
    if call.plain("batch_first"):
        x = call.transpose(x, swap)
    last: list[list[Ref]] = [[] for _ in first]
    for layer in range(count):
        begin = layer * directions
        own = [
            weights[each * (begin + way) : each * (begin + way + 1)] for way in range(directions)
        ]
        states = [
            state if count == 1 else call.sliced(state, 0, begin, begin + directions)
            for state in first
        ]
        x, finals = _layer(call, op, x, own, states)
        for kept, final in zip(last, finals, strict=True):
            kept.append(final)
    if call.plain("batch_first"):
        x = call.transpose(x, swap)
    return [x, *(call.concat(parts, 0) for parts in last)]


def _layer(
    call: AtenCall, op: str, x: Ref, own: Sequence[Sequence[Ref]], states: Sequence[Ref]
) -> tuple[Ref, list[Ref]]:
    inputs = [_stacked(call, [_ordered(call, op, ways[index]) for ways in own]) for index in (0, 1)]
    bias: Ref | None = None
    if len(own[0]) == 4:
        sides = [
            call.emit("Concat", [_ordered(call, op, ways[index]) for index in (2, 3)], {"axis": 0})
            for ways in own
        ]
        bias = _stacked(call, sides)
    shape = call.tensor_type_of(own[0][1]).static_shape
    assert shape is not None
    attrs: dict[str, Attr] = {"hidden_size": shape[1]}
    if len(own) == 2:
        attrs["direction"] = "bidirectional"
    if op == "GRU":
        attrs["linear_before_reset"] = 1
    made = call.emit(op, [x, *inputs, bias, None, *states], attrs, outputs=1 + len(states))
    # From (steps, directions, batch, size) to the directions side by side.
    if len(own) == 1:
        return call.op("Squeeze", made[0], call.numbers(1)), made[1:]
    beside = call.transpose(made[0], (0, 2, 1, 3))
    return call.reshape(beside, 0, 0, -1), made[1:]


def _ordered(call: AtenCall, op: str, weight: Ref) -> Ref:
    order = _ORDERS[op]
    attrs: dict[str, Attr] = {"axis": 0, "num_outputs": len(order)}
    gates = call.emit("Split", [weight], attrs, outputs=len(order))
    return call.emit("Concat", [gates[index] for index in order], {"axis": 0})


def _stacked(call: AtenCall, parts: Sequence[Ref]) -> Ref:
    return call.concat([call.op("Unsqueeze", part, call.numbers(0)) for part in parts], 0)


MAPPINGS: Mappings = {
    "aten::lstm": lambda call: _layers(call, "LSTM", call.refs("hx")),
    "aten::gru": lambda call: _layers(call, "GRU", [call.ref("hx")]),
}
