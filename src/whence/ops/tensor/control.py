"""Operators that only an interpreter can evaluate: those that decide what runs, and the nodes a
graph itself is made of.

They have no reference implementation: whoever walks the graph knows what they mean.
"""

from __future__ import annotations

from whence.ops.definition import OpClass, OpDef, Pattern, TypeQuery
from whence.types import UNKNOWN, ValueType


def _unknown(query: TypeQuery) -> tuple[ValueType, ...]:
    """What they yield is written in the node or in the nested graphs, neither of which a query
    shows.
    """
    return (UNKNOWN,) * query.n_outputs


OPS: tuple[OpDef, ...] = (
    OpDef("If", Pattern.OPAQUE, OpClass.CONTROL, _unknown, flops=0),
    # Whence's own: a nested graph that runs where it stands.
    OpDef("Branch", Pattern.OPAQUE, OpClass.CONTROL, _unknown, flops=0),
    # And one that cannot work: it says why when it runs.
    OpDef("Fail", Pattern.OPAQUE, OpClass.CONTROL, _unknown, flops=0),
    OpDef("Loop", Pattern.OPAQUE, OpClass.CONTROL, _unknown, flops=0),
    OpDef("Scan", Pattern.OPAQUE, OpClass.CONTROL, _unknown, flops=0),
    OpDef("SequenceMap", Pattern.OPAQUE, OpClass.CONTROL, _unknown, flops=0),
    # ONNX Runtime's ways to generate text with a decoder that they hold.
    OpDef("com.microsoft::GreedySearch", Pattern.OPAQUE, OpClass.CONTROL, _unknown, flops=0),
    OpDef("com.microsoft::Sampling", Pattern.OPAQUE, OpClass.CONTROL, _unknown, flops=0),
    OpDef("com.microsoft::BeamSearch", Pattern.OPAQUE, OpClass.CONTROL, _unknown, flops=0),
    OpDef("Input", Pattern.OPAQUE, OpClass.NONE, _unknown, flops=0),
    OpDef("Const", Pattern.OPAQUE, OpClass.NONE, _unknown, flops=0),
    OpDef("Output", Pattern.OPAQUE, OpClass.NONE, _unknown, flops=0),
    # State: the value that a run begins with, and the one that the next run will begin with.
    OpDef("Variable", Pattern.OPAQUE, OpClass.STATE, _unknown, flops=0),
    OpDef("Assign", Pattern.OPAQUE, OpClass.STATE, _unknown, flops=0),
)
INTERPRETED: frozenset[str] = frozenset(op.name for op in OPS)
