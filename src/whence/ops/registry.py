"""All operators by name, and their evaluation."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from whence.errors import ModelError, UnsupportedError, WhenceError
from whence.ops.classical import encoders, linear_models, trees
from whence.ops.definition import Call, OpClass, OpDef, Value, naming
from whence.ops.fallback import first_line, onnx_reference
from whence.ops.neural import (
    attention,
    blocked,
    channels_last,
    conv,
    detection,
    fused,
    grouped_attention,
    matmul,
    nonlinear,
    norm,
    pool,
    recurrent,
    resize,
)
from whence.ops.operands.attribute_choices import check_choices
from whence.ops.quantised import blockwise, integer, quantise
from whence.ops.tensor import (
    cast,
    control,
    counted,
    elementwise,
    image,
    indexing,
    movement,
    random,
    reduce,
    selection,
    sequence,
    shape,
    signal,
    text,
    training,
)
from whence.ops.traits import FORM, Trait

_FAMILIES = (
    *(encoders, linear_models, trees),
    *(attention, blocked, channels_last, conv, detection, fused, grouped_attention, matmul),
    *(nonlinear, norm, pool, recurrent, resize),
    *(blockwise, integer, quantise),
    *(cast, control, counted, elementwise, image, indexing, movement, random),
    *(reduce, selection, sequence, shape, signal, text, training),
)


def collect(families: Iterable[tuple[OpDef, ...]]) -> Mapping[str, OpDef]:
    """The operators of all families by name. Two definitions of one name are a mistake."""
    found: dict[str, OpDef] = {}
    for family in families:
        for definition in family:
            if definition.name in found:
                raise ValueError(f"operator {definition.name} is defined twice")
            found[definition.name] = definition
    return MappingProxyType(found)


REGISTRY: Mapping[str, OpDef] = collect(family.OPS for family in _FAMILIES)


# By numbers: to ask an enum for its value takes longer than all else here.
_TRAITS = [(name, known.traits.value) for name, known in REGISTRY.items()]
_BY_TRAIT: Mapping[Trait, frozenset[str]] = {
    trait: frozenset([name for name, traits in _TRAITS if traits & wanted])
    for trait, wanted in ((trait, trait.value) for trait in Trait)
}
_FORMS: Mapping[tuple[str, Trait], str] = {
    (known.plain, known.traits & FORM): name for name, known in REGISTRY.items() if known.plain
}


def operators(*traits: Trait) -> frozenset[str]:
    """The operators that have all of these traits."""
    return frozenset.intersection(*(_BY_TRAIT[trait] for trait in traits))


@functools.cache
def one_of(*ops: str) -> frozenset[str]:
    """The alternatives of a pattern, each of which must be an operator. What is true of a class of
    operators is a trait, not a list.
    """
    for op in ops:
        lookup(op)
    return frozenset(ops)


def plain_name(op: str) -> str:
    """The ONNX operator that `op` computes in another layout, or fused with others."""
    known = REGISTRY.get(op)
    return known.plain if known is not None and known.plain else op


def form_of(plain: str, form: Trait) -> str | None:
    """The operator that computes what `plain` does, fused or in another layout: `form` is the
    combination of FUSED, BLOCKED and CHANNELS_LAST that it has. `None` when there is none.
    """
    return _FORMS.get((plain, form))


def lookup(op: str) -> OpDef:
    """The definition of an operator. Raises `UnsupportedError`, with similar names."""
    definition = REGISTRY.get(op)
    if definition is None:
        close = difflib.get_close_matches(op, REGISTRY, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise UnsupportedError(f"operator {op!r} is not known{hint}")
    return definition


def classes_of(op: str) -> OpClass:
    """The class flags of an operator; none for an unknown one."""
    definition = REGISTRY.get(op)
    return OpClass.NONE if definition is None else definition.classes


def evaluate(call: Call) -> tuple[Value, ...]:
    """The outputs of one operator on actual values: exactly `n_outputs`, tensors always as arrays,
    text as object arrays.

    Raises `ModelError` when the values do not fit the operator and `UnsupportedError` when it
    cannot be evaluated alone.
    """
    definition = lookup(call.op)
    if call.op in control.INTERPRETED:
        raise UnsupportedError(
            f"{call.op} is evaluated by walking the graph it is part of, not alone"
        )
    check_choices(call.op, call.attrs)
    try:
        # Operators are defined on overflow, division by zero and NaN; they are no reason to warn.
        with np.errstate(all="ignore"):
            made = (definition.reference or onnx_reference)(call)
    except WhenceError as error:
        raise naming(call.op, error) from error
    except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as error:
        raise ModelError(f"{call.op}: {first_line(error)}") from error
    results = made if isinstance(made, tuple) else (made,)
    if len(results) < call.n_outputs:
        raise ModelError(
            f"{call.op}: {call.n_outputs} outputs are asked for, it has {len(results)}"
        )
    return tuple(_proper(value) for value in results[: call.n_outputs])


def _proper(value: Any) -> Value:
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, list):
        return [_proper(item) for item in value]
    array = np.asarray(value)
    return array.astype(np.object_) if array.dtype.kind in "UST" else array
