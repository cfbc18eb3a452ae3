"""Which scalar constants exist already, so that equal scalars share one node.

Zero and the two infinities are pinned: once made they are remembered for good. Other values are
kept on a best-effort basis, the least recently used leaving first. The key is the element type and
the bit pattern: -0.0 is not 0.0, and a NaN equals itself.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from whence.types import DType

_ROOM = 32
_Key = tuple[DType, bytes]


class ConstCache:
    """Maps scalar values to the ids of the `Const` nodes that hold them."""

    def __init__(self) -> None:
        self._pinned: dict[_Key, int] = {}
        self._recent: OrderedDict[_Key, int] = OrderedDict()

    def get(self, value: np.ndarray) -> int | None:
        key = scalar_key(value)
        if key in self._pinned:
            return self._pinned[key]
        if key in self._recent:
            self._recent.move_to_end(key)
            return self._recent[key]
        return None

    def put(self, value: np.ndarray, node_id: int) -> None:
        key = scalar_key(value)
        if _is_pinned(value):
            self._pinned[key] = node_id
            return
        self._recent[key] = node_id
        self._recent.move_to_end(key)
        if len(self._recent) > _ROOM:
            self._recent.popitem(last=False)

    def purge(self, node_id: int) -> None:
        """Forget a constant: it is about to change or to leave the graph."""
        for entries in (self._pinned, self._recent):
            for key in [key for key, known in entries.items() if known == node_id]:
                del entries[key]

    def node_ids(self) -> set[int]:
        return {*self._pinned.values(), *self._recent.values()}


def scalar_key(value: np.ndarray) -> _Key:
    """What two scalars must share to be the same constant."""
    dtype = DType.of(value)
    # The bytes of an object array are addresses.
    return dtype, repr(value.item()).encode() if dtype is DType.STRING else value.tobytes()


def _is_pinned(value: np.ndarray) -> bool:
    dtype = DType.of(value)
    if dtype.is_integer:
        return bool(value == 0)
    return dtype.is_float and (bool(value == 0 and not np.signbit(value)) or bool(np.isinf(value)))
