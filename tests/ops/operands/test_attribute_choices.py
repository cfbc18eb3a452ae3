"""Words and element types that an attribute may not be, and axes that do not exist."""

from __future__ import annotations

import pytest
from onnx import defs

from whence.errors import ModelError
from whence.ops.definition import Attr, TypeQuery
from whence.ops.operands.attribute_choices import AXES, CHOICES, NUMBERS, TYPES, check_choices
from whence.ops.registry import REGISTRY
from whence.types import DType, TensorType


def query(op: str, name: str, value: Attr) -> TypeQuery:
    return TypeQuery(op, {name: value}, (TensorType(DType.F32, (2, 3)),), (None,), 1)


@pytest.mark.parametrize("op", CHOICES)
def test_words(op):
    for name, words in CHOICES[op].items():
        for word in words:
            check_choices(query(op, name, word))
        with pytest.raises(ModelError, match=f"{op}: {name} is 'sideways', and may be {words[0]}"):
            check_choices(query(op, name, "sideways"))


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


@pytest.mark.parametrize("op", NUMBERS)
def test_numbers_that_choose_a_way(op):
    for name, numbers in NUMBERS[op].items():
        for number in numbers:
            check_choices(query(op, name, number))
        for number in (-1, 16, 1 << 40):
            with pytest.raises(ModelError, match=f"{op}: {name} is {number}, and may be"):
                check_choices(query(op, name, number))


@pytest.mark.parametrize("op", TYPES)
def test_element_types(op):
    for name, types in TYPES[op].items():
        for number in (0, *types):
            check_choices(query(op, name, int(number)))
        for number in (-3, DType.STRING, 99, 1 << 40):
            with pytest.raises(ModelError, match=f"{op}: {name} is {int(number)}, and may be"):
                check_choices(query(op, name, int(number)))


@pytest.mark.parametrize("op", AXES)
def test_axes(op):
    one = AXES[op] == "axis"
    for axis in (-2, 0, 1):
        check_choices(query(op, AXES[op], axis if one else (0, axis)))
    for axis in (-3, 2, 1 << 40):
        with pytest.raises(ModelError, match=f"{axis} does not exist"):
            check_choices(query(op, AXES[op], axis if one else (0, axis)))
