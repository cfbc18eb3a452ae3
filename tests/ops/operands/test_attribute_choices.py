"""Words, numbers and element types that an attribute may not be."""

from __future__ import annotations

import pytest
from onnx import defs

from whence.errors import ModelError
from whence.ops.operands.attribute_choices import CHOICES, TYPES, check_choices
from whence.ops.registry import REGISTRY
from whence.types import DType


@pytest.mark.parametrize("op", CHOICES)
def test_words_and_numbers(op):
    for name, known in CHOICES[op].items():
        for choice in known:
            check_choices(op, {name: choice})
        for other in ("sideways", -1, 16, 1 << 40):
            message = f"{op}: {name} is {other!r}, and may be {known[0]}"
            with pytest.raises(ModelError, match=message):
                check_choices(op, {name: other})


_ANY_TEXT = {
    ("Constant", "value_string"),
    ("Einsum", "equation"),
    ("RegexFullMatch", "pattern"),
    ("StringNormalizer", "locale"),
    ("StringSplit", "delimiter"),
}


def test_every_word_of_an_operator_is_one_of_a_few_or_any_text() -> None:
    """Whoever adds an operator says which words its attributes may be."""
    found = {
        (schema.name, name)
        for schema in defs.get_all_schemas()
        if not schema.domain and schema.name in REGISTRY
        for name, attribute in schema.attributes.items()
        if attribute.type == defs.OpSchema.AttrType.STRING
    }
    assert found - {(op, name) for op, names in CHOICES.items() for name in names} == _ANY_TEXT


@pytest.mark.parametrize("op", TYPES)
def test_element_types(op):
    for name, types in TYPES[op].items():
        for number in (0, *types):
            check_choices(op, {name: int(number)})
        for number in (-3, DType.STRING, 99, 1 << 40):
            with pytest.raises(ModelError, match=f"{op}: {name} is {int(number)}, and may be"):
                check_choices(op, {name: int(number)})
