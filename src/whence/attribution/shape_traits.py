"""What about the shape of a convolution or product keeps it from the peak rate."""

from __future__ import annotations

import math
from typing import NamedTuple

from whence.attribution.cost_model import is_contraction
from whence.building.program import ProgramStep
from whence.graph import Graph, Node, Ref
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of, one_of, operators
from whence.ops.traits import Trait
from whence.plural import counted
from whence.types import TensorType

_CHANNELS_LAST = one_of("IntegerConv", "IntegerConvTranspose")
_TRANSPOSED = operators(Trait.TRANSPOSED_CONVOLUTION) | one_of("IntegerConvTranspose")
_FEW_CHANNELS, _FEW_ROWS = 8, 6
# How many pixels on a side people fold into channels.
_FOLDS = (2, 4, 8)
# A 3 × 3 convolution of enough channels needs 16 products where the definition has 36.
_WINOGRAD, _WINOGRAD_CHANNELS = 36 / 16, 16
# No window has so few of its positions on the image: a transform spares the other products.
_TRANSFORMED = 0.6
# A kernel with fewer operations is over before its loops are at full speed.
_SMALL_FLOPS = 200_000


class ShapeTrait(NamedTuple):
    kind: str = ""
    words: str = ""
    reach: float = 1.0
    """The part of what other kernels reach that the shape leaves, even if the model is mended: what
    fills empty vector lanes is arithmetic that the model does not need. Transforms that spare most
    products leave as much less of the peak.
    """


NO_TRAIT = ShapeTrait()


def contraction_of(graph: Graph, step: ProgramStep) -> Node | None:
    """The convolution or product in a step."""
    found = (graph.get(member.node) for member in step.members if is_contraction(member.op))
    return next((node for node in found if node is not None), None)


def trait_of(graph: Graph, step: ProgramStep, executed: float = 1.0) -> ShapeTrait:
    """The first that holds; `executed` is the part of the defined operations that are done."""
    node = contraction_of(graph, step)
    if node is None:
        return NO_TRAIT
    flops = sum(member.flops for member in step.members)
    sizes = [_shape(graph, ref) for ref in node.inputs]
    x, weights = [*sizes, None, None][:2]
    if classes_of(node.op) & OpClass.CONV and weights is not None and len(weights) >= 3:
        groups = get_int(node.attrs, "group", 1)
        weights = _channels_first(node, weights, groups)
        channels = weights[1]
        if groups > 1 and channels == 1:
            return ShapeTrait("depthwise", f"a depthwise convolution of {groups} channels")
        made = _channels_made(node, weights)
        few = [
            f"{counted(count, 'channel')} {where}"
            for count, where in (
                (channels, f"in each of {groups} groups" if groups > 1 else "in"),
                (made, "out"),
            )
            if 0 < count < _FEW_CHANNELS
        ]
        if few:
            reach = 1.0
            if 0 < made < _FEW_CHANNELS:
                lanes = made / _FEW_CHANNELS
                reach = _folded_reach(node, weights) if groups == 1 else lanes
            return ShapeTrait("channels", " and ".join(few), reach)
    elif x is not None and len(x) >= 2 and 0 < x[-2] <= _FEW_ROWS:
        return ShapeTrait("rows", f"a product with {counted(x[-2], 'row')}")
    if 0 < flops < _SMALL_FLOPS:
        return ShapeTrait("small", f"{flops / 1e3:.0f} thousand operations are few")
    return NO_TRAIT if executed > _TRANSFORMED else ShapeTrait(reach=executed)


def _channels_first(node: Node, weights: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """The shape of a convolution's weights as that of Conv: (made, read in a group, k...)."""
    first, second, *size = weights
    if node.op in _CHANNELS_LAST:
        first, *size, second = weights
    if node.op not in _TRANSPOSED:
        return (first, second, *size)
    made, read = (first, second) if node.op in _CHANNELS_LAST else (second, first)
    return (made * groups, read // groups, *size)


def _folded_reach(node: Node, weights: tuple[int, ...]) -> float:
    """What is left of the peak rate if space is folded into depth until there are enough channels:
    of n × n pixels together, a filter has n² times the channels, and most of its weights are zero.
    """
    steps = get_ints(node.attrs, "strides", (1,) * (len(weights) - 2))
    found = []
    for side in _FOLDS:
        made, read = (count * side ** len(steps) for count in weights[:2])
        if made < _FEW_CHANNELS:
            continue
        filled = made / (math.ceil(made / _FEW_CHANNELS) * _FEW_CHANNELS)
        work, sizes = 1.0, []
        for size, step in zip(weights[2:], steps, strict=True):
            block = side * step
            first, last = -((size - 1) // 2), (side - 1) * step + size - 1 - (size - 1) // 2
            sizes.append(last // block - first // block + 1)
            work *= sizes[-1] * block / size
        is_winograd = (
            sizes == [3, 3] and set(steps) == {1} and min(made, read) >= _WINOGRAD_CHANNELS
        )
        found.append(filled / work * (_WINOGRAD if is_winograd else 1.0))
    return max(found, default=1.0)


def _channels_made(node: Node, weights: tuple[int, ...]) -> int:
    """How many channels a convolution makes, where its result has them on an axis of their own;
    else 0.
    """
    kind = node.outputs[0]
    shape = kind.shape if isinstance(kind, TensorType) else None
    axis = -1 if node.op in _CHANNELS_LAST else 1
    made = shape[axis] if shape is not None and len(shape) == len(weights) else 0
    return made if isinstance(made, int) and made == weights[0] else 0


def _shape(graph: Graph, ref: Ref | None) -> tuple[int, ...] | None:
    kind = graph.tensor_type(ref)
    return None if kind is None else kind.static_shape
