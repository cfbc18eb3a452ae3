"""The matrices of Winograd's convolution, exact, and the program that applies one to vectors."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from whence.kernels.builder import Builder, splat, zeros
from whence.kernels.ir import Expr, Place

KERNEL = 3
POINTS: Mapping[int, tuple[Fraction, ...]] = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    # The usual 0, ±1, ±2 lose three times as many digits: error 6.8e-6 of the largest output over
    # 256 channels, these 2.1e-6, the direct form 1.4e-6.
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)),
}
"""By the size of a tile: where the polynomials are evaluated, besides infinity. Pairs ±p share half
of their arithmetic.
"""


@dataclass(frozen=True, slots=True)
class Transforms:
    """The three matrices, exact."""

    output: tuple[tuple[Fraction, ...], ...]
    """Aᵀ: m × n."""
    weights: tuple[tuple[Fraction, ...], ...]
    """G: n × 3."""
    input: tuple[tuple[Fraction, ...], ...]
    """Bᵀ: n × n."""


@lru_cache
def transforms(size: int) -> Transforms:
    """For output tiles of `size` × `size`: Toom and Cook's multiplication of polynomials at
    `POINTS`, transposed.
    """
    points = POINTS[size]
    n = size + KERNEL - 1
    one, zero = Fraction(1), Fraction(0)
    output = tuple(
        (*(point**row for point in points), one if row == size - 1 else zero) for row in range(size)
    )
    scales = [
        math.prod((point - other for other in points if other != point), start=one)
        for point in points
    ]
    weights = tuple(
        tuple(point**tap / scale for tap in range(KERNEL))
        for point, scale in zip(points, scales, strict=True)
    )
    rows = [_polynomial(other for other in points if other != point) for point in points]
    return Transforms(
        output,
        (*weights, (zero, zero, one)),
        tuple((*row, *[zero] * (n - len(row))) for row in (*rows, _polynomial(points))),
    )


def _polynomial(roots: Iterable[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of Π (x - root), constant term first."""
    found = [Fraction(1)]
    for root in roots:
        found = [
            below - root * same
            for below, same in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)
        ]
    return tuple(found)


def apply_matrix(
    build: Builder,
    matrix: Sequence[Sequence[Fraction]],
    values: Sequence[Expr],
    results: Sequence[Place],
) -> None:
    """A matrix times a column of values, each computed first. Where columns or rows come in pairs
    that differ in signs only, what they have in common is computed once.
    """
    values = [build.let(f"p{number}", value) for number, value in enumerate(values)]
    columns = list(zip(*matrix, strict=True))
    terms: list[tuple[Expr, Sequence[Fraction]]] = []
    names = (f"s{number}" for number in itertools.count())
    with build.scope():
        # Aᵀ: its columns for p and -p are even and odd in the row's number. Their sum serves even
        # rows, their difference odd ones.
        for one, twin in _pairs(columns):
            if twin is None:
                terms.append((values[one], columns[one]))
                continue
            plus = build.let(next(names), values[one] + values[twin])
            minus = build.let(next(names), values[one] - values[twin])
            same, opposite = _parts(columns[one], columns[twin])
            terms += [(plus, same), (minus, opposite)]
        rows = [[factors[row] for _, factors in terms] for row in range(len(matrix))]
        for one, twin in _pairs(rows):
            if twin is None:
                build.assign(results[one], _weighted(terms, rows[one]))
                continue
            same, opposite = _parts(rows[one], rows[twin])
            even = build.let(next(names), _weighted(terms, same))
            odd = build.let(next(names), _weighted(terms, opposite))
            build.assign(results[one], even + odd)
            build.assign(results[twin], even - odd)


def _pairs(rows: Sequence[Sequence[Fraction]]) -> Iterator[tuple[int, int | None]]:
    """Each row, with the first one behind it that differs in signs only, if there is one."""
    left = list(range(len(rows)))
    while left:
        one = left.pop(0)
        twin = next((two for two in left if _differ_in_sign(rows[one], rows[two])), None)
        if twin is not None:
            left.remove(twin)
        yield one, twin


def _parts(
    one: Sequence[Fraction], two: Sequence[Fraction]
) -> tuple[list[Fraction], list[Fraction]]:
    """What a row has in common with its twin, and what is of the opposite sign there."""
    pairs, zero = list(zip(one, two, strict=True)), Fraction(0)
    return [a if a == b else zero for a, b in pairs], [a if a != b else zero for a, b in pairs]


def _differ_in_sign(one: Sequence[Fraction], two: Sequence[Fraction]) -> bool:
    """Are they equal but for signs, with something equal and something opposite?"""
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if a or b]
    return (
        all(abs(a) == abs(b) for a, b in pairs)
        and any(a == b for a, b in pairs)
        and any(a == -b for a, b in pairs)
    )


def _weighted(terms: Sequence[tuple[Expr, object]], factors: Sequence[Fraction]) -> Expr:
    parts = [
        value if factor == 1 else splat(float(factor), value.lanes) * value
        for (value, _), factor in zip(terms, factors, strict=True)
        if factor
    ]
    if not parts:
        return zeros(terms[0][0].lanes)
    return functools.reduce(lambda total, part: total + part, parts)
