"""How an operator reads on channel-blocked tensors: f(from_blocked(x)) = from_blocked(f'(x)).

The result is f' as one step or two, and how many channels its outputs have. Places behind the last
channel may hold anything, so every operator that works on each channel by itself can be transposed
like this, and none that mixes channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from whence.extent import estimate
from whence.graph import Graph, Node, Ref
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.definition import Attr, OpClass
from whence.ops.neural.blocked import to_blocked
from whence.ops.neural.window import make_window
from whence.ops.registry import REGISTRY, form_of, operators
from whence.ops.tensor.shape import size_array
from whence.ops.traits import Trait
from whence.passes.fold.fold_batch_norm import affine_of
from whence.passes.operands import BROADCASTING
from whence.passes.parameters import Cut, cuts_of, padding_of, reduced_axes
from whence.types import DType, same_dim, same_shape


class BlockedLayout(NamedTuple):
    """A plain value that has a blocked twin: its channels, and its axes (4, or 3 when the twin is
    one row high).
    """

    channels: int
    rank: int


class BlockedInput(NamedTuple):
    """The blocked form of a plain value."""

    ref: Ref


class Spread(NamedTuple):
    """A plain value that is the same in all channels, with an axis of length 1 for the places in a
    block.
    """

    ref: Ref


class StepOutput(NamedTuple):
    """The output of an earlier step."""

    step: int


Input = Ref | np.ndarray | BlockedInput | Spread | StepOutput | None


class BlockedStep(NamedTuple):
    op: str
    inputs: tuple[Input, ...]
    attrs: Mapping[str, Attr]


class Form(NamedTuple):
    """An operator on blocked tensors. The outputs of the last step are the blocked forms of the
    operator's outputs.
    """

    steps: tuple[BlockedStep, ...]
    layouts: tuple[BlockedLayout, ...]


def one_step(
    op: str, inputs: Sequence[Input], attrs: Mapping[str, Attr], *layouts: BlockedLayout
) -> Form:
    return Form((BlockedStep(op, tuple(inputs), attrs),), layouts)


Layouts = Mapping[Ref, BlockedLayout]

# A plain operand this much smaller than the result is converted without further thought.
_SMALL = 8


def blocked_form(graph: Graph, node: Node, layouts: Layouts, block: int) -> Form | None:
    """`node` on the blocked twins of its inputs; `None` when it cannot be transposed like that or
    would gain nothing.
    """
    if node.bodies or not all(
        static_float(graph, node.ref(index)) for index in range(len(node.outputs))
    ):
        return None
    if node.op == "Concat":
        return _concat(graph, node, layouts, block)
    first = node.input(0)
    if first is not None and first in layouts and node.op in _ON_FIRST:
        return _ON_FIRST[node.op](graph, node, first, layouts[first], block)
    # The result of an operator whose operands must have one shape is blocked with all of them, and
    # a single number is not.
    if node.op in BROADCASTING and len(node.outputs) == 1:
        return _elementwise(graph, node, layouts, block)
    return None


def static_float(graph: Graph, ref: Ref | None) -> tuple[int, ...] | None:
    """The shape of a float32 value all of whose dimensions are known and not 0, else `None`."""
    kind = graph.tensor_type(ref)
    shape = None if kind is None or kind.dtype is not DType.F32 else kind.static_shape
    return None if shape is None or 0 in shape else shape


# ---- elementwise ----


def _elementwise(graph: Graph, node: Node, layouts: Layouts, block: int) -> Form | None:
    target = static_float(graph, node.ref())
    if target is None or len(target) not in {3, 4}:
        return None
    whole = [
        ref
        for ref in node.inputs
        if ref is not None
        and same_shape(static_float(graph, ref), target)
        and graph.const_value(ref) is None
    ]
    twins = sum(ref in layouts for ref in whole)
    # With more plain operands than blocked ones, converting the blocked ones back costs less.
    if not twins or len(whole) - twins > twins:
        return None
    inputs = [_operand(graph, ref, target, layouts, block) for ref in node.inputs]
    if any(
        given is None and ref is not None for given, ref in zip(inputs, node.inputs, strict=True)
    ):
        return None
    return one_step(node.op, inputs, node.attrs, BlockedLayout(target[1], len(target)))


def _operand(
    graph: Graph, ref: Ref | None, target: tuple[int, ...], layouts: Layouts, block: int
) -> Input:
    """An operand of an elementwise operator whose plain result has shape `target`; `None` when it
    has no blocked form.
    """
    shape = static_float(graph, ref)
    if ref is None or shape is None or len(shape) > len(target):
        return None
    if all(same_dim(dim, 1) for dim in shape) and ref not in layouts:
        return ref
    value = graph.const_value(ref)
    if value is not None:
        return blocked_const(value, len(target), block)
    if ref in layouts:
        return BlockedInput(ref) if shape[1] == target[1] else Spread(ref)
    if len(shape) == len(target) and shape[1] == target[1]:
        small = estimate(math.prod(shape)) * _SMALL <= estimate(math.prod(target))
        return BlockedInput(ref) if small or same_shape(shape, target) else None
    return Spread(ref) if len(shape) == len(target) and shape[1] == 1 else None


def blocked_const(value: np.ndarray, rank: int, block: int) -> np.ndarray:
    """A constant operand so that it broadcasts against blocked tensors as it did against plain ones
    of so many axes.
    """
    batch, channels, *spatial = (1,) * (rank - value.ndim) + value.shape
    spatial = [*[1] * (4 - rank), *spatial]
    plain = value.reshape(batch, channels, *spatial)
    if channels == 1:
        return plain[..., np.newaxis]
    # Repeating the last channel keeps a divisor from becoming zero.
    return to_blocked(
        np.pad(plain, ((0, 0), (0, -channels % block), (0, 0), (0, 0)), mode="edge"), block
    )


# y = (x - mean)·scale / sqrt(var + epsilon) + bias = x·factor + shift
def _batch_norm(
    graph: Graph, node: Node, source: Ref, layout: BlockedLayout, block: int
) -> Form | None:
    affine = affine_of(graph, node)
    if affine is None:
        return None
    spread = (-1, *(1,) * (layout.rank - 2))
    by_channel = [
        blocked_const(vector.astype(np.float32).reshape(spread), layout.rank, block)
        for vector in (affine.scale, affine.shift)
    ]
    return Form(
        (
            BlockedStep("Mul", (BlockedInput(source), by_channel[0]), {}),
            BlockedStep("Add", (StepOutput(0), by_channel[1]), {}),
        ),
        (layout,),
    )


# ---- pools and reductions ----


def _pool(graph: Graph, node: Node, source: Ref, layout: BlockedLayout, block: int) -> Form | None:
    shape, blocked = static_float(graph, source), form_of(node.op, Trait.BLOCKED)
    if shape is None or blocked is None or len(node.outputs) != 1:
        return None
    attrs = spatial_attrs(node, shape[2:], get_ints(node.attrs, "kernel_shape"))
    return one_step(blocked, [BlockedInput(source)], attrs, layout)


def spatial_attrs(node: Node, sizes: Sequence[int], kernel: Sequence[int]) -> dict[str, Attr]:
    """The attributes of a convolution or pool with the padding spelled out, for two spatial
    axes.
    """
    window = make_window(node.op, node.attrs, sizes, kernel)
    missing = 2 - len(sizes)
    ones, zeros = (1,) * missing, (0,) * missing
    attrs: dict[str, Attr] = {
        name: value for name, value in node.attrs.items() if name != "auto_pad"
    }
    return attrs | {
        "kernel_shape": ones + window.kernel,
        "strides": ones + window.strides,
        "dilations": ones + window.dilations,
        "pads": zeros + window.begins + zeros + window.ends,
    }


def _reduce(
    graph: Graph, node: Node, source: Ref, layout: BlockedLayout, block: int
) -> Form | None:
    spatial = tuple(range(2, layout.rank))
    reduction = REGISTRY[node.op].over_space
    if not reduction and (
        reduced_axes(graph, node, layout.rank) != spatial or not get_int(node.attrs, "keepdims", 1)
    ):
        return None
    op = reduction or node.op
    return one_step(op, [BlockedInput(source), size_array([2, 3])], {"keepdims": 1}, layout)


# ---- movement ----


def _axis(axis: int, rank: int) -> int:
    """Where an axis of a plain tensor lies in its blocked form."""
    axis %= rank
    return axis if axis < 2 else axis + 4 - rank


def _concat(graph: Graph, node: Node, layouts: Layouts, block: int) -> Form | None:
    refs = [ref for ref in node.inputs if ref is not None]
    shapes = [shape for ref in refs if (shape := static_float(graph, ref)) is not None]
    ranks = {len(shape) for shape in shapes}
    if len(shapes) < len(refs) or ranks not in ({3}, {4}):
        return None
    rank, axis = ranks.pop(), get_int(node.attrs, "axis", 0)
    sizes = [estimate(math.prod(shape)) for shape in shapes]
    blocked = sum(size for ref, size in zip(refs, sizes, strict=True) if ref in layouts)
    if 2 * blocked <= sum(sizes):
        return None
    channels = [shape[1] for shape in shapes]
    if axis % rank == 1 and any(count % block for count in channels[:-1]):
        return None
    total = sum(channels) if axis % rank == 1 else channels[0]
    twins, attrs = [BlockedInput(ref) for ref in refs], {"axis": _axis(axis, rank)}
    return one_step("Concat", twins, attrs, BlockedLayout(total, rank))


def _split(graph: Graph, node: Node, source: Ref, layout: BlockedLayout, block: int) -> Form | None:
    axis = get_int(node.attrs, "axis", 0) % layout.rank
    shapes = [static_float(graph, node.ref(index)) for index in range(len(node.outputs))]
    sizes = [shape[axis] for shape in shapes if shape is not None]
    if axis == 1:
        if any(size % block for size in sizes[:-1]):
            return None
        layouts = tuple(BlockedLayout(size, layout.rank) for size in sizes)
        sizes = [-(-size // block) for size in sizes]
    else:
        layouts = (layout,) * len(sizes)
    attrs = {"axis": _axis(axis, layout.rank)}
    return one_step("Split", [BlockedInput(source), size_array(sizes)], attrs, *layouts)


def _slice(graph: Graph, node: Node, source: Ref, layout: BlockedLayout, block: int) -> Form | None:
    cuts, channels = cuts_of(graph, node), layout.channels
    if not cuts:
        return None
    if 1 in cuts:
        begin, end, _ = slice(cuts[1].start, cuts[1].end).indices(channels)
        if cuts[1].step != 1 or begin % block or (end % block and end != channels):
            return None
        cuts[1], channels = Cut(begin // block, -(-end // block), 1), end - begin
    starts, ends, steps = zip(*cuts.values(), strict=True)
    lists = (starts, ends, [_axis(axis, layout.rank) for axis in cuts], steps)
    made = BlockedLayout(channels, layout.rank)
    return one_step("Slice", [BlockedInput(source), *map(size_array, lists)], {}, made)


def _pad(graph: Graph, node: Node, source: Ref, layout: BlockedLayout, block: int) -> Form | None:
    pads = padding_of(graph, node, layout.rank)
    if pads is None:
        return None
    wanted = [0] * 10
    for axis, (begin, end) in enumerate(pads):
        wanted[_axis(axis, layout.rank)], wanted[5 + _axis(axis, layout.rank)] = begin, end
    if wanted[1] or wanted[6]:
        return None
    value = node.operand("constant_value")
    return one_step("Pad", [BlockedInput(source), size_array(wanted), value], node.attrs, layout)


def _resize(
    graph: Graph, node: Node, source: Ref, layout: BlockedLayout, block: int
) -> Form | None:
    before, after = static_float(graph, source), static_float(graph, node.ref())
    simple = (
        get_str(node.attrs, "mode", "nearest") in {"nearest", "linear"}
        and get_str(node.attrs, "keep_aspect_ratio_policy", "stretch") == "stretch"
    )
    crops = (
        get_str(node.attrs, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    )
    if before is None or after is None or before[:2] != after[:2] or not simple or crops:
        return None
    axes = get_ints(node.attrs, "axes", tuple(range(layout.rank)))
    spatial = [place for place, axis in enumerate(axes) if axis % layout.rank >= 2]
    inputs: list[Input] = [BlockedInput(source), None]
    for slot in (2, 3):
        value = graph.const_value(node.input(slot))
        if node.input(slot) is not None and value is None:
            return None
        inputs.append(
            None if value is None or value.size == 0 else np.ascontiguousarray(value[spatial])
        )
    attrs = {**node.attrs, "axes": tuple(_axis(axes[place], layout.rank) for place in spatial)}
    return one_step("Resize", inputs, attrs, layout) if spatial else None


_POOLS = frozenset(REGISTRY[name].plain for name in operators(Trait.BLOCKED, Trait.POOLS_WINDOWS))
_REDUCTIONS = frozenset(
    name
    for name, known in REGISTRY.items()
    if known.over_space
    or (OpClass.REDUCE in known.classes and known.is_(Trait.SUMS | Trait.COMPARES))
)
_ON_FIRST = {
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
}
HAVE_BLOCKED_FORMS = frozenset({"Concat", *_ON_FIRST, *BROADCASTING})
"""The operators that `blocked_form` may find a form for."""
