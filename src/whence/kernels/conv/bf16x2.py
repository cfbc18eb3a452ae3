"""Convolution on channel-blocked tensors by matrix units, with float32 numbers as two bfloat16 (see
`bf16x2`).

The input of a chunk of output rows is split into two bfloat16 each, in scratch, padding included,
and with strides taken apart: rows and columns of one remainder by the stride lie together, as a
plane. There, the input that an output position reads for a kernel position is as far from the next
position's as the positions are from each other, so that sixteen positions in a row are a tile, for
every kernel position, without copies. Positions run on over the columns where a row has ended and
its taps have not: those sums are made and dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.bf16x2 import (
    STEP_FLOATS,
    SUM_FLOATS,
    TILE,
    cycles_by_units,
    cycles_by_vectors,
    fetch_cycles,
    pack_bf16x2,
    packed_floats,
)
from whence.kernels.conv.bf16x2_program import Bf16x2Conv
from whence.kernels.conv.direct import (
    epilogue,
    fields,
    input_buffer,
    packed_weights,
    require_floats,
)
from whence.kernels.conv.slices import least_slices
from whence.kernels.cost import ITEMS_PER_THREAD, imbalance
from whence.kernels.group import Group, data_operands
from whence.kernels.ir import Kernel, Store
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int
from whence.rates import ArithmeticUnit

# Digits are given up only where that buys time. Small layers count, too: networks for phones are
# made of dozens of them.
_WORTHWHILE, _LEAST_SAVED = 0.8, 20_000
# Parts of the channels that are tried, each of which splits its input again, and the work items
# that are enough whatever the threads.
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_MOST_ITEMS = 64


@dataclass(frozen=True, slots=True)
class Bf16x2ConvPlan:
    """How a convolution by matrix units is divided."""

    chunk: int
    """Output rows in a work item."""
    parts: int
    """Into which the panels are divided."""


def pack_kernel(weights: np.ndarray) -> np.ndarray:
    """OIHW weights, packed."""
    outputs, channels = weights.shape[:2]
    return pack_bf16x2(weights.reshape(outputs, channels, -1).transpose(0, 2, 1))


def cheapest_bf16x2_conv(
    group: Group, anchor: Node, tile: Tile
) -> tuple[float, Bf16x2ConvPlan] | None:
    """The cycles it takes to convolve by matrix units, and how; `None` where there are none, or
    this is no convolution for them, or not worth it.
    """
    attrs = anchor.attrs
    if (
        not tile.bf16x2
        or get_int(attrs, "plain_input", 0)
        or get_int(attrs, "group", 1) != 1
        or get_int(attrs, "block", 0) != TILE
    ):
        return None
    whole = _micro(group, anchor, tile, Bf16x2ConvPlan(1, 1), ())
    plans = list(_plans(whole, tile))
    cycles, plan = min(
        (
            (_cycles(replace(whole, chunk=plan.chunk, parts=plan.parts), tile), plan)
            for plan in plans
        ),
        key=lambda each: each[0],
    )
    outputs = -(-get_int(attrs, "channels_out", 0) // tile.lanes)
    direct = cycles_by_vectors(
        whole.images
        * whole.rows.out
        * whole.columns.out
        * whole.channels
        * len(whole.taps)
        * outputs,
        0,
    )
    return (cycles, plan) if cycles < min(_WORTHWHILE * direct, direct - _LEAST_SAVED) else None


def bf16x2_conv_plans(group: Group, anchor: Node, tile: Tile) -> Iterator[Bf16x2ConvPlan]:
    """What is worth timing: the cheapest by the cost model, in more and in fewer work items."""
    found = cheapest_bf16x2_conv(group, anchor, tile)
    if found is None:
        return
    plan = found[1]
    yield plan
    yield Bf16x2ConvPlan(plan.chunk, 1)
    yield Bf16x2ConvPlan(-(-plan.chunk // 2), plan.parts)


def _plans(whole: Bf16x2Conv, tile: Tile) -> Iterator[Bf16x2ConvPlan]:
    """Divisions into chunks whose split parts fit the cache, or that cannot be smaller, and into
    parts.
    """
    seen = set()
    vectors = whole.blocks_in * whole.rows.size * whole.columns.size
    vectors += whole.group_vectors * whole.rows.out * whole.columns.out
    weights = packed_floats(TILE * whole.group_vectors, len(whole.taps), whole.channels)
    least = least_slices(tile, whole.images, 4 * TILE * vectors, 4 * weights)
    for chunks in range(min(least, whole.rows.out), whole.rows.out + 1):
        rows = -(-whole.rows.out // chunks)
        chunk = replace(whole, chunk=rows)
        if rows in seen or (rows > 1 and 4 * chunk.split_floats > tile.cache_bytes // 2):
            continue
        seen.add(rows)
        items = whole.images * chunk.chunks
        most = max(_MOST_ITEMS, ITEMS_PER_THREAD * tile.threads)
        for parts in _PARTS:
            if parts <= whole.panels and (parts == 1 or items * parts <= most):
                yield Bf16x2ConvPlan(rows, parts)
        if items > most:
            return


def _cycles(it: Bf16x2Conv, tile: Tile) -> float:
    """What it takes, with what threads lose by work items that they cannot share evenly."""
    steps = it.groups * it.images * it.chunks * it.panels * len(it.taps) * it.depths
    split = it.images * it.chunks * it.parts * it.half * it.blocks_in
    stored = it.images * it.rows.out * it.columns.out * it.group_vectors
    fetched = (
        it.images * it.chunks * it.panels * len(it.taps) * it.depths * STEP_FLOATS
        if it.is_far
        else 0
    )
    cycles = cycles_by_units(steps, split, stored, fetch_cycles(fetched, tile))
    uneven = -(-it.panels // it.parts) * it.parts / it.panels
    return cycles * imbalance(it.tasks, tile.threads) * uneven


def _micro(
    group: Group, anchor: Node, tile: Tile, plan: Bf16x2ConvPlan, outputs: tuple[Store, ...]
) -> Bf16x2Conv:
    source, weights = data_operands(anchor)
    shape = group.shape(source)
    rows, columns = fields(anchor, (shape[2], shape[3]), group.shape(weights)[2:])
    taken, made = get_int(anchor.attrs, "channels_in", 0), get_int(anchor.attrs, "channels_out", 0)
    return Bf16x2Conv(
        images=shape[0],
        rows=rows,
        columns=columns,
        source=input_buffer(group, anchor, source),
        weights=input_buffer(group, anchor, weights),
        channels=taken,
        group_vectors=-(-made // TILE),
        chunk=plan.chunk,
        parts=plan.parts,
        is_far=4 * packed_floats(made, math.prod(group.shape(weights)[2:]), taken)
        > tile.cache_bytes // 2,
        outputs=outputs,
    )


def lower_bf16x2_conv(group: Group, anchor: Node, tile: Tile, plan: Bf16x2ConvPlan) -> Kernel:
    """A kernel for a group whose anchor is a BlockedConv that `cheapest_bf16x2_conv` has a plan
    for.
    """
    require_floats(group, anchor)
    if not tile.bf16x2:
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' was to be computed by matrix units, and there are none"
        )
    micro = _micro(group, anchor, tile, plan, epilogue(group, anchor))
    elements = packed_floats(TILE * micro.group_vectors, len(micro.taps), micro.channels)
    packed = packed_weights(group, anchor, pack_kernel, elements)
    scratch = 4 * (micro.split_floats + SUM_FLOATS)
    kernel = group.kernel(micro.tasks, micro, scratch_bytes=scratch, packed=packed)
    return replace(kernel, unit=ArithmeticUnit.BF16, reduced_precision=True)
