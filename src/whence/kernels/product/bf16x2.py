"""Matrix products with constant weights by matrix units, with float32 numbers as two bfloat16 (see
`bf16x2`).

A block of rows of A is split into two bfloat16 each, in scratch, by group of rows and block of the
depth, as a step reads them. Each panel of columns is then multiplied with all groups of the block,
so that its weights are fetched once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from whence.errors import UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Node
from whence.kernels.bf16x2 import (
    DEPTH,
    GROUP,
    PANEL,
    SUM_FLOATS,
    TILE,
    cycles_by_units,
    cycles_by_vectors,
    fetch_cycles,
    packed_floats,
)
from whence.kernels.cost import imbalance
from whence.kernels.group import Group, Packed
from whence.kernels.ir import Kernel
from whence.kernels.product.bf16x2_program import Bf16x2Gemm
from whence.kernels.product.gemm import (
    GemmPlan,
    Sizes,
    gemm_micro,
    lower_gemm,
    sizes_of,
)
from whence.kernels.product.packing import PackSplitColumns
from whence.kernels.tile import Tile
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.rates import ArithmeticUnit

# Digits are given up only where that buys time.
_WORTHWHILE, _LEAST_SAVED = 0.75, 20_000
_EXPONENTIAL = operators(Trait.EXPONENTIAL)
# Each part of the columns splits its rows again.
_MOST_PARTS = 12
_HEIGHTS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Bf16x2GemmPlan:
    """How a product by matrix units is divided."""

    block_rows: int
    """Of a work item."""
    parts: int
    """Into which the panels of columns are divided."""


def cheapest_bf16x2_gemm(
    group: Group, anchor: Node, tile: Tile
) -> tuple[float, Bf16x2GemmPlan] | None:
    """The cycles it takes to multiply by matrix units, and how; `None` where there are none, or
    this is no product for them, or not worth it.
    """
    sizes = sizes_of(group, anchor)
    if not _is_possible(sizes, tile) or _feeds_exponential(group):
        return None
    cycles, plan = min(
        ((_cycles(sizes, plan, tile), plan) for plan in _plans(sizes, tile)),
        key=lambda each: each[0],
    )
    direct = cycles_by_vectors(
        sizes.rows * sizes.depth * -(-sizes.columns // tile.lanes),
        fetch_cycles(_fetched(sizes, tile), tile),
    )
    return (cycles, plan) if cycles < min(_WORTHWHILE * direct, direct - _LEAST_SAVED) else None


def bf16x2_gemm_plans(group: Group, anchor: Node, tile: Tile) -> Iterator[Bf16x2GemmPlan]:
    """What is worth timing: the cheapest by the cost model, in more and in fewer work items."""
    found = cheapest_bf16x2_gemm(group, anchor, tile)
    if found is None:
        return
    plan = found[1]
    yield plan
    yield Bf16x2GemmPlan(plan.block_rows, 1)
    yield Bf16x2GemmPlan(-(-plan.block_rows // (2 * GROUP)) * GROUP, plan.parts)


def _is_possible(sizes: Sizes, tile: Tile) -> bool:
    return (
        tile.bf16x2
        and sizes.packed
        and not sizes.batch_shape
        and not is_symbolic(sizes.rows)
        and not sizes.product.trans_a
    )


def _feeds_exponential(group: Group) -> bool:
    """Does a softmax follow, which makes the sums' absolute error a relative one of what it gives?
    There the digits are worth more than the time.
    """
    return any(
        consumer.op in _EXPONENTIAL
        for ref in group.outputs
        for consumer, _ in group.graph.uses(ref)
    )


def _is_far(sizes: Sizes, tile: Tile) -> bool:
    return 4 * packed_floats(sizes.columns, 1, sizes.depth) > tile.cache_bytes // 2


def _plans(sizes: Sizes, tile: Tile) -> Iterator[Bf16x2GemmPlan]:
    """Divisions into blocks of rows whose split parts fit the cache, or that cannot be smaller, and
    into parts.
    """
    groups, panels = -(-sizes.rows // GROUP), -(-sizes.columns // GROUP)
    fitting = max(1, tile.cache_bytes // 2 // (4 * GROUP * -(-sizes.depth // DEPTH) * DEPTH))
    for height in {
        min(size, fitting, groups) for size in (*_HEIGHTS, -(-groups // 4), -(-groups // 2), groups)
    }:
        rows = min(sizes.rows, height * GROUP)
        for parts in (
            count
            for count in range(1, min(panels, max(_MOST_PARTS, 2 * tile.threads)) + 1)
            if panels % count == 0 or count == 2
        ):
            yield Bf16x2GemmPlan(rows, parts)


def _cycles(sizes: Sizes, plan: Bf16x2GemmPlan, tile: Tile) -> float:
    """What it takes, with what threads lose by work items that they cannot share evenly."""
    groups = -(-sizes.rows // GROUP)
    height = -(-plan.block_rows // GROUP)
    vectors = -(-sizes.columns // TILE)
    blocks = -(-groups // height)
    steps = groups * -(-vectors // PANEL) * -(-sizes.depth // DEPTH)
    split = plan.parts * sizes.rows * -(-sizes.depth // TILE)
    fetching = blocks * fetch_cycles(_fetched(sizes, tile), tile)
    cycles = cycles_by_units(steps, split, sizes.rows * vectors, fetching)
    # The last block may be smaller, and whoever has it waits for the others.
    return (
        cycles * imbalance(blocks * plan.parts, tile.threads) * (1 + blocks * height / groups) / 2
    )


def _fetched(sizes: Sizes, tile: Tile) -> int:
    """Weights that a block of rows has to get from beyond the cache."""
    return sizes.columns * sizes.depth if _is_far(sizes, tile) else 0


def lower_bf16x2_gemm(group: Group, anchor: Node, tile: Tile, plan: Bf16x2GemmPlan) -> Kernel:
    """A kernel for a group whose anchor is a matrix product that `cheapest_bf16x2_gemm` has a plan
    for.
    """
    sizes = sizes_of(group, anchor)
    if not _is_possible(sizes, tile):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' cannot be computed by matrix units")
    divided = GemmPlan(GROUP, PANEL, plan.block_rows, sizes.depth)
    gemm = gemm_micro(group, anchor, tile, sizes, divided)
    micro = Bf16x2Gemm(gemm, plan.parts, _is_far(sizes, tile))
    packing = PackSplitColumns(sizes.depth, sizes.columns, sizes.product.trans_b)
    packed = {sizes.product.b: Packed(packing, packed_floats(sizes.columns, 1, sizes.depth))}
    scratch = 4 * (micro.split_floats + SUM_FLOATS)
    kernel = group.kernel(micro.tasks, micro, scratch_bytes=scratch, packed=packed)
    return replace(kernel, unit=ArithmeticUnit.BF16, reduced_precision=True)


def lower_product(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is a matrix product, by matrix units where that is
    quicker.
    """
    found = cheapest_bf16x2_gemm(group, anchor, tile)
    if found is None:
        return lower_gemm(group, anchor, tile)
    return lower_bf16x2_gemm(group, anchor, tile, found[1])
