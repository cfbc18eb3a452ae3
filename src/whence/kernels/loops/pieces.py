"""An output cut into boxes where what it is made of changes: a concatenation, a padding. In
each, no element asks which part it is in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whence.extent import Relation, decide, estimate, is_symbolic, surely_equal
from whence.graph import Ref
from whence.kernels.group import Group
from whence.kernels.index import Var, of
from whence.kernels.ir import Expr, Fn, Literal, Op, Position, walk

# Pieces an output is cut into at most.
_PIECES = 64


@dataclass(frozen=True, slots=True)
class OutputBox:
    """A box of the output: where it begins and how far it goes in every dimension, each extent as
    factors, outermost first.
    """

    begins: tuple[int, ...]
    factors: tuple[tuple[int, ...], ...]


def pieces(group: Group, refs: Sequence[Ref], shape: Sequence[int]) -> Iterator[OutputBox]:
    """The output cut at its breakpoints."""
    if 0 in shape:
        return
    axes = [Var(f"a{axis}", extent) for axis, extent in enumerate(shape)]
    index = tuple(of(axis) for axis in axes)
    cuts = {axis: [0, axis.extent] for axis in axes}
    elements = group.elements()
    for part in walk(*(elements.value(ref, index) for ref in refs)):
        for axis, place in breakpoints(part):
            if axis in cuts:
                _cut(cuts[axis], place)
    # Too many pieces: give up the axes with the most, from the outside in.
    for axis in axes:
        if math.prod(len(places) - 1 for places in cuts.values()) > _PIECES:
            cuts[axis] = [0, axis.extent]
    spans = [list(itertools.pairwise(cuts[axis])) for axis in axes]
    for box in itertools.product(*spans):
        yield OutputBox(
            tuple(begin for begin, _ in box), tuple((end - begin,) for begin, end in box)
        )


def _cut(places: list[int], place: int) -> None:
    """Add a place to those in order, if it is surely between two of them."""
    for number, (before, after) in enumerate(itertools.pairwise(places)):
        if decide(before, Relation.LT, place) and decide(place, Relation.LT, after):
            places.insert(number + 1, place)
            return


def breakpoints(part: Expr) -> Iterator[tuple[Var, int]]:
    """The variable and the values of it at which a comparison of an index with a number changes its
    answer. Where channels lie in blocks, a breakpoint may lie within a block: that block is a
    piece.
    """
    match part:
        case Op(Fn.LT, (Position(index), Literal(limit))):
            pass
        case Op(Fn.LE, (Literal(limit), Position(index))):
            pass
        case _:
            return
    rest = limit - index.const
    terms = sorted(index.terms, key=lambda term: (is_symbolic(term[1]), estimate(term[1])))
    match terms:
        case [(Var() as axis, step)] if decide(0, Relation.LT, step):
            if surely_equal(step, 1) or not is_symbolic(rest):
                yield axis, -(-rest // step)
        case [(Var() as lane, 1), (Var() as block, step)] if not is_symbolic(rest):
            if not is_symbolic(step) and surely_equal(step, lane.extent):
                yield from ((block, rest // step), (block, -(-rest // step)))
