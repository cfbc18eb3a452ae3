"""How a convolution is divided, into register tiles and into work items: what the cost model takes,
and what else is worth timing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from whence.extent import estimate
from whence.kernels.conv.slices import least_slices
from whence.kernels.conv.tiles import Cover, Field, OpenCover, cover, open_cover
from whence.kernels.cost import chunk_size
from whence.kernels.tile import Tile
from whence.machine import CACHE_LINE

# No work item is so small that handing it out is noticed.
_ITEM_FLOPS = 1 << 19
# What a work item costs besides its arithmetic, in units of the cover: its weights are read again.
_ITEM_UNITS = 0.25
# Tiles that a work item has at least where sizes are open: another call may have many more than the
# one that is compiled for.
_LEAST_OPEN_TILES = 4
# The widest panel that is tried, in vectors.
_WIDEST = 4


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """A direct convolution."""

    pixels: int
    """In a register tile, at most."""
    vectors: int
    """Of output channels in a panel."""
    chunk: int
    """Units of the cover in a work item."""
    panels_outside: bool
    """Work items are numbered panel by panel, else chunk by chunk."""


@dataclass(frozen=True, slots=True)
class ConvSizes:
    """What decides how a convolution is divided."""

    images: int
    groups: int
    rows: Field
    columns: Field
    group_vectors: int
    """Of output channels in a group."""
    per_block: int
    """Vectors in a block of channels."""
    input_bytes: int
    """Of one image, for one group."""
    weight_bytes: int
    """Of one group."""
    flops: int
    """Of the whole convolution."""
    positions: int
    """Steps of a tile's sum over channels and kernel positions, at each of which weights can be
    asked for.
    """
    tile: Tile
    is_open: bool = False
    """Are rows or columns known only at run time?"""

    def cover(self, pixels: int) -> Cover | OpenCover:
        if self.is_open:
            return open_cover(self.rows, self.columns, pixels)
        return cover(self.rows, self.columns, pixels)

    def estimated(self) -> ConvSizes:
        """The sizes to compare costs by."""
        return replace(
            self,
            images=estimate(self.images),
            rows=self.rows.estimated(),
            columns=self.columns.estimated(),
            input_bytes=estimate(self.input_bytes),
            flops=estimate(self.flops),
        )

    def plan(self) -> ConvPlan:
        """What the cost model takes."""
        sizes = self.estimated()
        pixels = max(1, min(self.tile.rows, self.tile.rows_beside(self.per_block)))
        return sizes._divided(pixels, sizes._panel_vectors(sizes.cover(pixels).largest))

    def plans(self) -> Iterator[ConvPlan]:
        """What is worth timing, `plan` first; some may come twice."""
        usual = self.plan()
        yield usual
        widths = range(self.per_block, min(_WIDEST, self.group_vectors) + 1, self.per_block)
        shapes = (self._divided(self.tile.rows_beside(vectors), vectors) for vectors in widths)
        for plan in (usual, *shapes):
            yield plan
            if (
                self._panels(plan.vectors) > 1
                and self._rounds(self.cover(plan.pixels), plan.chunk) > 1
            ):
                yield replace(plan, panels_outside=not plan.panels_outside)
        units = self.cover(usual.pixels).units
        for chunk in {-(-usual.chunk // 2), min(2 * usual.chunk, units)} - {usual.chunk}:
            yield replace(usual, chunk=chunk)

    def ahead(self, plan: ConvPlan) -> int:
        """Lines of a panel, divided over all the positions of the kernel that pass before its turn
        comes.
        """
        if self.groups * self.weight_bytes <= self.tile.cache_bytes // 4:
            # All of it stays in the cache from image to image.
            return 0
        tiles = self.cover(plan.pixels)
        rounds = self._rounds(tiles, plan.chunk) if plan.panels_outside else 1
        return -(
            -self.weight_bytes
            // (
                self._panels(plan.vectors)
                * CACHE_LINE
                * self.positions
                * tiles.per_unit
                * plan.chunk
                * rounds
            )
        )

    def _panel_vectors(self, pixels: int) -> int:
        """Vectors of output channels in a tile of so many pixels, whole blocks of them: few pixels
        leave registers for more channels.
        """
        wanted = min(
            max(self.tile.rows * self.tile.vectors // pixels, self.tile.vectors),
            2 * self.tile.vectors,
        )
        return min(max(wanted // self.per_block, 1) * self.per_block, self.group_vectors)

    def _divided(self, pixels: int, vectors: int) -> ConvPlan:
        """Tiles of this shape, in work items as the cost model divides them."""
        tiles = self.cover(pixels)
        chunk = self._chunk(tiles.units, self._panels(vectors))
        if self.is_open:
            chunk = max(chunk, -(-_LEAST_OPEN_TILES // tiles.per_unit))
        return ConvPlan(
            pixels, vectors, chunk, self._panels_outside(tiles, chunk, self._panels(vectors))
        )

    def _panels(self, vectors: int) -> int:
        """Of a group."""
        return -(-self.group_vectors // vectors)

    def _chunk(self, units: int, panels: int) -> int:
        """Units of an image in a work item, so that its input fits the cache and threads end
        together.
        """
        fitting = max(1, units * (self.tile.cache_bytes // 2) // max(self.input_bytes, 1))
        least, others = -(-units // fitting), self.images * self.groups * panels
        if not self.is_open:
            made = 4 * self.group_vectors * self.tile.lanes * self.rows.out * self.columns.out
            moved, weights = self.input_bytes + made, self.groups * self.weight_bytes
            slices = least_slices(self.tile, self.images, self.groups * moved, weights)
            least = min(max(least, slices), units)
        return chunk_size(
            units,
            others,
            self.tile.threads,
            overhead=_ITEM_UNITS,
            least_parts=least,
            most_parts=max(least, self.flops // _ITEM_FLOPS // others),
        )

    def _rounds(self, tiles: Cover | OpenCover, chunk: int) -> int:
        """Work items of a panel."""
        return self.images * -(-tiles.units // chunk)

    def _panels_outside(self, tiles: Cover | OpenCover, chunk: int, panels: int) -> bool:
        """Is less to be read from beyond the second-level cache when panels follow each other
        last?
        """
        room, inputs = self.tile.cache_bytes // 2, self.images * self.input_bytes
        by_panel = self.weight_bytes + (inputs if inputs <= room else panels * inputs)
        by_chunk = inputs + (
            self.weight_bytes
            if self.weight_bytes <= room
            else self._rounds(tiles, chunk) * self.weight_bytes
        )
        return by_panel < by_chunk
