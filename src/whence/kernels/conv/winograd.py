"""3×3 convolution with fewer multiplications: Winograd's F(m×m, 3×3) on channel-blocked tensors.

out = Aᵀ [ Σ_c (G w Gᵀ) ⊙ (Bᵀ x B) ] A      for each m×m tile of the output, x the (m+2)×(m+2) of the input it reads

The sum over channels is a matrix product for each of the (m+2)² places of a transformed tile: 36
products for 16 pixels where the direct form needs 144. The price is two transforms and larger
weights, so what is cheaper depends on the sizes; `cheapest_winograd` weighs it.

A work item is a chunk of tiles and a part of the output channels. It transforms the chunk's input
into scratch, and a worker that goes on to another part of the same chunk finds it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from whence.errors import UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Node
from whence.kernels.conv.direct import (
    conv_sizes,
    epilogue,
    input_buffer,
    packed_weights,
)
from whence.kernels.conv.winograd_program import Winograd
from whence.kernels.conv.winograd_transforms import KERNEL, POINTS, transforms
from whence.kernels.cost import imbalance, overlapped
from whence.kernels.group import Group, data_operands
from whence.kernels.ir import Kernel
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int

# Cycles of one vector's transforms: measured once, and good enough to choose by.
_IN_CYCLES = {2: 60, 4: 190}
_OUT_CYCLES = {2: 50, 4: 180}
# What weights that are prefetched during products get of what reading alone gets from memory.
_PREFETCHED = 2 / 3
# Products, loads, and cycles until something can be added to the same sums again: tiles of eight
# sums are a third slower than those of ten.
_PRODUCTS_PER_CYCLE, _LOADS_PER_CYCLE, _LATENCY = 1.6, 1.45, 6
# Weights of one place that stay in the first-level cache from one group of tiles to the next, and
# bytes a cycle of those that do not.
_NEAREST_BYTES = 32 << 10
_NEAR_BYTES_PER_CYCLE, _FAR_BYTES_PER_CYCLE = 48, 8
# Below this gain the larger weights are not worth their memory.
_WORTHWHILE = 0.85
# Where sizes are open: how many times as large as at hand they may be, for choosing by.
_FACTORS = (2, 4)
# How many chunks are tried, besides what the threads suggest.
_CHUNKS = (1, 2, 4, 8)
_PART_VECTORS = 4
# Shapes of the register tile that are timed, for each size of tile.
_SHAPES_TIMED = 2


@dataclass(frozen=True, slots=True)
class PackTransformed:
    """OIHW weights transformed, by panel, place, input channel and output channel of the panel.
    Computed in double precision, rounded once.
    """

    size: int
    width: int
    """Output channels of a panel."""
    padded: int
    """Output channels with the empty ones behind them."""

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        matrix = np.array(transforms(self.size).weights, np.float64)
        # G · w · Gᵀ is one product of all positions of w. For each input channel by itself it is so
        # small that the library of matrix products starts no threads for it.
        both = np.kron(matrix, matrix)
        depth, panels = weights.shape[1], self.padded // self.width
        packed = np.zeros((panels, len(both), depth, self.width), np.float32)
        for number, panel in enumerate(packed):
            part = weights[number * self.width : (number + 1) * self.width]
            transposed = part.reshape(len(part), depth * KERNEL**2).T.astype(np.float64)
            made = both @ transposed.reshape(depth, KERNEL**2, len(part))
            panel[..., : len(part)] = made.transpose(1, 0, 2)
        return packed


@dataclass(frozen=True, slots=True)
class _Shape:
    """What decides whether to transform, and how; of sizes that are open, those at hand."""

    images: int
    out: tuple[int, int]
    channels: int
    group_vectors: int
    per_block: int
    """Vectors in a block of channels."""
    tile: Tile

    def tiles(self, size: int) -> int:
        return self.images * -(-self.out[0] // size) * -(-self.out[1] // size)

    def direct_cycles(self) -> float:
        products = (
            self.images * math.prod(self.out) * self.channels * KERNEL**2 * self.group_vectors
        )
        return overlapped(products / _PRODUCTS_PER_CYCLE, self._fetch(KERNEL**2, 1))

    def cycles(self, size: int, tile_rows: int, vectors: int, chunk: int) -> float:
        places, tiles = (size + KERNEL - 1) ** 2, self.tiles(size)
        # A row of the tile costs a load, so narrow panels pay for their many rows; and a sum is to
        # be there before something is added to it again.
        step = max(
            tile_rows * vectors / _PRODUCTS_PER_CYCLE,
            (tile_rows + vectors) / _LOADS_PER_CYCLE,
            _LATENCY,
        )
        chunks, panels = -(-tiles // chunk), self.group_vectors // vectors
        products = places * -(-tiles // tile_rows) * self.channels * panels * step
        # A place's weights come from the second-level cache once for a chunk, or for each group of
        # tiles when the nearer one does not hold them.
        width = 4 * vectors * self.tile.lanes
        readings = chunks if self.channels * width <= _NEAREST_BYTES else -(-tiles // tile_rows)
        products += places * readings * self.channels * panels * width / _NEAR_BYTES_PER_CYCLE
        parts = self.parts(size, vectors, chunks)
        moving = self._moving(size, chunks, parts)
        fetch = self._fetch(places, chunks)
        transformed = 4 * places * self.channels * chunk
        if transformed > self.tile.cache_bytes:
            fetch += chunks * transformed * panels / _FAR_BYTES_PER_CYCLE
        return (overlapped(products, fetch) + moving) * imbalance(chunks * parts, self.tile.threads)

    def parts(self, size: int, vectors: int, chunks: int) -> int:
        """Into which the panels are divided, for more work items."""
        panels = self.group_vectors // vectors
        most = max(1, min(panels, self.group_vectors // _PART_VECTORS))
        products = self.tiles(size) * (size + KERNEL - 1) ** 2 * self.channels * self.group_vectors
        return min(
            range(1, most + 1),
            key=lambda parts: (
                (products / _PRODUCTS_PER_CYCLE + self._moving(size, chunks, parts))
                * imbalance(chunks * parts, self.tile.threads)
                * (-(-panels // parts) * parts / panels)
            ),
        )

    def _moving(self, size: int, chunks: int, parts: int) -> float:
        """Cycles of the transforms. A thread that goes on to the next part of a chunk finds its
        input transformed; another one transforms it again.
        """
        one_after_another = max(1, min(parts, chunks * parts // self.tile.threads))
        again = -(-parts // one_after_another)
        return self.tiles(size) * (
            again * -(-self.channels // self.tile.lanes) * _IN_CYCLES[size]
            + self.group_vectors * _OUT_CYCLES[size]
        )

    def _fetch(self, places: int, rounds: int) -> float:
        """For weights that the second-level cache does not hold."""
        if self._is_near(places):
            return 0.0
        return rounds * self._weight_bytes(places) / (_PREFETCHED * self.tile.memory_bytes)

    def _is_near(self, places: int) -> bool:
        return self._weight_bytes(places) <= self.tile.cache_bytes // 2

    def _weight_bytes(self, places: int) -> int:
        return 4 * places * self.channels * self.group_vectors * self.tile.lanes

    def _most_rows(self, vectors: int) -> int:
        """Rows of a register tile so many vectors wide: beside its sums, registers hold a row of
        weights and an input value.
        """
        registers = self.tile.rows * self.tile.vectors + self.tile.vectors
        return max(1, registers // vectors - 1)

    def shapes(self, size: int) -> list[tuple[int, int, int]]:
        """The register tiles and chunks worth a thought: rows, vectors and tiles in a chunk."""
        found, tiles, places = set(), self.tiles(size), (size + KERNEL - 1) ** 2
        for vectors in range(1, 5):
            # A panel is whole blocks, or lies in one.
            if self.group_vectors % vectors or (
                vectors % self.per_block and self.per_block % vectors
            ):
                continue
            most = self._most_rows(vectors)
            # Weights that are near share the cache with the transformed input and with what comes
            # and goes; others pass by, as seldom as can be.
            is_near = self._is_near(places)
            room = self.tile.cache_bytes // 4 if is_near else self.tile.cache_bytes
            fitting = max(1, room // (4 * places * (self.channels + vectors * self.tile.lanes)))
            fewest = -(-tiles // max(fitting, min(most, tiles)))
            # Chunks twice as large as the cache may still be better than far weights that pass by
            # twice as often.
            least = fewest if is_near else -(-fewest // 2)
            wanted = (*_CHUNKS, self.tile.threads, 2 * self.tile.threads)
            for chunks in {max(least, min(each, tiles)) for each in wanted} | {fewest}:
                chunk = -(-tiles // chunks)
                fewest_groups = -(-chunk // most)
                for groups in (fewest_groups, fewest_groups + 1, fewest_groups + 2):
                    rows = -(-chunk // groups)
                    found.add((rows, vectors, -(-chunk // rows) * rows))
        return sorted(found)


@dataclass(frozen=True, order=True, slots=True)
class WinogradPlan:
    """How a convolution is transformed."""

    size: int
    tile_rows: int
    vectors: int
    chunk: int


def cheapest_winograd(group: Group, anchor: Node, tile: Tile) -> tuple[float, WinogradPlan] | None:
    """The cheapest way to transform the convolution of a BlockedConv, with the cycles it takes;
    `None` when it cannot be or is not worth it.
    """
    shape = _shape(group, anchor, tile) if tile.transforms else None
    if shape is None:
        return None
    every = [shape, *_larger(group, anchor, shape)]
    options = {
        WinogradPlan(size, *form) for each in every for size in POINTS for form in each.shapes(size)
    }
    table = {plan: [each.cycles(*astuple(plan)) for each in every] for plan in options}
    direct = [each.direct_cycles() * _WORTHWHILE for each in every]
    least: list[float] = [min(found) for found in zip(direct, *table.values(), strict=True)]

    def regret(cycles: Sequence[float]) -> float:
        """How much longer than the best it takes at the worst size."""
        return max(mine / best for mine, best in zip(cycles, least, strict=True))

    def rank(plan: WinogradPlan) -> tuple[float, float, int, WinogradPlan]:
        # Of equals, the largest tile: it leaves most time for a sum to be there again.
        cycles = table[plan]
        return regret(cycles), cycles[0], -plan.tile_rows * plan.vectors, plan

    plan = min(table, key=rank)
    return (table[plan][0], plan) if regret(table[plan]) < regret(direct) else None


def _larger(group: Group, anchor: Node, shape: _Shape) -> Iterator[_Shape]:
    """What else is to be fast where sizes are open: what is best for a small first call need not be
    for the others, and how weights are packed is decided only once.
    """
    images, _, rows, columns = group.shape(anchor.ref())[:4]
    for factor in _FACTORS:
        if is_symbolic(rows) or is_symbolic(columns):
            out = (
                shape.out[0] * (factor if is_symbolic(rows) else 1),
                shape.out[1] * (factor if is_symbolic(columns) else 1),
            )
            yield replace(shape, out=out)
        elif is_symbolic(images):
            yield replace(shape, images=shape.images * factor)


def winograd_plans(group: Group, anchor: Node, tile: Tile) -> Iterator[WinogradPlan]:
    """What is worth timing: of each size of tile the shapes that the cost model likes best, and its
    best one in smaller and larger chunks.
    """
    shape = _shape(group, anchor, tile) if tile.transforms else None
    if shape is None:
        return
    for size in POINTS:
        options = sorted((shape.cycles(size, *form), form) for form in shape.shapes(size))
        plans = [WinogradPlan(size, *form) for _, form in options[:_SHAPES_TIMED]]
        yield from plans
        best, rows = plans[0], plans[0].tile_rows
        for chunk in (
            -(-best.chunk // (2 * rows)) * rows,
            min(2 * best.chunk, -(-shape.tiles(size) // rows) * rows),
        ):
            yield replace(best, chunk=chunk)


def _shape(group: Group, anchor: Node, tile: Tile) -> _Shape | None:
    attrs, (_, weights) = anchor.attrs, data_operands(anchor)
    if (
        get_int(attrs, "plain_input", 0)
        or get_int(attrs, "group", 1) != 1
        or group.shape(weights)[2:] != (KERNEL, KERNEL)
    ):
        return None
    sizes = conv_sizes(group, anchor, tile).estimated()
    rows, columns = sizes.rows, sizes.columns
    if {rows.stride, columns.stride, rows.dilation, columns.dilation} != {1}:
        return None
    return _Shape(
        sizes.images,
        (rows.out, columns.out),
        get_int(attrs, "channels_in", 0),
        sizes.group_vectors,
        sizes.per_block,
        tile,
    )


def lower_winograd(group: Group, anchor: Node, tile: Tile, plan: WinogradPlan) -> Kernel:
    """A kernel for a group whose anchor is a BlockedConv that `cheapest_winograd` has a plan
    for.
    """
    shape = _shape(group, anchor, tile)
    if shape is None:
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' is not a 3×3 convolution with stride 1"
        )
    source, weights = data_operands(anchor)
    sizes = conv_sizes(group, anchor, tile)
    width = shape.group_vectors * tile.lanes
    micro = Winograd(
        size=plan.size,
        images=sizes.images,
        rows=sizes.rows,
        columns=sizes.columns,
        source=input_buffer(group, anchor, source),
        weights=input_buffer(group, anchor, weights),
        channels=shape.channels,
        block=sizes.per_block * tile.lanes,
        lanes=tile.lanes,
        group_vectors=shape.group_vectors,
        vectors=plan.vectors,
        tile_rows=plan.tile_rows,
        chunk=plan.chunk,
        parts=shape.parts(plan.size, plan.vectors, -(-shape.tiles(plan.size) // plan.chunk)),
        outputs=epilogue(group, anchor),
    )
    packing = PackTransformed(plan.size, plan.vectors * tile.lanes, width)
    elements = micro.places * shape.channels * width
    packed = packed_weights(group, anchor, packing, elements)
    scratch = 4 * (micro.input_floats + micro.product_floats)
    return group.kernel(micro.tasks, micro, scratch_bytes=scratch, packed=packed)
