from __future__ import annotations

from whence.ops.definition import OpClass, Pattern, TypeQuery
from whence.ops.tensor.control import INTERPRETED, OPS
from whence.types import UNKNOWN


def test_they_are_opaque_and_left_to_the_interpreter() -> None:
    for definition in OPS:
        assert definition.pattern is Pattern.OPAQUE
        assert definition.reference is None
        assert definition.infer is not None
        assert definition.infer(TypeQuery(definition.name, {}, (), (), 2)) == (UNKNOWN, UNKNOWN)


def test_those_with_nested_graphs_are_control() -> None:
    assert {op.name for op in OPS if op.classes is OpClass.CONTROL} == {
        "If",
        "Branch",
        "Call",
        "Continuation",
        "Fail",
        "Loop",
        "Scan",
        "SequenceMap",
        "com.microsoft::BeamSearch",
        "com.microsoft::GreedySearch",
        "com.microsoft::Sampling",
    }
    assert {
        "If",
        "Branch",
        "Call",
        "Continuation",
        "Fail",
        "Loop",
        "Scan",
        "SequenceMap",
        "Input",
        "Const",
        "Output",
        "Variable",
        "Assign",
        "com.microsoft::BeamSearch",
        "com.microsoft::GreedySearch",
        "com.microsoft::Sampling",
    } == INTERPRETED
