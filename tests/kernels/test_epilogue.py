"""Epilogues of convolutions: the text of a kernel is the same in every process."""

from __future__ import annotations

from functools import reduce

from whence.kernels.builder import Builder
from whence.kernels.conv.epilogue import LANE, PIXEL, Epilogue
from whence.kernels.index import Var, of
from whence.kernels.ir import Count, Expr, Load, Prefetch, Stmt, Store, count
from whence.kernels.rules.elementwise import add
from whence.types import DType


def _prefetched(statements: tuple[Stmt, ...]) -> list[Count]:
    found: list[Count] = []
    for each in statements:
        if isinstance(each, Prefetch):
            found.append(each.offset)
        found += _prefetched(getattr(each, "body", ()))
    return found


def test_what_is_added_is_prefetched_in_the_order_of_the_expression() -> None:
    at = of(Var(PIXEL, 4)) * 8 + of(Var(LANE, 8))
    parts: list[Expr] = [Load("in2", at + 32 * each, DType.F32) for each in range(12)]
    outputs = (Store("out0", at, reduce(add, parts)),)
    build = Builder()
    Epilogue(outputs, 8, 8, count(0), count(0)).prefetch(build, 1, 1)
    places = [count(part.index) for part in parts if isinstance(part, Load)]
    assert _prefetched(build.finish()) in (places, places[::-1])
