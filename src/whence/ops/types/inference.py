"""Output types of an operator: its own rule where it has one, else the `onnx` package's inference,
with a memory for the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import onnx
import onnx.helper
import onnx.shape_inference

from whence.errors import ModelError
from whence.extent import estimate, is_symbolic
from whence.ops.definition import Infer, OpDef, TypeQuery, Value, naming
from whence.ops.fallback import first_line
from whence.ops.operands.rules import check_operands
from whence.ops.registry import lookup
from whence.ops.types.expression_rules import EXPRESSION_RULES
from whence.ops.types.onnx_node import (
    from_type_proto,
    make_node,
    operand_names,
    opset_imports,
    schema_of,
    to_tensor_proto,
    to_type_proto,
)
from whence.types import UNKNOWN, Dim, DType, TensorType, ValueType, map_dims

__all__ = ["Inference", "from_type_proto", "infer", "to_type_proto"]

# No inference needs the content of a larger constant: shapes, axes, pads and scales are short.
_MAX_ELEMENTS = 64


def infer(query: TypeQuery) -> tuple[ValueType, ...]:
    """The types of the outputs of `query`, exactly `n_outputs` of them; what is not known is
    `UNKNOWN` or has unknown dimensions.

    Raises `ModelError` when the inputs contradict each other and `UnsupportedError` when the
    operator is not known.
    """
    return Inference().infer(query)


_PLAIN = frozenset({int, float, str, bytes})


def _plain_kinds(attr: object) -> frozenset[type] | None:
    """What an attribute is made of, if it is numbers or text: 1 and 1.0 are not the same."""
    kinds = frozenset(map(type, attr if isinstance(attr, tuple) else (attr,)))
    return kinds if kinds <= _PLAIN else None


def form_of_query(query: TypeQuery) -> Hashable | None:
    """What the answer follows from, where operands are known by their types alone: layers repeat.
    `None` where it may depend on what constants hold.
    """
    # What is computed element by element follows from the operands' types alone, other results
    # from the attributes too and from what constants have.
    if not query.attrs and lookup(query.op).formula is not None:
        return query.op, query.types, query.n_outputs
    kinds = tuple(map(_plain_kinds, query.attrs.values()))
    if None in kinds or any(value is not None for value in query.values):
        return None
    attrs = cast(Iterable[Hashable], query.attrs.items())
    return query.op, query.types, query.n_outputs, kinds, *attrs


class Inference:
    """Inference that remembers what it found for operators on the same types, and what it asked the
    `onnx` package, which takes some 100 µs to answer. One for each graph being built.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[ValueType, ...]] = {}

    def infer(self, query: TypeQuery) -> tuple[ValueType, ...]:
        """As the function `infer`."""
        try:
            return self._infer(query)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # Rules trust that an operator has the inputs it must have; in a malformed file it may
            # not.
            raise ModelError(
                f"{query.op} on ({', '.join(map(str, query.types))}): its inputs or attributes do"
                f" not fit it: {first_line(error)}"
            ) from error

    def _infer(self, query: TypeQuery) -> tuple[ValueType, ...]:
        known = lookup(query.op)
        key = form_of_query(query)
        if key is None:
            return self._infer_anew(query, known)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._infer_anew(query, known)
        return found

    def _infer_anew(self, query: TypeQuery, known: OpDef) -> tuple[ValueType, ...]:
        check_operands(query)
        rule = known.infer
        if rule is not None:
            return _possible(query, _apply(rule, query))
        values = tuple(_small(value) for value in query.values)
        key = _key(query, values)
        if key is None:
            return _possible(query, _ask(query, values))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _possible(query, _ask(query, values))
        return found


def _apply(rule: Infer, query: TypeQuery) -> tuple[ValueType, ...]:
    try:
        found = rule(query)
    except ModelError as error:
        raise naming(query.op, error) from error
    return _outputs(query, found)


def _outputs(query: TypeQuery, found: ValueType | tuple[ValueType, ...]) -> tuple[ValueType, ...]:
    """What a rule found, for as many outputs as there are."""
    types = found if isinstance(found, tuple) else (found,)
    missing = query.n_outputs - len(types)
    return types if missing == 0 else (*types[: query.n_outputs], *[UNKNOWN] * missing)


def _possible(query: TypeQuery, types: tuple[ValueType, ...]) -> tuple[ValueType, ...]:
    for kind in types:
        if (
            isinstance(kind, TensorType)
            and kind.shape is not None
            and any(isinstance(dim, int) and dim < 0 for dim in kind.shape)
        ):
            raise ModelError(
                f"{query.op}: its result would be {kind}, which has a negative dimension"
            )
    return types


def _small(value: Value | None) -> np.ndarray | None:
    fits = (
        isinstance(value, np.ndarray) and value.size <= _MAX_ELEMENTS and value.dtype != np.object_
    )
    return value if fits else None


def _key(query: TypeQuery, values: tuple[np.ndarray | None, ...]) -> Hashable | None:
    """What the answer depends on; `None` when that is too long to be worth keeping."""
    if any(map(_has_expressions, query.values)):
        return None
    attrs = []
    for name, attr in sorted(query.attrs.items()):
        if isinstance(attr, np.ndarray):
            if _small(attr) is None:
                return None
            attrs.append((name, _array_key(attr)))
        else:
            attrs.append((name, (type(attr), attr)))
    contents = tuple(None if value is None else _array_key(value) for value in values)
    return query.op, tuple(attrs), query.types, contents, query.n_outputs


