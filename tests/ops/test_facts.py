"""The facts that stand in operators' definitions."""

from __future__ import annotations

import re
from pathlib import Path

import onnx.defs
import pytest

import whence.ops
from whence.ops.definition import OpClass, OpDef, Pattern
from whence.ops.operand import CODING, DATA, INDEX, PARAMETER, TYPE, named, variadic
from whence.ops.registry import REGISTRY, form_of, operators
from whence.ops.traits import Trait
from whence.ops.types.onnx_node import schema_of

VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


@pytest.mark.parametrize("op", sorted(REGISTRY))
def test_operands_have_the_names_that_onnx_gives_them(op: str) -> None:
    schema, known = schema_of(op), REGISTRY[op].operands
    assert len(known.names) == len(set(known.names)) == len(known.kinds)
    if schema is not None:
        assert known.names == tuple(each.name for each in schema.inputs)
        assert known.variadic == any(each.option == VARIADIC for each in schema.inputs)


@pytest.mark.parametrize("op", sorted(name for name, known in REGISTRY.items() if known.plain))
def test_a_form_has_the_operands_of_the_plain_operator_first(op: str) -> None:
    form, plain = REGISTRY[op], REGISTRY[REGISTRY[op].plain]
    data = [name for name in form.operands.names if name != "Z"]
    assert data == list(plain.operands.names[: len(data)])
    assert (
        form_of(form.plain, form.traits & (Trait.FUSED | Trait.BLOCKED | Trait.CHANNELS_LAST)) == op
    )


def test_forms_are_found_from_the_plain_operator() -> None:
    assert form_of("Conv", Trait.FUSED) == "FusedConv"
    assert form_of("Conv", Trait.FUSED | Trait.BLOCKED) == "BlockedConv"
    assert form_of("MaxPool", Trait.CHANNELS_LAST) == "ChannelsLastMaxPool"
    assert form_of("Relu", Trait.FUSED) is None


def test_traits_that_follow_from_each_other() -> None:
    assert operators(Trait.RESHAPE) < operators(Trait.VIEW) < operators(Trait.STRIDED)
    assert operators(Trait.VIEW) < operators(Trait.PERMUTES) < operators(Trait.SELECTS)
    assert operators(Trait.GATHERS) < operators(Trait.READS_PART)
    assert operators(Trait.GIVEN) < operators(Trait.SOURCE) < operators(Trait.BOUNDARY)
    assert operators(Trait.GATHERS, Trait.SCATTERS) == set()
    assert all(
        known.indexing is None or known.is_(Trait.CHECKS_INDICES) for known in REGISTRY.values()
    )


def test_what_is_computed_by_element_has_nothing_but_data() -> None:
    """Their other operands are axes, shapes, types, scales and tables: moving the elements of the
    data does not move those along.
    """
    by_pattern = {
        name
        for name, known in REGISTRY.items()
        if known.pattern <= Pattern.BROADCAST
        and known.classes & (OpClass.ELEMENTWISE | OpClass.ACTIVATION)
    }
    assert by_pattern - {name for name, known in REGISTRY.items() if known.by_element} == {
        "CastLike",
        "DequantizeLinear",
        "FixedPointScale",
        "LookUp",
        "QuantizeLinear",
    }
    # They only move elements, and where they do says another operand.
    assert not REGISTRY["Expand"].by_element
    assert not REGISTRY["Unsqueeze"].by_element
    # One operand, and two of one shape: element by element, whatever the order of axes.
    assert REGISTRY["BitCast"].by_element
    assert REGISTRY["SwiGLU"].by_element


def test_kinds_of_operands() -> None:
    operands = named("data", axes=PARAMETER)
    assert (operands.kind(0), operands.kind(1), operands.kind(7)) == (DATA, PARAMETER, DATA)
    assert not operands.all_data
    many = variadic("first", "rest")
    assert (many.kind(0), many.kind(5), many.all_data) == (DATA, DATA, True)
    assert REGISTRY["Gather"].operands.kind(1) is INDEX
    assert REGISTRY["CastLike"].operands.kind(1) is TYPE
    assert REGISTRY["QuantizeLinear"].operands.kind(2) is CODING
    assert OpDef("New").operands.names == ()


def test_what_moves_elements() -> None:
    assert operators(Trait.MOVES) == {
        "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
        "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
        "Transpose", "Unsqueeze",
    }  # fmt: skip
    assert operators(Trait.MOVES) < operators(Trait.SELECTS)


def test_operands_are_read_by_names_that_exist() -> None:
    """`Node.operand` is `None` for a name that the operator does not have, so a wrong one would
    never show.
    """
    known = {name for each in REGISTRY.values() for name in each.operands.names}
    asked = {
        (path.name, name)
        for path in Path(whence.ops.__file__).parent.parent.rglob("*.py")
        for name in re.findall(r'\.operand\("(\w+)"\)', path.read_text(encoding="utf-8"))
    }
    # Readers of other formats read by the names of those.
    wrong = {(file, name) for file, name in asked if name not in known and file != "call.py"}
    assert len(asked) > 20
    assert not wrong
