"""Which constants are part of the code, and which are data.

ONNX passes much as inputs that is fixed when a model is compiled: axes, shapes, pads, a scalar to
add. Such a constant belongs to every group that reads it, as often as it is read; it takes no part
in grouping, as if it were an attribute. Every other constant (weights, tables) is stored once and
is an external input of the groups that read it.
"""

from __future__ import annotations

from whence.graph import Graph, Node
from whence.ops.definition import Pattern
from whence.ops.registry import REGISTRY

_PARAMETERS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
}
_DATA_ONLY = frozenset({Pattern.OUT_ELEMWISE_FUSABLE, Pattern.OPAQUE})


def is_parameter(node: Node, index: int) -> bool:
    """Does input `index` say what the operator does, rather than what it does it to?"""
    return index in _PARAMETERS.get(node.op, ()) or (index == 1 and node.op.startswith("Reduce"))


def is_inlined(graph: Graph, node: Node, index: int) -> bool:
    """Is input `index` a constant that becomes part of the code: a parameter, or one element that
    is read wherever it is needed?

    A single element that a convolution, product or opaque operator reads is a weight like any
    other.
    """
    ref = node.inputs[index]
    if ref is None:
        return False
    producer = graph[ref.node]
    if not producer.is_const or producer.value is None:
        return False
    if is_parameter(node, index):
        return True
    definition = REGISTRY.get(node.op)
    return (
        producer.value.size == 1 and definition is not None and definition.pattern not in _DATA_ONLY
    )
