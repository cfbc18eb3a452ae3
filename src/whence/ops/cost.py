"""The work of one application of an operator, from its types alone."""

from __future__ import annotations

from collections.abc import Sequence

from whence.ops.definition import Cost, TypeQuery
from whence.ops.registry import lookup
from whence.ops.traits import Trait
from whence.types import TensorType, ValueType


def cost(op: str, query: TypeQuery, outputs: Sequence[ValueType]) -> Cost | None:
    """Arithmetic operations, and bytes read plus written; `None` when a dimension that matters is
    unknown.
    """
    count = _flops(op, query, outputs)
    moved = _bytes(op, query, outputs)
    return None if count is None or moved is None else Cost(count, moved)


def _flops(op: str, query: TypeQuery, outputs: Sequence[ValueType]) -> int | None:
    flops = lookup(op).flops
    if callable(flops):
        return flops(query, outputs)
    if flops == 0 or not outputs:
        return 0
    elements = outputs[0].elements if isinstance(outputs[0], TensorType) else None
    return None if elements is None else flops * elements


def _bytes(op: str, query: TypeQuery, outputs: Sequence[ValueType]) -> int | None:
    written, known = _total(outputs), lookup(op)
    if written is None:
        return None
    first, others = query.types[:1], query.types[1:]
    read: int | None
    if known.is_(Trait.SHAPE_ONLY):
        read = 0
    elif known.is_(Trait.READS_PART):
        read = written
    else:
        read = _total(first)
    rest = _total(others)
    return None if read is None or rest is None else written + read + rest


def _total(types: Sequence[ValueType | None]) -> int | None:
    total = 0
    for kind in types:
        if kind is None:
            continue
        size = kind.nbytes if isinstance(kind, TensorType) else None
        if size is None:
            return None
        total += size
    return total
