"""What a piece of work costs, in picoseconds: the weights by which a kernel's measured time is split over the operators in it.

Only proportions within one kernel matter. The costs per element are rounded measurements of one core of one machine with 16-lane vectors.
The costs per byte are fitted, not measured: plain copies there took 10 to 18 ps in cache and 34 to 60 from memory, and within that range they
were chosen so that an addition fused with an error function is split as the two take time by themselves.

Arithmetic and memory are added up as if they never overlapped. In a kernel that waits for memory, arithmetic is nearly free, and leaving it out
would save much less than its share says: for that addition on 12 MB the error function has half of the time, and leaving it out saves a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.graph import Graph, Node
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of
from whence.types import TensorType

POLICY = (
    "A kernel's measured time is split over the operators in it by modelled cost: arithmetic (16 ps per operation of a convolution, "
    "product or recurrence, 10 ps per simple operation, 60 to 10000 ps per element for divisions, roots and transcendental functions) "
    "plus what each reads from memory (12 ps per byte while the kernel's data fits a cache of 1 MiB, else 45). What the kernel writes is "
    "shared in the same proportion. Arithmetic that hides behind memory is still charged: a share is not what leaving the operator out would "
    "save. A node that several operators became is split by what each cost in the file; operators folded "
    "into constants cost nothing. Inserted layout changes are charged to the operators that caused them. Integers by largest remainder: "
    "sums are exact. Wall time runs from submitting a run until the caller knows that it is done. dispatch: before the first and after the "
    "last kernel, and around reference implementations; idle: between native kernels; profiler: the clock reads."
)

_CONTRACTION_PS = 16
_SIMPLE_PS = 10
_CACHED_BYTE_PS = 12
_MEMORY_BYTE_PS = 45
_CACHE_BYTES = 1 << 20
_CONTRACTIONS = OpClass.CONV | OpClass.MATMUL | OpClass.RECURRENT

# Per element of the result. The last three groups have no vector code.
_ELEMENT_PS: Mapping[str, int] = {
    **dict.fromkeys(("Div", "Reciprocal"), 60),
    "Sqrt": 100,
    **dict.fromkeys(("Exp", "Elu", "Selu", "Celu"), 250),
    **dict.fromkeys(("Log", "Erf"), 350),
    **dict.fromkeys(("Tanh", "Sigmoid", "Swish", "SwiGLU", "Gelu", "FusedGelu", "Softmax", "LogSoftmax"), 400),
    **dict.fromkeys(("Softplus", "Mish"), 750),
    "Mod": 3600,
    **dict.fromkeys(("Sin", "Cos", "Tan"), 5000),
    **dict.fromkeys(("Pow", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"), 10_000),
}
# A power with one of these constant exponents is a product or a root.
_CHEAP_EXPONENTS = frozenset({-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0})
_CHEAP_POWER_PS = 20


def arithmetic_ps(graph: Graph, node: Node, flops: int) -> int:
    """What the arithmetic of `node` costs, which the operator's definition counts as `flops` operations."""
    if node.op == "Pow" and _has_cheap_exponent(graph, node):
        return _CHEAP_POWER_PS * elements_of(node)
    each = _ELEMENT_PS.get(node.op)
    if each is not None:
        return each * elements_of(node)
    return flops * (_CONTRACTION_PS if is_contraction(node.op) else _SIMPLE_PS)


def byte_ps(kernel_bytes: int) -> int:
    """What a byte costs that a kernel with this much traffic reads."""
    return _CACHED_BYTE_PS if kernel_bytes <= _CACHE_BYTES else _MEMORY_BYTE_PS


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
