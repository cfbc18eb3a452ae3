"""Operators that give the same values another shape, or take some of them. They work on codes:
LiteRT copies bytes, whatever the parameters say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.graph.node import Ref
from whence.types import DType

END = np.iinfo(np.int64).max
"""Further than any tensor goes: a slice to here takes all."""
FROM_END = np.iinfo(np.int64).min


def _reshape(call: OperatorCall) -> None:
    """The shape is input 1, or in older files an option. A zero in it is a dimension of zero."""
    if call.has(1):
        known = call.constant_codes(1)
        # Old converters wrote the shape of a scalar as [0].
        shape = (
            call.const(np.empty(0, np.int64))
            if known is not None
            and call.stored(1)
            and known.tolist() == [0]
            and call.type(0).elements == 1
            else call.whole(1)
        )
    else:
        shape = call.ints(*call.integers("new_shape"))
    zero = call.value_of(shape)
    attrs = {"allowzero": 1} if zero is not None and 0 in zero else None
    call.output_codes(0, call.emit("Reshape", [call.needed(0), shape], attrs))


def _squeeze(call: OperatorCall) -> None:
    axes = call.integers("squeeze_dims")
    if not axes:
        axes = tuple(axis for axis, size in enumerate(call.shape(0)) if size == 1)
    call.output_codes(0, call.op("Squeeze", call.needed(0), call.ints(*axes)))


def _expand_dims(call: OperatorCall) -> None:
    call.output_codes(0, call.op("Unsqueeze", call.needed(0), call.ints(*call.numbers(1, "axis"))))


def _transpose(call: OperatorCall) -> None:
    rank = call.rank(0)
    order = tuple(axis + rank if axis < 0 else axis for axis in call.numbers(1, "order of axes"))
    if sorted(order) != list(range(rank)):
        call.fail(f"{list(order)} is no order of the {rank} axes of its input")
    call.output_codes(0, call.op("Transpose", call.needed(0), perm=order))


def _slice(call: OperatorCall) -> None:
    """A size of -1 means all that is left."""
    axes = call.ints(*range(call.rank(0)))
    begin, size = call.whole(1), call.whole(2)
    ends = call.op("Add", begin, size)
    known = call.value_of(size)
    if known is not None and np.any(known < 0):
        given = call.value_of(begin)
        ends = (
            call.const(np.where(known < 0, END, given + known))
            if given is not None
            else _choose(call, known < 0, END, ends)
        )
    elif known is None:
        rest = call.op("Less", size, call.ints(0))
        ends = call.op("Where", rest, call.ints(END), ends)
    call.output_codes(0, call.op("Slice", call.needed(0), begin, ends, axes))


def _choose(
    call: OperatorCall, where: np.ndarray | Sequence[bool], value: int, otherwise: Ref
) -> Ref:
    """`value` at some places, what `otherwise` has at the others."""
    return call.op("Where", call.const(np.asarray(where, np.bool_)), call.ints(value), otherwise)


def _strided_slice(call: OperatorCall) -> None:
    """Masks say for each entry of begin, end and strides what it really is: from the start, to the
    end, one index, a new axis, all axes left.
    """
    if call.shape(1) != call.shape(3) or len(call.shape(1)) != 1:
        call.fail("its begin, end and strides are not lists of one length")
    strides = call.numbers(3, "strides")
    if 0 in strides:
        call.fail("a stride is 0")
    masks = {
        name: call.integer(f"{name}_mask")
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    axes, entries, new_axes, shrunk = _entries(call, len(strides), masks)
    if not entries:
        result = call.needed(0)
    else:
        begin, end = _bounds(call, entries, strides, masks)
        result = call.op(
            "Slice",
            call.needed(0),
            begin,
            end,
            call.ints(*axes),
            call.ints(*(strides[entry] for entry in entries)),
        )
    if shrunk:
        result = call.op("Squeeze", result, call.ints(*shrunk))
    if new_axes:
        result = call.op("Unsqueeze", result, call.ints(*new_axes))
    call.output_codes(0, result)


def _entries(
    call: OperatorCall, count: int, masks: dict[str, int]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Which axis each entry slices, the entries that slice, where new axes stand in the result, and
    the axes that leave.
    """
    rank, axis, place = call.rank(0), 0, 0
    taken = sum(
        1 for entry in range(count) if not (masks["ellipsis"] | masks["new_axis"]) >> entry & 1
    )
    axes: list[int] = []
    entries: list[int] = []
    new_axes: list[int] = []
    shrunk: list[int] = []
    for entry in range(count):
        if masks["ellipsis"] >> entry & 1:
            axis += rank - taken
            place += rank - taken
        elif masks["new_axis"] >> entry & 1:
            new_axes.append(place)
            place += 1
        else:
            axes.append(axis)
            entries.append(entry)
            if masks["shrink_axis"] >> entry & 1:
                shrunk.append(axis)
            else:
                place += 1
            axis += 1
    if taken > rank or axis > rank:
        call.fail(f"it slices {taken} axes of a tensor of {rank}")
    return axes, entries, new_axes, shrunk


def _bounds(
    call: OperatorCall, entries: list[int], strides: tuple[int, ...], masks: dict[str, int]
) -> tuple[Ref, Ref]:
    """Where the slices begin and end, the masks applied."""
    begin, end = call.whole(1), call.whole(2)
    if len(entries) != len(strides):
        chosen = call.ints(*entries)
        begin, end = call.op("Gather", begin, chosen), call.op("Gather", end, chosen)
    if call.flag("offset"):
        end = call.op("Add", begin, end)
    backward = np.array([strides[entry] < 0 for entry in entries])
    single = np.array([bool(masks["shrink_axis"] >> entry & 1) for entry in entries])
    from_start = np.array([bool(masks["begin"] >> entry & 1) for entry in entries]) & ~single
    to_end = np.array([bool(masks["end"] >> entry & 1) for entry in entries]) & ~single
    for where, value in ((from_start & ~backward, 0), (from_start & backward, END)):
        begin = _choose(call, where, value, begin) if where.any() else begin
    for where, value in ((to_end & ~backward, END), (to_end & backward, FROM_END)):
        end = _choose(call, where, value, end) if where.any() else end
    if single.any():
        # One element from -1 ends at the very end, not at 0.
        following = call.op("Add", begin, call.ints(1))
        last = call.op("Where", call.op("Equal", begin, call.ints(-1)), call.ints(END), following)
        end = call.op("Where", call.const(single), last, end)
    return begin, end


def _shape(call: OperatorCall) -> None:
    call.output_codes(0, call.cast(call.op("Shape", call.needed(0)), call.output_type(0).dtype))


def _broadcast_to(call: OperatorCall) -> None:
    call.output_codes(0, call.op("Expand", call.needed(0), call.whole(1)))


def _bitcast(call: OperatorCall) -> None:
    """The same bits as another type of the same size."""
    given, made = call.type(0).dtype, call.output_type(0).dtype
    if given.bits != made.bits or DType.STRING in (given, made):
        call.unsupported(f"from {given} to {made}, of another size")
    call.output_codes(0, call.op("BitCast", call.needed(0), to=int(made)))


MAPPINGS: Mappings = {
    "BITCAST": _bitcast,
    "BROADCAST_TO": _broadcast_to,
    "EXPAND_DIMS": _expand_dims,
    "RESHAPE": _reshape,
    "SHAPE": _shape,
    "SLICE": _slice,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "TILE": lambda call: call.output_codes(0, call.op("Tile", call.needed(0), call.whole(1))),
    "TRANSPOSE": _transpose,
}
