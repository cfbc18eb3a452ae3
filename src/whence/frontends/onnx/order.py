"""The order in which a file's operators can run. ONNX asks for it; not every file keeps it."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence, Set

from whence.errors import ModelError
from whence.frontends.naming import quoted
from whence.frontends.onnx.record import OpRecord


def running_order(
    records: Sequence[OpRecord], inner: Mapping[int, Sequence[str]], given: Set[str]
) -> Sequence[int]:
    """The positions of `records` such that each reads only what earlier ones make; file order
    wherever that is possible.

    `inner` names, by position, what the nested graphs of a record read from outside. `given` are
    the values that exist before any of them runs. A value made twice, or a circle, is a
    `ModelError`.
    """
    maker: dict[str, int] = {}
    for position, record in enumerate(records):
        for value in record.outputs:
            if not value:
                continue
            if value in maker or value in given:
                raise ModelError(
                    f"{record} makes {quoted(value)}, which {_maker(records, maker, value)} makes"
                    " already"
                )
            maker[value] = position
    for position, record in enumerate(records):
        reads = (*record.inputs, *inner[position]) if position in inner else record.inputs
        for value in reads:
            if maker.get(value, -1) >= position:
                return _sorted(records, inner, maker)
    return range(len(records))


def _maker(records: Sequence[OpRecord], maker: Mapping[str, int], value: str) -> str:
    return str(records[maker[value]]) if value in maker else "an input or initializer"


def _sorted(
    records: Sequence[OpRecord], inner: Mapping[int, Sequence[str]], maker: Mapping[str, int]
) -> list[int]:
    waiting = [0] * len(records)
    readers: list[list[int]] = [[] for _ in records]
    for position, record in enumerate(records):
        makers = {
            maker[value] for value in (*record.inputs, *inner.get(position, ())) if value in maker
        }
        waiting[position] = len(makers)
        for earlier in makers:
            readers[earlier].append(position)
    ready = [position for position, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for reader in readers[position]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(records):
        raise ModelError(
            f"{records[_on_circle(records, inner, maker, waiting)]} reads its own result: the graph"
            " has a cycle"
        )
    return order


def _on_circle(
    records: Sequence[OpRecord],
    inner: Mapping[int, Sequence[str]],
    maker: Mapping[str, int],
    waiting: Sequence[int],
) -> int:
    """A position on a circle: following unfinished makers backwards must meet one twice."""
    position = next(index for index, count in enumerate(waiting) if count)
    seen: set[int] = set()
    while position not in seen:
        seen.add(position)
        values = (*records[position].inputs, *inner.get(position, ()))
        position = next(
            maker[value] for value in values if value in maker and waiting[maker[value]]
        )
    return position
