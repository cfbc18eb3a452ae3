"""Sizes of the dimensions that a model names, as shapes of its inputs.

A file may call a size by an expression over others (`past_sequence_length + sequence_length`): it
follows from those. An open size without a name is called by its input and axis, `x_1`.
"""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from whence.errors import InputError
from whence.extent import is_symbolic
from whence.extent.dimensions import OPERATORS, evaluated
from whence.ops.binding import Port
from whence.types import Dim, TensorType

Dims = Mapping[str, int]
"""Sizes by the names of dimensions."""
_SHOWN = 12
_LONGEST = 400
"""Characters of a name that is read as an expression: a sum of thousands would be as deep."""


class OpenSize(NamedTuple):
    """A size that an input leaves open."""

    input: str
    axis: int
    name: str


def open_sizes(ports: Sequence[Port]) -> Iterator[OpenSize]:
    """All that the inputs leave open, in their order."""
    for name, kind in ports:
        if isinstance(kind, TensorType):
            for axis, dim in enumerate(kind.shape or ()):
                if not isinstance(dim, int):
                    yield OpenSize(name, axis, dimension_name(name, axis, dim))


def dimension_name(port: str, axis: int, dim: Dim) -> str:
    """The name of an open size: the file's, or one by its place where that is empty or `?`."""
    named = isinstance(dim, str) and any(char.isalnum() for char in dim)
    return dim if named and isinstance(dim, str) else f"{port}_{axis}"


def sized_inputs(
    ports: Sequence[Port], dims: Dims, shapes: Mapping[str, Sequence[Dim]] | None = None
) -> dict[str, tuple[Dim, ...]]:
    """The shapes of inputs with the sizes of `dims` in place of the dimensions' names; other sizes
    stay open. `shapes` are given besides, and must agree.
    """
    given = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    places = list(open_sizes(ports))
    known = dict.fromkeys(place.name for place in places)
    for name, size in dims.items():
        _check_size(name, size)
        if name not in known and not any(name in names_in(text) for text in known):
            raise InputError(_unknown(name, list(known)))
    found: dict[str, list[Dim]] = {}
    declared = dict(ports)
    for place in places:
        wanted = size_of(place.name, dims)
        if wanted is None:
            continue
        kind, axis = declared[place.input], place.axis
        assert isinstance(kind, TensorType)
        shape = given.get(place.input, kind.shape or ())
        if axis >= len(shape):
            # Where the shape is applied, the error says what is wrong with it.
            continue
        was = shape[axis]
        if isinstance(was, int) and was != wanted:
            raise InputError(
                f"dimension '{place.name}' is given as {wanted}, and input '{place.input}' with"
                f" shape {list(shape)}, where it is {was}"
            )
        found.setdefault(place.input, list(shape))[axis] = wanted
    return {**given, **{name: tuple(row) for name, row in found.items()}}


def named_sizes(
    declared: Mapping[str, Sequence[Dim]], shapes: Mapping[str, Sequence[Dim]]
) -> dict[str, int]:
    """The size of each dimension that the inputs name, in a call with inputs of these shapes; that
    of the first where a name has several.
    """
    found: dict[str, int] = {}
    for name, dims in declared.items():
        for dim, size in zip(dims, shapes.get(name, ()), strict=False):
            if isinstance(dim, str) and isinstance(size, int) and not is_symbolic(size):
                found.setdefault(dim, int(size))
    return found


# ---- names that are expressions ----


def size_of(name: str, dims: Dims) -> int | None:
    """The size that follows for a dimension of this name; `None` where it depends on others."""
    if name in dims:
        return int(dims[name])
    tree = _expression(name)
    try:
        return None if tree is None else evaluated(tree, lambda part: int(dims[part]))
    except (KeyError, ZeroDivisionError):
        return None


def names_in(name: str) -> list[str]:
    """The dimensions that a name which is an expression is made of; none for any other name."""
    tree = _expression(name)
    return [] if tree is None else [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]


def _expression(name: str) -> ast.expr | None:
    """A name as arithmetic on other names and numbers; `None` for one that is none of it."""
    if len(name) > _LONGEST:
        return None
    try:
        tree = ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.BinOp) and _is_arithmetic(tree) else None


def _is_arithmetic(tree: ast.expr) -> bool:
    match tree:
        case ast.BinOp(left, op, right):
            return type(op) in OPERATORS and _is_arithmetic(left) and _is_arithmetic(right)
        case ast.Constant(value):
            return type(value) is int
        case _:
            return isinstance(tree, ast.Name)


# ---- errors ----


def _check_size(name: str, size: object) -> None:
    try:
        number = operator.index(size)  # type: ignore[arg-type]  # whatever a caller gives
    except TypeError:
        raise InputError(
            f"dimension '{name}' is given as {size!r}; a size is a whole number"
        ) from None
    if isinstance(size, bool) or number < 0:
        raise InputError(f"dimension '{name}' is given as {size}; a size is 0 or more")


def _unknown(name: str, known: Sequence[str]) -> str:
    if not known:
        return f"a size is given for dimension '{name}', and the model leaves no size open"
    close = difflib.get_close_matches(name, known, 1)
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return (
        f"the model has no dimension '{name}'"
        + (f"; did you mean '{close[0]}'?" if close else "")
        + f" (it leaves open: {', '.join(known[:_SHOWN])}{more})"
    )
