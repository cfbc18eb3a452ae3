"""Element rules of operators that move elements without computing: index arithmetic, and nothing at
run time but the loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whence.errors import UnsupportedError
from whence.extent import Relation, decide, larger, smaller, surely_equal
from whence.graph import Node, Ref
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import all_of, apply, below, cast, number, position, select, within
from whence.kernels.index import Index, LoadedIndex, of, ravel, unravel
from whence.kernels.ir import Expr, Fn, Literal, Op, loaded_values, walk
from whence.ops.attributes import get_int
from whence.ops.limits import MAX_CONCATENATED
from whence.types import DType


def _ints(elements: Elements, node: Node, name: str, default: list[int] | None = None) -> list[int]:
    """A parameter that must be constant; `default` where an optional one is left out."""
    ref = node.operand(name)
    if ref is None and default is not None:
        return default
    values = elements.const(ref)
    if values is None:
        raise UnsupportedError(f"{node.op} '{node.name}': {name} are not constant")
    return list(values)


def _transpose(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    rank = len(elements.shape(source))
    perm: Any = node.attrs.get("perm") or tuple(reversed(range(rank)))
    moved = [of(0)] * rank
    for target, axis in enumerate(perm):
        moved[int(axis)] = index[target]
    return elements.value(source, tuple(moved))


def _reshape(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    """Reshape, Flatten, Squeeze and Unsqueeze alike: the same elements in the same order."""
    source = node.first_input
    return elements.value(
        source, unravel(ravel(index, elements.shape(node.ref())), elements.shape(source))
    )


def _expand(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source, made = elements.shape(node.first_input), elements.shape(node.ref())
    # When the shape is an input, the size of the output is the file's word for it, and the kernel
    # would read where nothing is.
    if any(
        not surely_equal(extent, 1) and not surely_equal(extent, size) and extent not in (1, size)
        for extent, size in zip(source, made[len(made) - len(source) :], strict=True)
    ):
        raise UnsupportedError(f"Expand '{node.name}' of {list(source)} cannot make {list(made)}")
    return elements.broadcast(node.first_input, index)


def _slice(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    shape = elements.shape(source)
    starts, ends = _ints(elements, node, "starts"), _ints(elements, node, "ends")
    axes = _ints(elements, node, "axes", list(range(len(starts))))
    steps = _ints(elements, node, "steps", [1] * len(starts))
    moved = list(index)
    for start, _end, axis, step in zip(starts, ends, axes, steps, strict=True):
        extent = shape[axis]
        begin = start + extent if start < 0 else start
        begin = smaller(larger(begin, 0), extent - 1 if step < 0 else extent)
        moved[axis % len(shape)] = index[axis % len(shape)] * step + begin
    return elements.value(source, tuple(moved))


def _concat(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    refs = [ref for ref in node.inputs if ref is not None]
    if len(refs) > MAX_CONCATENATED:
        raise UnsupportedError(
            f"Concat '{node.name}' of {len(refs)} parts, and kernels have at most"
            f" {MAX_CONCATENATED}"
        )
    axis = get_int(node.attrs, "axis", 0) % len(index)
    begins, total = [], 0
    for ref in refs:
        begins.append(total)
        total += elements.shape(ref)[axis]
    result: Expr | None = None
    for ref, begin in reversed(list(zip(refs, begins, strict=True))):
        extent = elements.shape(ref)[axis]
        if extent == 0:
            continue
        value = elements.value(ref, (*index[:axis], index[axis] - begin, *index[axis + 1 :]))
        result = (
            value if result is None else select(below(index[axis], begin + extent), value, result)
        )
    if result is None:
        raise UnsupportedError(f"Concat '{node.name}' has no elements")
    return result


def _split(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    axis = get_int(node.attrs, "axis", 0) % len(index)
    begin = sum(elements.shape(node.ref(earlier))[axis] for earlier in range(output))
    return elements.value(source, (*index[:axis], index[axis] + begin, *index[axis + 1 :]))


def _pad(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    shape = elements.shape(source)
    pads = _ints(elements, node, "pads")
    axes = _ints(elements, node, "axes", list(range(len(shape))))
    begins = [0] * len(shape)
    for axis, begin in zip(axes, pads[: len(axes)], strict=True):
        begins[axis] = begin
    mode = node.attrs.get("mode", "constant")
    moved = [place - begin for place, begin in zip(index, begins, strict=True)]
    if mode == "constant":
        inside = all_of(
            within(place, 0, extent) for place, extent in zip(moved, shape, strict=True)
        )
        value = elements.value(source, tuple(moved))
        fill_ref = node.operand("constant_value")
        fill = elements.only(fill_ref) if fill_ref is not None else Literal(0, value.dtype)
        return select(inside, value, cast(fill, value.dtype))
    if 0 in shape:
        raise UnsupportedError(f"Pad '{node.name}': there is no element to repeat")
    if min(pads, default=0) < 0:
        raise UnsupportedError(f"Pad '{node.name}' repeats what it cuts")
    return elements.value(
        source,
        tuple(
            _reflected(place, extent, str(mode), node)
            for place, extent in zip(moved, shape, strict=True)
        ),
    )


def _reflected(place: Index, extent: int, mode: str, node: Node) -> Index:
    low, high = place.bounds()
    if decide(0, Relation.LE, low) and decide(high, Relation.LT, extent):
        return place
    if mode == "wrap":
        return place % extent
    at = position(place)
    last = Literal(extent - 1, DType.I64)
    if mode == "edge":
        value = apply(Fn.MIN, apply(Fn.MAX, at, Literal(0, DType.I64)), last)
    elif mode == "reflect" and low >= 1 - extent and high <= 2 * extent - 2:
        # |last - |last - i|| mirrors an index that leaves the range once on either side
        mirrored = apply(Fn.ABS, at)
        value = apply(Fn.SUB, last, apply(Fn.ABS, apply(Fn.SUB, last, mirrored)))
    else:
        raise UnsupportedError(f"Pad '{node.name}': mode {mode} by more than the tensor's extent")
    return of(LoadedIndex(value, extent))


def _tile(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    return elements.value(
        source,
        tuple(place % extent for place, extent in zip(index, elements.shape(source), strict=True)),
    )


def looked_up(elements: Elements, ref: Ref, index: Indices, extent: int) -> Index:
    """An index read from a tensor, negative ones counted from the end; one outside the axis is the
    caller's error, which ends the run.
    """
    if not extent:
        raise UnsupportedError("an axis without elements has no element for any index")
    at = cast(elements.value(ref, index), DType.I64)
    if isinstance(at, Literal):
        return of(int(at.value) % extent)
    return of(LoadedIndex(apply(Fn.CHECKED, at, Literal(extent, DType.I64)), extent))


def read_at(elements: Elements, data: Ref, index: Indices) -> Expr:
    """The element of `data` at indices of which some are looked up. One that the element does not
    depend on, as of an axis with one element or of a value that is repeated, is checked all the
    same.
    """
    value = elements.value(data, index)
    found = {part for part in walk(value) if isinstance(part, Op) and part.fn is Fn.CHECKED}
    for at in (at for place in index for at in loaded_values(place)):
        if isinstance(at, Op) and at.fn is Fn.CHECKED and at not in found:
            value = select(apply(Fn.LT, at, at.args[1]), value, value)
    return value


def _gather(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    data, indices = node.first_input, node.required("indices")
    shape = elements.shape(data)
    axis = get_int(node.attrs, "axis", 0) % len(shape)
    rank = len(elements.shape(indices))
    row = looked_up(elements, indices, index[axis : axis + rank], shape[axis])
    return read_at(elements, data, (*index[:axis], row, *index[axis + rank :]))


def _gather_elements(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    data, indices = node.first_input, node.required("indices")
    shape = elements.shape(data)
    axis = get_int(node.attrs, "axis", 0) % len(shape)
    row = looked_up(elements, indices, index, shape[axis])
    return read_at(elements, data, (*index[:axis], row, *index[axis + 1 :]))


def _depth_to_space(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    block = get_int(node.attrs, "blocksize", 1)
    batch, channel, row, column = index
    channels = elements.shape(node.ref())[1]
    inner = (row % block) * block + column % block
    depth_first = node.attrs.get("mode", "DCR") == "DCR"
    depth = inner * channels + channel if depth_first else channel * (block * block) + inner
    return elements.value(source, (batch, depth, row // block, column // block))


def _space_to_depth(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    block = get_int(node.attrs, "blocksize", 1)
    batch, depth, row, column = index
    channels = elements.shape(source)[1]
    # The place within a block is counted before the channel, or after it.
    crd = node.attrs.get("mode", "DCR") == "CRD"
    inner, channel = (
        (depth % (block * block), depth // (block * block))
        if crd
        else (depth // channels, depth % channels)
    )
    return elements.value(
        source, (batch, channel, row * block + inner // block, column * block + inner % block)
    )


def _trilu(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    (offset,) = _ints(elements, node, "k", [0])
    value = elements.value(source, index)
    sides = Literal(0, DType.I64), position(index[-1] - index[-2] - offset)
    keep = apply(Fn.LE, *(sides if get_int(node.attrs, "upper", 1) else sides[::-1]))
    return select(keep, value, Literal(0, value.dtype))


def _one_hot(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    indices, _depth, values = node.inputs
    assert indices is not None
    assert values is not None
    axis = get_int(node.attrs, "axis", -1) % len(index)
    extent = elements.shape(node.ref())[axis]
    at = cast(elements.value(indices, (*index[:axis], *index[axis + 1 :])), DType.I64)
    wrapped = select(
        apply(Fn.LT, at, Literal(0, DType.I64)), apply(Fn.ADD, at, Literal(extent, DType.I64)), at
    )
    return select(
        apply(Fn.EQ, wrapped, position(index[axis])),
        elements.value(values, (of(1),)),
        elements.value(values, (of(0),)),
    )


# ---- to the channel-blocked layout and back ----


def _to_blocked(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    image, outer, row, column, lane = index
    shape = elements.shape(source)
    channel = outer * elements.shape(node.ref())[4] + lane
    rows = (row,) if len(shape) == 4 else ()
    value = elements.value(source, (image, channel, *rows, column))
    # What lies behind the last channel is zero.
    return select(below(channel, shape[1]), value, number(0, value.dtype))


def _from_blocked(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    image, channel, *rows, column = index
    block = elements.shape(source)[4]
    return elements.value(
        source, (image, channel // block, rows[0] if rows else of(0), column, channel % block)
    )


RULES: Mapping[str, Rule] = {
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Expand": _expand,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Pad": _pad,
    "Tile": _tile,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Trilu": _trilu,
    "OneHot": _one_hot,
    "ToBlocked": _to_blocked,
    "FromBlocked": _from_blocked,
}
