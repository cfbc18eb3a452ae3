"""Caches of keys and values, [batch, heads, length, size], into which attention writes the present
behind the past.

Where the past ends is read at run time, so that nothing here has a shape that depends on it: places
are compared with it, and each element is chosen.
"""

from __future__ import annotations

from typing import NamedTuple

from whence.frontends.onnx.record import Rewrite
from whence.types import Dim, DType


class CachePositions(NamedTuple):
    """Where the present lies in a cache. All are int64."""

    every: str
    """0, 1, ... up to the cache's length: [length]"""
    first: str
    """Where the present begins, for each text or for all: [batch or 1, 1]"""
    end: str
    """The place behind it, of the same shape."""
    is_one: bool
    """The present surely has one place."""


def places(build: Rewrite, length: str, first: str, new: str, count: Dim) -> CachePositions:
    """The places of a cache of `length`, a one-element tensor, in which `new`, which has `count` of
    them, begins at `first`.
    """
    end = build.op("Add", first, build.dim(new, 2))
    return CachePositions(build.counted(length), first, end, count == 1)


def write(build: Rewrite, cache: str, new: str, where: CachePositions, *, behind: str) -> str:
    """The cache with `new` in its place, and `behind` after that."""
    if behind == cache:
        # Nothing else changes: where the cache is the model's own, it is written where it lies.
        starts = build.op("Reshape", where.first, build.ints(-1))
        starts = build.op("Expand", starts, build.dim(cache, 0))
        return build.op("TensorScatter", cache, new, starts, axis=2)
    before, inside = (
        build.op("Unsqueeze", build.op("Less", where.every, bound), build.ints(1, 3))
        for bound in (where.first, where.end)
    )
    return build.op(
        "Where", before, cache, build.op("Where", inside, _moved(build, new, where), behind)
    )


def _moved(build: Rewrite, new: str, where: CachePositions) -> str:
    """Elements of `new` at their places in the cache; what is read at other places is anything."""
    if where.is_one:
        return new
    last = build.op("Sub", build.dim(new, 2), build.ints(1))
    steps = build.op("Sub", where.every, where.first)
    steps = build.op("Max", build.op("Min", steps, last), build.ints(0))
    full = build.op(
        "Concat",
        build.dim(new, 0),
        build.dim(new, 1),
        build.op("Shape", where.every),
        build.dim(new, 3),
        axis=0,
    )
    index = build.op("Expand", build.op("Unsqueeze", steps, build.ints(1, 3)), full)
    return build.op("GatherElements", new, index, axis=2)


def lengthened(build: Rewrite, data: str, axis: int, rank: int, length: str) -> str:
    """A tensor padded with zeros at the end of an axis to this length, if it is shorter."""
    axis += rank if axis < 0 else 0
    missing = build.op("Max", build.op("Sub", length, build.dim(data, axis)), build.ints(0))
    pads = [build.ints(*[0] * (rank + axis)), missing]
    if axis < rank - 1:
        pads.append(build.ints(*[0] * (rank - axis - 1)))
    return build.op("Pad", data, build.op("Concat", *pads, axis=0))


def by_beam(build: Rewrite, cache: str, origins: str, first: str) -> str:
    """A cache whose past places are taken from other beams of the same text: `origins`, [batch,
    beams, length or more], says from which. The batch of the cache is batch * beams.
    """
    length = build.dim(cache, 2)
    origins = build.cast(origins, DType.I64)
    origins = build.op("Slice", origins, build.ints(0), length, build.ints(2))
    beams = build.op("Shape", origins, start=1, end=2)
    batch = build.op("Shape", origins, start=0, end=1)
    rows = build.op("Concat", batch, build.ints(1, 1), axis=0)
    offsets = build.op("Mul", build.op("Reshape", build.counted(batch), rows), beams)
    chosen = build.op(
        "Reshape",
        build.op("Add", origins, offsets),
        build.op("Concat", build.ints(-1), length, axis=0),
    )
    chosen = build.op("Unsqueeze", chosen, build.ints(1, 3))
    moved = build.op(
        "GatherElements", cache, build.op("Expand", chosen, build.op("Shape", cache)), axis=0
    )
    past = build.op("Less", build.counted(length), first)
    past = build.op("Unsqueeze", past, build.ints(1, 3))
    return build.op("Where", past, moved, cache)
