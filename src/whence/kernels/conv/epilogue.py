"""Epilogues of convolutions and pools: what is stored for the sums of a tile.

Simple arithmetic is done on the sums as they lie in vector registers; anything else goes through a
small array and a loop over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whence.kernels.builder import Builder, Memory
from whence.kernels.index import Var
from whence.kernels.ir import (
    FULLY,
    Count,
    Countable,
    Expr,
    Fn,
    Kernel,
    Load,
    Name,
    Op,
    Prefetch,
    Store,
    count,
    walk,
)
from whence.kernels.size_arguments import SizeArguments
from whence.kernels.vectorise import vectorised
from whence.types import DType

IMAGE, CHANNELS, PIXEL, LANE = "image", "channels", "pixel", "lane"
"""The variables of an epilogue: the image, the block of output channels, the pixel (row-major) and
the place in the block.
"""
_OUTER = frozenset({IMAGE, CHANNELS})
ACCUMULATOR = Name("acc", DType.F32)

Sums = Callable[[Count, int], Expr]
"""The vector of sums of a tile's pixel, by the vector's number."""


# Of an output's value: what has more is rarely in two kernels.
_MOST_PARTS = 64


def shared_outputs(outputs: Sequence[Store], sizes: SizeArguments) -> tuple[Store, ...] | None:
    """The outputs with strides between images and blocks of channels as arguments; `None` where one
    has many parts.
    """
    if any(output.value.size > _MOST_PARTS for output in outputs):
        return None
    return tuple(
        Store(
            output.buffer,
            sizes.in_index(output.index, _OUTER),
            sizes.in_value(output.value, _OUTER),
        )
        for output in outputs
    )


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What to store for a tile of some neighbouring pixels times some vectors of channels."""

    outputs: tuple[Store, ...]
    lanes: int
    block: int
    """Channels in a block."""
    place: Count
    """The number of the tile's first pixel."""
    first_block: Count
    """The block of the tile's first channel."""
    first_lane: Countable = 0
    """And its place in that block."""

    def prefetch(self, build: Builder, pixels: int, vectors: int) -> None:
        """Prefetch what is added to each pixel: the sums take longer than memory does."""
        # In the order of the expressions: that of a set is another in every process.
        loads = dict.fromkeys(
            part for output in self.outputs for part in walk(output.value) if isinstance(part, Load)
        )
        streams = [
            load for load in loads if {PIXEL, LANE} <= {var.name for var in load.index.variables()}
        ]
        if not streams:
            return
        with build.loop("i", pixels, unroll=FULLY) as i:
            build.bind(PIXEL, self.place + i)
            for j in range(vectors):
                with build.scope():
                    self._bind_channels(build, j)
                    for load in sorted(streams, key=lambda load: load.buffer):
                        build.add(Prefetch(load.buffer, count(load.index), nearest=True))

    def store(
        self,
        build: Builder,
        kernel: Kernel,
        pixels: int,
        vectors: int,
        sums: Sums,
        have: Count | None = None,
    ) -> None:
        """Of the tile's pixels, `have` are stored if that is known only at run time."""
        lane, acc = Var(LANE, self.block), Name(ACCUMULATOR.name, DType.F32, self.lanes)
        wide = [
            vectorised(output.value, lane, self.lanes, {acc.name: acc})
            if kernel.dtype_of(output.buffer) is DType.F32
            else None
            for output in self.outputs
        ]
        vectors_of = [value for value in wide if value is not None]
        if len(vectors_of) < len(wide):
            self._by_element(build, pixels, vectors, sums, have)
            return
        if have is not None or any(_is_costly(output.value) for output in self.outputs):
            # Computing it takes many registers besides those that hold the sums.
            width, tile = vectors * self.lanes, self._stored(build, pixels, vectors, sums)
            sums, unroll = (lambda i, j: tile.vector(i * width + j * self.lanes, self.lanes)), 1
        else:
            unroll = FULLY
        with build.loop("i", pixels if have is None else have, unroll=unroll) as i:
            build.bind(PIXEL, self.place + i)
            for j in range(vectors):
                with build.scope():
                    self._bind_channels(build, j)
                    build.bind_value(acc.name, sums(i, j))
                    for output, value in zip(self.outputs, vectors_of, strict=True):
                        build.store(output.buffer, output.index, value)

    def _stored(self, build: Builder, pixels: int, vectors: int, sums: Sums) -> Memory:
        """The sums in an array."""
        width = vectors * self.lanes
        tile = build.array("tile", pixels * width)
        with build.unrolled(("i", pixels)) as (i,):
            for j in range(vectors):
                build.assign(tile.vector(i * width + j * self.lanes, self.lanes), sums(i, j))
        return tile

    def _by_element(
        self, build: Builder, pixels: int, vectors: int, sums: Sums, have: Count | None
    ) -> None:
        width, tile = vectors * self.lanes, self._stored(build, pixels, vectors, sums)
        with build.loop("i", pixels if have is None else have, unroll=1) as i:
            build.bind(PIXEL, self.place + i)
            for j in range(vectors):
                with build.scope():
                    channels, lane = self._channels(j)
                    build.bind(CHANNELS, channels)
                    with build.loop("k", self.lanes, vectorise=True) as k:
                        build.bind(LANE, lane + k)
                        build.bind_value(ACCUMULATOR.name, tile[i * width + j * self.lanes + k])
                        for output in self.outputs:
                            build.store(output.buffer, output.index, output.value)

    def _bind_channels(self, build: Builder, j: int) -> None:
        channels, lane = self._channels(j)
        build.bind(CHANNELS, channels)
        build.bind(LANE, lane)

    def _channels(self, j: int) -> tuple[Count, Count]:
        """The block and the first lane of a tile's vector."""
        per_block = self.block // self.lanes
        return self.first_block + j // per_block, count(
            self.first_lane
        ) + j % per_block * self.lanes


def _is_costly(expr: Expr) -> bool:
    """Would it take many registers besides those that hold the sums?"""
    return any(isinstance(part, Op) and part.fn is Fn.SIGMOID for part in walk(expr))
