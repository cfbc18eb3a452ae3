"""What a piece of work costs, in picoseconds: the weights by which a kernel's measured time is
split over the operators in it.

A kernel computes while it waits for memory: what takes longer, arithmetic or memory traffic, hides
most of the other (`together_ps`). So what an operator adds to a kernel is not what it would cost by
itself: an error function added to a sum that comes from memory is a sixth of the time, and the same
function on data in cache is two thirds of the time.

Only proportions within one kernel matter. The costs are rounded measurements of one core of one
machine with 16-lane vectors, 2 MiB of second-level cache and a large third level.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.graph import Graph, Node
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of
from whence.types import TensorType

_CONTRACTION_PS, _BY_UNITS_PS = 7, 5
_SIMPLE_PS = 10
# Picoseconds for a byte, by how many bytes the kernel moves.
_BYTE_PS = ((512 << 10, 10), (2 << 20, 22), (24 << 20, 33))
_MEMORY_BYTE_PS = 65
# How much of the smaller of arithmetic and traffic still shows. From minute to minute it was
# between a tenth and a half.
_SHOWN_PERCENT = 22
# An element that a transpose fetches out of order, for kernels that fit the caches and those that
# do not.
_TURNED_PS, _TURNED_FAR_PS = 750, 3300
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose result is their operand, element by element in the same order: nothing to do for
whoever reads it, wherever it lies.
"""
_CONTRACTIONS = OpClass.CONV | OpClass.MATMUL | OpClass.RECURRENT

# Per element of the result. The last three groups have no vector code.
_ELEMENT_PS: Mapping[str, int] = {
    **dict.fromkeys(("Div", "Reciprocal"), 60),
    "Sqrt": 100,
    **dict.fromkeys(("Exp", "Elu", "Selu", "Celu"), 250),
    **dict.fromkeys(("Log", "Erf"), 350),
    **dict.fromkeys(("Tanh", "Sigmoid", "Swish", "SwiGLU", "Softmax", "LogSoftmax"), 350),
    **dict.fromkeys(("Gelu", "FusedGelu"), 450),
    **dict.fromkeys(("Softplus", "Mish"), 750),
    "Mod": 3600,
    **dict.fromkeys(("Sin", "Cos", "Tan"), 5000),
    **dict.fromkeys(
        ("Pow", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"), 10_000
    ),
}
# A power with one of these constant exponents is a product or a root.
_CHEAP_EXPONENTS = frozenset({-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0})
_CHEAP_POWER_PS = 20


def arithmetic_ps(graph: Graph, node: Node, flops: int, *, by_units: bool = False) -> int:
    """What the arithmetic of `node` costs, which the operator's definition counts as `flops`
    operations, by matrix units or by vectors.
    """
    if node.op == "Pow" and _has_cheap_exponent(graph, node):
        return _CHEAP_POWER_PS * elements_of(node)
    each = _ELEMENT_PS.get(node.op)
    if each is not None:
        return each * elements_of(node)
    if not is_contraction(node.op):
        return flops * _SIMPLE_PS
    return flops * (_BY_UNITS_PS if by_units else _CONTRACTION_PS)


def turning_ps(node: Node, kernel_bytes: int) -> int:
    """What a transpose costs that is done by the way, in a kernel with this much traffic:
    neighbours are no neighbours any more.
    """
    perm = node.attrs.get("perm")
    if (
        node.op != "Transpose"
        or not isinstance(perm, tuple)
        or not perm
        or perm[-1] == len(perm) - 1
    ):
        return 0
    return elements_of(node) * (_TURNED_PS if kernel_bytes <= _BYTE_PS[-1][0] else _TURNED_FAR_PS)


def byte_ps(kernel_bytes: int) -> int:
    """What a byte costs that a kernel with this much traffic moves."""
    return next((price for limit, price in _BYTE_PS if kernel_bytes <= limit), _MEMORY_BYTE_PS)


def together_ps(arithmetic: int, memory: int) -> int:
    """How long a kernel takes that spends so much on arithmetic and so much on memory: most of the
    smaller hides behind the larger.
    """
    return max(arithmetic, memory) + min(arithmetic, memory) * _SHOWN_PERCENT // 100


def is_contraction(op: str) -> bool:
    """Is most of its arithmetic multiply-and-add on data that is used again and again?"""
    return bool(classes_of(op) & _CONTRACTIONS)


def elements_of(node: Node) -> int:
    """How many elements its first result has; 1 where that is unknown."""
    kind = node.outputs[0] if node.outputs else None
    return (kind.elements if isinstance(kind, TensorType) else None) or 1


def _has_cheap_exponent(graph: Graph, node: Node) -> bool:
    value = graph.const_value(node.input(1))
    return value is not None and value.size == 1 and float(value.reshape(-1)[0]) in _CHEAP_EXPONENTS
