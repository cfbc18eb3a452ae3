"""Reading constants: short lists of integers, scalars, and tensors with one value throughout."""

from __future__ import annotations

import numpy as np

from whence.graph import Graph, Ref

# Axes, pads, shapes and perms are short; a longer constant is data.
_MAX_LIST = 4096


def const_ints(
    graph: Graph, ref: Ref | None, absent: tuple[int, ...] | None = None
) -> tuple[int, ...] | None:
    """The elements of a constant list of integers (or of one integer), `absent` when there is no
    list; `None` when it is not constant, or something else.
    """
    if ref is None:
        return absent
    value = graph.const_value(ref)
    if value is None or value.dtype.kind not in "iu" or value.size > _MAX_LIST:
        return None
    return tuple(value.reshape(-1).tolist())


def const_bool(graph: Graph, ref: Ref | None) -> bool | None:
    """The truth of a constant of one element; `None` when it is absent, not constant, or longer."""
    value = graph.const_value(ref)
    return bool(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def is_filled_with(value: np.ndarray, item: float) -> bool:
    """Is every element equal to `item`? False for an empty tensor and for text."""
    if value.size == 0 or value.dtype == np.object_:
        return False
    # Nearly every constant that is not filled with `item` shows it in its first element.
    return bool(value.flat[0] == item) and bool(np.all(value == value.dtype.type(item)))
