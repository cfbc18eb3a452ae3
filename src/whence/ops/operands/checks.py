"""What rules are made of: each check raises a `ModelError` that names the operator, what was found
and what it should be. What is not known yet is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import Check, TypeQuery
from whence.ops.types.type_rules import const_ints
from whence.types import Dim, DType, Shape, TensorType, differ, shape_text


def shape_of(query: TypeQuery, index: int) -> Shape | None:
    kind = query.types[index] if index < len(query.types) else None
    return kind.shape if isinstance(kind, TensorType) else None


def dtype_of(query: TypeQuery, index: int) -> DType:
    kind = query.types[index] if index < len(query.types) else None
    return kind.dtype if isinstance(kind, TensorType) else DType.UNDEFINED


def count_of(shape: Shape | None) -> int | None:
    """How many elements there are, if that is known."""
    return TensorType(DType.UNDEFINED, shape).elements


def exceeds(found: Dim, limit: Dim) -> bool:
    return isinstance(found, int) and isinstance(limit, int) and found > limit


def demand(query: TypeQuery, index: int, wanted: Sequence[Dim], what: str) -> None:
    """Input `index`, if there is one of known rank, has this shape where both are known."""
    found = shape_of(query, index)
    if found is not None and (len(found) != len(wanted) or any(map(differ, found, wanted))):
        raise ModelError(f"{what} is {query.types[index]}, and should be {shape_text(wanted)}")


def demand_broadcast(query: TypeQuery, index: int, target: Shape | None, what: str) -> None:
    """Input `index` spreads over `target` without making it larger."""
    found = shape_of(query, index)
    if found is None or target is None:
        return
    fits = len(found) <= len(target) and all(
        dim == 1 or not differ(dim, wanted)
        for dim, wanted in zip(found[::-1], target[::-1], strict=False)
    )
    if not fits:
        raise ModelError(
            f"{what} is {query.types[index]}, which does not spread over {shape_text(target)}"
        )


def demand_one(query: TypeQuery, index: int, what: str) -> None:
    """Input `index`, if there is one, is one number: no axes, or axes of 1."""
    found = shape_of(query, index)
    if found is not None and any(isinstance(dim, int) and dim != 1 for dim in found):
        raise ModelError(f"{what} is {query.types[index]}, and should be one number")


def demand_list(query: TypeQuery, index: int, length: int | None, what: str) -> None:
    """Input `index`, if there is one, is a list, of that many elements if a length is given."""
    found = shape_of(query, index)
    if found is not None and (len(found) != 1 or differ(found[0], length)):
        wanted = "a list" if length is None else f"a list of {length}"
        raise ModelError(f"{what} is {query.types[index]}, and should be {wanted}")


def demand_lengths(query: TypeQuery, index: int, longest: Dim) -> None:
    """Input `index`, if it is known, has lengths of sequences along an axis of that size."""
    lengths = const_ints(query, index)
    if lengths and any(length < 0 or exceeds(length, longest) for length in lengths):
        raise ModelError(f"sequence_lens {list(lengths)} are not lengths of an axis of {longest}")


def demand_rank(query: TypeQuery, index: int, fewest: int, most: int = 64) -> None:
    """Input `index` has so many axes."""
    found = shape_of(query, index)
    if found is not None and not fewest <= len(found) <= most:
        wanted = str(fewest) if fewest == most else f"at least {fewest}"
        if fewest < most < 64:
            wanted = f"{fewest} to {most}"
        raise ModelError(f"input {index} is {query.types[index]}, and should have {wanted} axes")


def demand_elements(query: TypeQuery, index: int, allowed: Collection[DType], what: str) -> None:
    """Input `index` has elements of one of these types."""
    found = dtype_of(query, index)
    if found is not DType.UNDEFINED and found not in allowed:
        raise ModelError(f"input {index} is {query.types[index]}, it takes {what}")


def demand_numbers(query: TypeQuery, index: int) -> None:
    """Input `index` has elements that can be added and compared, which truth values are not."""
    if dtype_of(query, index) is DType.BOOL:
        raise ModelError(f"input {index} is {query.types[index]}, it takes numbers")


def demand_reals(query: TypeQuery, index: int) -> None:
    """Input `index` has elements with fractions, of whatever precision."""
    found = dtype_of(query, index)
    if found is not DType.UNDEFINED and not found.is_float:
        raise ModelError(f"input {index} is {query.types[index]}, it takes floating-point numbers")


def demand_same_elements(query: TypeQuery, index: int, other: int) -> None:
    """Inputs `index` and `other` have elements of one type."""
    found, wanted = dtype_of(query, index), dtype_of(query, other)
    if DType.UNDEFINED not in (found, wanted) and found is not wanted:
        raise ModelError(
            f"input {index} is {query.types[index]}, and should have the elements of"
            f" input {other}, {query.types[other]}"
        )


def divided(size: Dim, parts: int, what: str) -> None:
    if parts < 1 or (isinstance(size, int) and size % parts):
        raise ModelError(f"{size} {what} cannot be divided by {parts}")


def axis_in(axis: int, shape: Shape | None, *, one_more: bool = False, name: str = "axis") -> None:
    """`axis` is one of a tensor of that shape, or of one with an axis more."""
    if shape is None:
        return
    rank = len(shape) + one_more
    if not -rank <= axis < rank:
        raise ModelError(f"{name} {axis} does not exist in a tensor of rank {len(shape)}")


def along(default: int, demand: Callable[[TypeQuery, int], None] | None = None) -> Check:
    """A rule for operators that work along the attribute `axis` of their first input, of whose
    elements more may be demanded.
    """

    def rule(query: TypeQuery) -> None:
        if demand is not None:
            demand(query, 0)
        axis_in(get_int(query.attrs, "axis", default), shape_of(query, 0))

    return rule


def const_length(query: TypeQuery, index: int) -> int | None:
    """How many numbers a constant list has, or one whose type says it."""
    values = const_ints(query, index)
    if values is not None:
        return len(values)
    found = shape_of(query, index)
    return found[0] if found is not None and len(found) == 1 and isinstance(found[0], int) else None


def by_types(query: TypeQuery) -> None:
    """The rule of an operator whose inference checks all there is to check: every operand has a
    part in the type of the output.
    """
