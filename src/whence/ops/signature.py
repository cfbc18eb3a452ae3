"""How many operands and outputs an operator has, and which attributes: from ONNX's schema of it, or
of the operator it is a form of, else from its formula or its own list, and the names of its
operands.

Inference, passes and kernels trust that what must be there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from onnx import defs

from whence.ops.definition import Attr, AttributeKind, Attrs, OpDef
from whence.ops.formula import parameters
from whence.ops.registry import REGISTRY
from whence.ops.types.onnx_node import schema_of
from whence.plural import counted


@dataclass(frozen=True, slots=True)
class _Signature:
    fewest: int
    most: int
    required: tuple[int, ...]
    most_outputs: int
    attributes: Mapping[str, AttributeKind | None] | None
    """What each attribute must be, if that is known; `None` where nothing lists them."""
    required_attributes: tuple[str, ...] = ()


_MANY = 1 << 30
OWN_ATTRIBUTES = frozenset({"captures", "arithmetic"})
"""Those that whence gives to operators of ONNX: how many of the inputs a nested graph captures, and
how a QuantizeLinear rounds. They mean nothing in a file.
"""


def why_malformed(op: str, inputs: Sequence[object], n_outputs: int, attrs: Attrs) -> str:
    """What is wrong with the operands, outputs or attributes of an operator, to be written behind
    its name: " has 1 input; it takes 2". Empty when nothing is. `inputs` are `None` where absent.
    """
    signature = _signature(op)
    if signature is None:
        return ""
    captures = attrs.get("captures", 0)
    count = len(inputs) - (captures if isinstance(captures, int) else 0)
    if not signature.fewest <= count <= signature.most:
        return (
            f" has {counted(count, 'input')}; it takes {_range(signature.fewest, signature.most)}"
        )
    for index in signature.required:
        if index < count and inputs[index] is None:
            return f" lacks its input {index}"
    if n_outputs > signature.most_outputs:
        return f" has {counted(n_outputs, 'output')}; it makes {_range(1, signature.most_outputs)}"
    for name, value in attrs.items():
        kind = (signature.attributes or {}).get(name)
        if kind is not None and not _FITS[kind](value):
            return f": attribute {name!r} is of the wrong kind: it takes {kind.value}"
    for name in signature.required_attributes:
        if name not in attrs:
            return f" lacks its attribute {name!r}"
    return ""


def unknown_attributes(op: str, attrs: Attrs) -> dict[str, str]:
    """The attributes that the operator does not have, and for each a message that says so, to be
    written behind the operator's name. None when nothing lists the operator's attributes.
    """
    signature = _signature(op)
    if not attrs or signature is None or signature.attributes is None:
        return {}
    if attrs.keys() <= signature.attributes.keys():
        return {}
    known = ", ".join(sorted(signature.attributes)) or "none"
    return {
        name: f" has no attribute {name!r}; it has {known}"
        for name in attrs
        if name not in signature.attributes and name not in OWN_ATTRIBUTES
    }


def why_wrong(op: str, inputs: Sequence[object], n_outputs: int, attrs: Attrs) -> str:
    """As `why_malformed`, and what is wrong with the names of attributes."""
    unknown = unknown_attributes(op, attrs)
    return why_malformed(op, inputs, n_outputs, attrs) or next(iter(unknown.values()), "")


@cache
def _signature(op: str) -> _Signature | None:
    definition = REGISTRY.get(op)
    schema = schema_of(op)
    if schema is not None:
        return _of_schema(schema)
    return None if definition is None else _of_definition(definition)


def _of_schema(schema: defs.OpSchema) -> _Signature:
    # The package's stubs do not say that its kinds of attributes have names.
    kinds = {
        name: attribute.type.name  # type: ignore[attr-defined]
        for name, attribute in schema.attributes.items()
    }
    return _Signature(
        schema.min_input,
        schema.max_input,
        _required(schema),
        schema.max_output,
        {name: AttributeKind.__members__.get(kind) for name, kind in kinds.items()},
        tuple(
            name
            for name, kind in kinds.items()
            if kind in AttributeKind.__members__ and schema.attributes[name].required
        ),
    )


def _of_definition(definition: OpDef) -> _Signature:
    operands, plain = definition.operands, schema_of(definition.plain)
    required = tuple(range(operands.required)) if plain is None else _required(plain)
    most = _MANY if operands.variadic else len(operands.names)
    if definition.formula is None:
        return _Signature(len(required), most, required, _MANY, definition.attributes)
    numbers = dict.fromkeys(parameters(definition.formula), AttributeKind.FLOAT)
    return _Signature(len(required), most, required, 1, numbers)


def _required(schema: defs.OpSchema) -> tuple[int, ...]:
    single = defs.OpSchema.FormalParameterOption.Single
    return tuple(index for index, formal in enumerate(schema.inputs) if formal.option == single)


def _range(fewest: int, most: int) -> str:
    if fewest == most:
        return str(fewest)
    return f"{fewest} or more" if most > 1 << 20 else f"{fewest} to {most}"


def _is_int(value: Attr) -> bool:
    return isinstance(value, int)


def _is_number(value: Attr) -> bool:
    return isinstance(value, (int, float))


def _is_text(value: Attr) -> bool:
    return isinstance(value, (str, bytes))


def _list_of(fits: Callable[[Attr], bool]) -> Callable[[Attr], bool]:
    return lambda value: isinstance(value, tuple) and all(map(fits, value))


_FITS: Mapping[AttributeKind, Callable[[Attr], bool]] = {
    AttributeKind.INT: _is_int,
    AttributeKind.FLOAT: _is_number,
    AttributeKind.STRING: _is_text,
    AttributeKind.INTS: _list_of(_is_int),
    AttributeKind.FLOATS: _list_of(_is_number),
    AttributeKind.STRINGS: _list_of(_is_text),
    AttributeKind.TENSOR: lambda value: isinstance(value, np.ndarray),
}
