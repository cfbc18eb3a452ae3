"""Attention on a device: a group of work items for each query, whose scores lie in shared
memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whence.kernels.builder import Builder, Memory
from whence.kernels.expressions import apply, choose
from whence.kernels.ir import Count, Fn, Literal, Name, Op, Stmt, count, lanewise
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.attention_program import Attention

_ITEMS = 32
_ZERO, _ONE = Literal(0.0, DType.F32), Literal(1.0, DType.F32)


def attention_on_device(
    it: Attention, batch: str, head: str, row: str, key: str, column: str
) -> tuple[Stmt, ...]:
    """The names are the variables of the expressions for scores and results."""
    build = Builder()
    (_, m, place), (item, _, _) = build.grid((1, it.rows, it.batch * it.heads), (_ITEMS, 1, 1))
    build.bind(row, m)
    build.bind(batch, place // it.heads)
    build.bind(head, place % it.heads)
    scores = build.array("score", it.keys, shared=True)
    query = build.array("query", it.size, shared=True)
    parts = build.array("parts", _ITEMS, shared=True)
    q, k, v = (
        build.pointer(name, build.buffer(view.buffer), view.base)
        for name, view in (("q", it.q), ("k", it.k), ("v", it.v))
    )
    with build.loop("d", it.size, begin=item, step=_ITEMS) as d:
        build.assign(query[d], q[m * it.q.row_stride + d * it.q.column_stride])
    build.barrier()
    known = it.known(build)
    used = count(it.keys) if known is None else known
    if it.reach is not None:
        used = build.count("used", it.seen(m + 1, known))
    # The lowest number, not minus infinity: a query that sees no key at all then gets zeros.
    top = build.variable("top", Literal(float(np.finfo(np.float32).min), DType.F32))
    total = build.variable("total", _ZERO)
    with build.loop(key, used, begin=item, step=_ITEMS) as n:
        dot = build.variable("dot", _ZERO)
        with build.loop("d", it.size) as d:
            build.accumulate(dot, query[d] * k[n * it.k.row_stride + d * it.k.column_stride])
        build.bind_value("acc", dot)
        score = build.let("made", it.score)
        build.assign(scores[n], score)
        build.assign(top, choose(apply(Fn.LT, top, score), score, top))
    _fold(build, Fn.MAX, top, parts, item)
    with build.loop("n", used, begin=item, step=_ITEMS) as n:
        scaled = (scores[n] - top) * it.scale
        weight = build.let("weight", Op(Fn.EXP_DOWN, (scaled,), DType.F32))
        build.assign(scores[n], weight)
        build.accumulate(total, weight)
    _fold(build, Fn.ADD, total, parts, item)
    inverse = build.let("inverse", choose(apply(Fn.EQ, total, _ZERO), _ONE, _ONE / total))
    with build.loop(column, it.width, begin=item, step=_ITEMS) as c:
        made = build.variable("sum", _ZERO)
        with build.loop("n", used) as n:
            build.accumulate(made, scores[n] * v[n * it.v.row_stride + c * it.v.column_stride])
        build.bind_value("acc", made * inverse)
        build.add(it.output)
    return build.finish()


def _fold(build: Builder, fn: Fn, value: Name, parts: Memory, item: Count) -> None:
    """The values of all work items of the group, folded into one that all of them have. `parts` is
    shared memory for one of each.
    """
    build.assign(parts[item], value)
    build.barrier()
    half = _ITEMS // 2
    while half:
        with build.when(item < half):
            build.assign(parts[item], lanewise(fn, parts[item], parts[item + half]))
        build.barrier()
        half //= 2
    build.assign(value, parts[0])
    build.barrier()
