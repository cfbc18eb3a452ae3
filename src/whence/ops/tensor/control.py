"""Operators that only an interpreter can evaluate: those that decide what runs, and the nodes a
graph itself is made of.

They have no reference implementation: the interpreter, which walks the graph, evaluates them.
"""

from __future__ import annotations

from functools import partial

from whence.ops.definition import OpClass, OpDef, TypeQuery
from whence.ops.operand import CONDITION, UNARY, named, variadic, with_optional
from whence.ops.traits import Trait
from whence.types import UNKNOWN, ValueType


def _unknown(query: TypeQuery) -> tuple[ValueType, ...]:
    """Their types are those of the nested graphs or the node, which a query does not have."""
    return (UNKNOWN,) * query.n_outputs


# What a search is told of the text to make.
_LENGTHS = ("input_ids", "max_length", "min_length")
_RULES = ("repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
_BEAMS = ("num_beams", "num_return_sequences", "length_penalty")

_control = partial(OpDef, classes=OpClass.CONTROL, infer=_unknown, flops=0)
_of_any_inputs = partial(_control, operands=variadic("inputs"))
_state = partial(OpDef, classes=OpClass.STATE, infer=_unknown, flops=0)
_edge = partial(OpDef, infer=_unknown, flops=0)
OPS: tuple[OpDef, ...] = (
    _control("If", operands=named(cond=CONDITION)),
    # Whence's own: a nested graph that runs where it stands.
    _of_any_inputs("Branch"),
    # And one that is compiled when a run knows the sizes of what it takes.
    _of_any_inputs("Continuation"),
    # An operator of a file, computed by the graph that it holds; it can be written as it was read.
    _of_any_inputs("Call"),
    # And one that cannot work: it says why when it runs.
    _of_any_inputs("Fail"),
    _control("Loop", operands=variadic("M", "cond", "v_initial"), traits=Trait.ITERATES),
    _control("Scan", operands=variadic("initial_state_and_scan_inputs"), traits=Trait.ITERATES),
    _control("SequenceMap", operands=variadic("input_sequence", "additional_inputs")),
    # ONNX Runtime's ways to generate text with a decoder that they hold.
    _control("com.microsoft::GreedySearch", operands=with_optional(5, named(*_LENGTHS, *_RULES))),
    _control(
        "com.microsoft::Sampling",
        operands=with_optional(7, named(*_LENGTHS, *_RULES, "presence_mask", "seed")),
    ),
    _control(
        "com.microsoft::BeamSearch",
        operands=with_optional(
            10, named(*_LENGTHS, *_BEAMS, *_RULES, "decoder_input_ids", "logits_processor")
        ),
    ),
    _edge("Input", traits=Trait.BOUNDARY | Trait.SOURCE | Trait.GIVEN),
    _edge("Const", traits=Trait.BOUNDARY | Trait.SOURCE),
    _edge("Output", operands=UNARY, traits=Trait.BOUNDARY),
    # State: the value that a run begins with, and the one that the next run will begin with.
    _state("Variable", traits=Trait.BOUNDARY | Trait.SOURCE | Trait.GIVEN),
    _state("Assign", operands=UNARY, traits=Trait.BOUNDARY),
)
INTERPRETED: frozenset[str] = frozenset(op.name for op in OPS)