def _array_key(array: np.ndarray) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tobytes()


def _ask(query: TypeQuery, values: tuple[np.ndarray | None, ...]) -> tuple[ValueType, ...]:
    """What the `onnx` package says. Expressions are names to it; where it gets further with the
    sizes of the call that is compiled for, what it says holds for those.
    """
    names: dict[str, int] = {}

    def named(dim: Dim) -> Dim:
        if isinstance(dim, int) and is_symbolic(dim):
            names[f"extent {dim!s}"] = dim
            return f"extent {dim!s}"
        return dim

    by_name = _with_dims(query, named)
    if not names and not any(map(_has_expressions, query.values)):
        return _ask_onnx(query, values)
    rule = EXPRESSION_RULES.get(query.op)
    known = None if rule is None else rule(query)
    if known is not None and _all_static(own := _outputs(query, known)):
        return own
    found = tuple(
        map_dims(kind, lambda dim: names.get(dim, dim) if isinstance(dim, str) else dim)
        for kind in _ask_onnx(by_name, values)
    )
    if _all_static(found):
        return found
    sure = _ask_with_numbers(query, values, estimate)
    return _ask_with_numbers(query, values, int) if _all_static(sure) else found


def _all_static(types: tuple[ValueType, ...]) -> bool:
    return all(isinstance(kind, TensorType) and kind.is_static for kind in types)


def _ask_with_numbers(
    query: TypeQuery, values: tuple[np.ndarray | None, ...], to_number: Callable[[int], int]
) -> tuple[ValueType, ...]:
    known = tuple(
        np.array([to_number(item) for item in value.reshape(-1)]).reshape(value.shape)
        if isinstance(value, np.ndarray) and _has_expressions(value)
        else given
        for value, given in zip(query.values, values, strict=True)
    )
    numbers = _with_dims(query, lambda dim: to_number(dim) if isinstance(dim, int) else dim)
    return _ask_onnx(numbers, known)


def _with_dims(query: TypeQuery, function: Callable[[Dim], Dim]) -> TypeQuery:
    """The query with `function` of the dimensions of its operands."""
    types = (None if kind is None else map_dims(kind, function) for kind in query.types)
    return replace(query, types=tuple(types))


def _has_expressions(value: Value | None) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype == np.object_
        and any(map(is_symbolic, value.reshape(-1)))
    )


def _ask_onnx(query: TypeQuery, values: tuple[np.ndarray | None, ...]) -> tuple[ValueType, ...]:
    schema = schema_of(query.op)
    if schema is None:
        return (UNKNOWN,) * query.n_outputs
    inputs, outputs = operand_names(query.types, query.n_outputs)
    types = {
        name: to_type_proto(_readable(query.op, index, kind))
        for index, (name, kind) in enumerate(zip(inputs, query.types, strict=False))
        if name and kind is not None
    }
    data = {
        name: to_tensor_proto(value)
        for name, value in zip(inputs, values, strict=False)
        if name and value is not None
    }
    found: dict[str, onnx.TypeProto] = {}
    try:
        node = make_node(query.op, query.attrs, inputs, outputs)
        found = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=opset_imports(query.op)
        )
    # The package reports contradictions with exceptions of several unrelated kinds.
    except Exception as error:
        if UNKNOWN not in query.types:
            raise ModelError(f"{query.op}: {first_line(error)}") from error
    results = [from_type_proto(found[name]) if name in found else UNKNOWN for name in outputs]
    return tuple(
        _complete(_believable(kind, query), schema, index, query)
        for index, kind in enumerate(results)
    )


def _readable(op: str, index: int, kind: ValueType) -> ValueType:
    """An input type as the package reads it rightly: some unknown dimensions it takes for 0."""
    if index in _MISREAD.get(op, ()) and isinstance(kind, TensorType) and not kind.is_static:
        return TensorType(kind.dtype)
    return kind


_MISREAD: dict[str, tuple[int, ...]] = {"StringNormalizer": (0,)}


def _believable(kind: ValueType, query: TypeQuery) -> ValueType:
    """An answer without the zeros that the package makes of unknown dimensions."""
    shapes = [item.shape for item in query.types if isinstance(item, TensorType)]
    if (
        not isinstance(kind, TensorType)
        or kind.shape is None
        or all(item.is_static for item in query.types if isinstance(item, TensorType))
    ):
        return kind
    if query.op == "Attention" and None in shapes:
        return TensorType(kind.dtype)
    return TensorType(kind.dtype, tuple(None if dim == 0 else dim for dim in kind.shape))


def _complete(
    kind: ValueType, schema: onnx.defs.OpSchema, index: int, query: TypeQuery
) -> ValueType:
    """Fill in an element type that inference left open, from the declared type of the output."""
    if not isinstance(kind, TensorType) or kind.dtype is not DType.UNDEFINED or not schema.outputs:
        return kind
    declared = schema.outputs[min(index, len(schema.outputs) - 1)].type_str
    for formal, given in zip(schema.inputs, query.types, strict=False):
        if formal.type_str == declared and isinstance(given, TensorType):
            return TensorType(given.dtype, kind.shape)
    return TensorType(_FIXED.get(declared, DType.UNDEFINED), kind.shape)


_FIXED = {
    "tensor(float)": DType.F32,
    "tensor(double)": DType.F64,
    "tensor(int64)": DType.I64,
    "tensor(int32)": DType.I32,
    "tensor(bool)": DType.BOOL,
    "tensor(string)": DType.STRING,
}
