"""What about the shape of a convolution or product keeps it from the peak rate."""

from __future__ import annotations

from typing import NamedTuple

from whence.attribution.cost_model import is_contraction
from whence.building.program import ProgramStep
from whence.graph import Graph, Node, Ref
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of
from whence.types import TensorType

_FEW_CHANNELS, _FEW_ROWS = 8, 6
# A kernel with fewer operations is over before its loops are at full speed.
_SMALL_FLOPS = 200_000


class Trait(NamedTuple):
    kind: str = ""
    words: str = ""
    reach: float = 1.0
    """The part of what other kernels reach that the shape leaves, even if the model is mended: what
    fills empty vector lanes is arithmetic that the model does not need.
    """


NO_TRAIT = Trait()


def contraction_of(graph: Graph, step: ProgramStep) -> Node | None:
    """The convolution or product in a step."""
    found = (graph.get(member.node) for member in step.members if is_contraction(member.op))
    return next((node for node in found if node is not None), None)


def trait_of(graph: Graph, step: ProgramStep) -> Trait:
    """The first that holds."""
    node = contraction_of(graph, step)
    if node is None:
        return NO_TRAIT
    flops = sum(member.flops for member in step.members)
    sizes = [_shape(graph, ref) for ref in node.inputs]
    x, weights = [*sizes, None, None][:2]
    if classes_of(node.op) & OpClass.CONV and weights is not None and len(weights) >= 3:
        group = node.attrs.get("group", 1)
        groups = group if isinstance(group, int) else 1
        channels = weights[1]
        if groups > 1 and channels == 1:
            return Trait("depthwise", f"a depthwise convolution of {groups} channels")
        made = _channels_made(node, weights)
        few = [
            f"{count} channel{'s' if count != 1 else ''} {where}"
            for count, where in (
                (channels, f"in each of {groups} groups" if groups > 1 else "in"),
                (made, "out"),
            )
            if 0 < count < _FEW_CHANNELS
        ]
        if few:
            reach = min(1.0, made / _FEW_CHANNELS) if made else 1.0
            return Trait("channels", " and ".join(few), reach)
    elif x is not None and len(x) >= 2 and 0 < x[-2] <= _FEW_ROWS:
        return Trait("rows", f"a product with {x[-2]} row{'s' if x[-2] != 1 else ''}")
    if 0 < flops < _SMALL_FLOPS:
        return Trait("small", f"{flops / 1e3:.0f} thousand operations are few")
    return NO_TRAIT


def _channels_made(node: Node, weights: tuple[int, ...]) -> int:
    """How many channels a convolution makes, where its result has them second; else 0."""
    kind = node.outputs[0]
    shape = kind.shape if isinstance(kind, TensorType) else None
    made = shape[1] if shape is not None and len(shape) == len(weights) else 0
    return made if isinstance(made, int) and made == weights[0] else 0


def _shape(graph: Graph, ref: Ref | None) -> tuple[int, ...] | None:
    kind = graph.type_of(ref) if ref is not None else None
    shape = kind.shape if isinstance(kind, TensorType) else None
    known = tuple(dim for dim in shape or () if isinstance(dim, int))
    return known if shape is not None and len(known) == len(shape) else None
