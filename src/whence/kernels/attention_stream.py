"""Keys and values as one stream from memory: what a single query reads is read once, so that memory
is to be busy all the time. Each row asks for the one that is read some rows later.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.kernels.builder import Builder, Pointer
from whence.kernels.index import Var
from whence.kernels.ir import END, TASK, Count, Countable, Counter, count
from whence.kernels.product.gemm_program import Matrix
from whence.machine import CACHE_LINE

_ROWS_AHEAD = 24
"""Prefetch distance: memory answers meanwhile."""
_LINE = CACHE_LINE // 4


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Keys or values as they lie."""

    first: Pointer
    stride: int


def prefetch_row(
    build: Builder,
    rows: StoredRows,
    at: Count,
    end: Count,
    then: StoredRows,
    columns: int,
    begin: Countable,
) -> None:
    """Ask for what is read some rows after `at`: of those that come `then`, where these end."""
    ahead = build.count("ahead", at + _ROWS_AHEAD)
    other = build.pointer("row", then.first, (ahead - end) * then.stride, alone=False)
    row = build.choose_pointer("next", ahead < end, rows.first, ahead * rows.stride, other)
    for line in range(0, columns, _LINE):
        build.prefetch(row, count(begin) + line, nearest=True)


def next_keys(build: Builder, keys: Matrix, first: Pointer, head: Var) -> StoredRows:
    """Those of the next work item, if this worker has one: heads lie behind one another."""
    has_next = Counter(TASK) + 1 < Counter(END)
    distance = count(keys.base.coefficient(head))
    return StoredRows(
        build.choose_pointer("next_keys", has_next, first, distance, first), keys.row_stride
    )
