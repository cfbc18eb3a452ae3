"""Matrix products: a register tile of rows × columns, the right-hand side packed in column panels,
the epilogue applied on the way out.

C[b, m, n] = epilogue(Σ_k A[b, m, k] · B[b, k, n])

Constant right-hand sides (weights) are packed at compile time. Others are packed panel by panel at
run time into the worker's scratch, which costs one pass over B for M passes of arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from whence.errors import UnsupportedError
from whence.extent import estimate, is_symbolic, surely_equal
from whence.graph import Node, Ref
from whence.kernels.cost import chunk_size
from whence.kernels.group import Group, Packed
from whence.kernels.index import Index, Var, of, ravel, unravel
from whence.kernels.ir import Expr, Kernel, Literal, Store
from whence.kernels.product.gemm_program import ACCUMULATOR, BATCH, COLUMN, ROW, Gemm, Matrix
from whence.kernels.product.packing import PackPanels
from whence.kernels.rules.elementwise import activated, add, mul
from whence.kernels.tile import Tile
from whence.ops.attributes import get_float, get_int
from whence.ops.registry import operators, plain_name
from whence.ops.traits import Trait
from whence.types import DType

GEMM_OPS = operators(Trait.PRODUCT)

# Vectors of a register tile that are timed, and the height below which a tile is for products of so
# few rows only.
_WIDTHS = (1, 2, 3, 4, 6, 8)
_FEW_ROWS = 6
# Tiles of rows that a work item has at least, where the number of rows is open: another call may
# have many more than the one that is compiled for.
_LEAST_OPEN_TILES = 4

# Up to so many tiles of rows a panel is divided in depth, into blocks that stay in the first-level
# cache.
_FEW_TILES = 4
_BLOCK_BYTES = 1 << 15
# What a work item costs besides its products, in tiles: reading a panel that is near, one from
# beyond the second-level cache, or packing it.
_NEAR_TILES, _FAR_TILES, _PACK_TILES = 0.15, 0.9, 1.5


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of the graph in one normal form."""

    a: Ref
    b: Ref
    trans_a: bool
    trans_b: bool
    alpha: float
    bias: Ref | None
    beta: float


def product_of(node: Node) -> Product:
    attrs = node.attrs
    names = ("transA", "transB") if plain_name(node.op) == "Gemm" else ("trans_a", "trans_b")
    trans_a, trans_b = (bool(get_int(attrs, name, 0)) for name in names)
    alpha, beta = get_float(attrs, "alpha", 1.0), get_float(attrs, "beta", 1.0)
    a, b, bias = node.first_input, node.required("B"), node.operand("C", "Z")
    return Product(a, b, trans_a, trans_b, alpha, bias, beta)


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """How a matrix product is divided: `rows` × `vectors` of a register tile, the rows of a work
    item, and how deep its panel is at a time.
    """

    rows: int
    vectors: int
    block_rows: int
    block_depth: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a matrix product."""

    product: Product
    rows: int
    columns: int
    depth: int
    batch_shape: tuple[int, ...]
    packed: bool
    """One constant B serves all of A."""


def sizes_of(group: Group, anchor: Node) -> Sizes:
    product = product_of(anchor)
    if any(group.dtype(ref) is not DType.F32 for ref in (product.a, product.b)):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' multiplies {group.dtype(product.a)}")
    a_shape, b_shape = group.shape(product.a), group.shape(product.b)
    if len(a_shape) < 2 or len(b_shape) < 2:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' has a vector operand")
    depth, columns = (b_shape[-1], b_shape[-2]) if product.trans_b else (b_shape[-2], b_shape[-1])
    rows = a_shape[-1] if product.trans_a else a_shape[-2]
    if 0 in (rows, columns, depth):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' has an empty operand")
    shared_b = math.prod(b_shape[:-2]) == 1
    packed = shared_b and group.graph.const_value(product.b) is not None
    if shared_b and not product.trans_a:
        # One B for all of A: the batch dimensions are more rows.
        return Sizes(product, rows * math.prod(a_shape[:-2]), columns, depth, (), packed)
    return Sizes(product, rows, columns, depth, group.shape(anchor.ref())[:-2], packed)


def _estimated(sizes: Sizes) -> Sizes:
    """The sizes to compare costs by."""
    return replace(
        sizes,
        rows=estimate(sizes.rows),
        columns=estimate(sizes.columns),
        depth=estimate(sizes.depth),
        batch_shape=tuple(map(estimate, sizes.batch_shape)),
    )


def _plan(sizes: Sizes, tile: Tile) -> GemmPlan:
    """What the cost model takes."""
    if is_symbolic(sizes.rows) or is_symbolic(sizes.depth):
        return _open_plan(sizes, tile)
    sizes = _estimated(sizes)
    # Few rows leave registers for more columns. But weights come from afar a panel ahead of their
    # use, and narrow panels come quicker.
    is_near = 4 * sizes.depth * sizes.columns <= tile.cache_bytes // 2
    fitted = tile.fitted(sizes.rows) if is_near else tile.evened(sizes.rows)
    return _divided(sizes, fitted)


def _open_plan(sizes: Sizes, tile: Tile) -> GemmPlan:
    """The whole tile, and work items of some tiles of rows at least."""
    usual = _estimated(sizes)
    fitting = max(tile.cache_bytes // 2 // (4 * usual.depth * tile.rows), 1)
    tiles = -(-_block_rows(usual, usual.depth, tile) // tile.rows)
    tiles = max(tiles, min(_LEAST_OPEN_TILES, fitting))
    return GemmPlan(tile.rows, tile.vectors, tiles * tile.rows, sizes.depth)


def gemm_plans(group: Group, anchor: Node, tile: Tile) -> Iterator[GemmPlan]:
    """What is worth timing, what the cost model takes first; some may come twice."""
    sizes = sizes_of(group, anchor)
    rows, usual = sizes.rows, _plan(sizes, tile)
    yield usual
    for vectors in _WIDTHS:
        # Besides the sums, registers hold a row of the panel and a value of A.
        most = max(1, (tile.rows * tile.vectors + tile.vectors - vectors) // vectors)
        # A narrow tile reads a row for every product, a wide one is for few rows.
        if (
            vectors > -(-sizes.columns // tile.lanes)
            or (vectors == 1 and sizes.columns > tile.lanes)
            or (most < _FEW_ROWS and rows > most)
        ):
            continue
        shape = replace(tile, rows=most, vectors=vectors).evened(rows)
        yield _divided(sizes, shape)
    for parts in (1, 2, 4):
        # From all rows in a work item to a quarter of what fits the cache.
        tiles = (
            -(-rows // usual.rows) if parts == 1 else -(-usual.block_rows // (parts * usual.rows))
        )
        yield replace(usual, block_rows=min(rows, tiles * usual.rows), block_depth=sizes.depth)


def lower_gemm(group: Group, anchor: Node, tile: Tile, plan: GemmPlan | None = None) -> Kernel:
    """A kernel for a group whose anchor is a matrix product of single-precision values, divided as
    planned or else as the cost model would.
    """
    sizes = sizes_of(group, anchor)
    micro = gemm_micro(group, anchor, tile, sizes, _plan(sizes, tile) if plan is None else plan)
    tasks = micro.batch * micro.panels * micro.blocks
    if not sizes.packed:
        return group.kernel(tasks, micro, scratch_bytes=sizes.depth * micro.tile.width * 4)
    packing = PackPanels(sizes.depth, sizes.columns, sizes.product.trans_b, micro.tile.width)
    form = Packed(packing, micro.panels * sizes.depth * micro.tile.width)
    return group.kernel(tasks, micro, packed={sizes.product.b: form})


def gemm_micro(group: Group, anchor: Node, tile: Tile, sizes: Sizes, plan: GemmPlan) -> Gemm:
    """The product as a statement, divided as planned."""
    product, batch_shape = sizes.product, sizes.batch_shape
    rows, columns, depth = sizes.rows, sizes.columns, sizes.depth
    a_shape, b_shape = group.shape(product.a), group.shape(product.b)
    a_row, a_column = (1, a_shape[-1]) if product.trans_a else (a_shape[-1], 1)
    b_row, b_column = (1, b_shape[-1]) if product.trans_b else (b_shape[-1], 1)
    batch = Var(BATCH, math.prod(batch_shape))
    a_base, b_base = (batch_base(of(batch), batch_shape, shape) for shape in (a_shape, b_shape))
    a = Matrix(group.input_name(product.a), a_base, a_row, a_column)
    b = Matrix(group.input_name(product.b), b_base, b_row, b_column)
    tile = replace(tile, rows=plan.rows, vectors=plan.vectors)
    flat = (of(batch) * rows + of(Var(ROW, rows))) * columns + of(Var(COLUMN, columns))
    return Gemm(
        batch.extent,
        rows,
        columns,
        depth,
        a,
        b,
        sizes.packed,
        tile,
        plan.block_rows,
        plan.block_depth,
        epilogue(group, anchor, product, flat, group.shape(anchor.ref())),
    )


def batch_base(batch: Index, batch_shape: tuple[int, ...], shape: tuple[int, ...]) -> Index:
    """Where the matrix of a batch item begins, broadcasting its batch dimensions."""
    own = shape[:-2]
    if not batch_shape or not own:
        return of(0)
    places = unravel(batch, batch_shape)[len(batch_shape) - len(own) :]
    pairs = zip(places, own, strict=True)
    index = [of(0) if surely_equal(extent, 1) else place for place, extent in pairs]
    return ravel(index, own) * (shape[-2] * shape[-1])


def _divided(sizes: Sizes, tile: Tile) -> GemmPlan:
    """Tiles of this shape, in work items as the cost model divides them."""
    block_depth = _block_depth(sizes, tile)
    return GemmPlan(tile.rows, tile.vectors, _block_rows(sizes, block_depth, tile), block_depth)


def _block_depth(sizes: Sizes, tile: Tile) -> int:
    """So much of a panel at a time as the nearest cache holds: weights come from far away, and a
    worker waits for the first block that it needs.

    Many tiles of rows take so long that the wait is not noticed, and would have many sums to
    spill.
    """
    if not sizes.packed or not 1 < -(-sizes.rows // tile.rows) <= _FEW_TILES:
        return sizes.depth
    parts = -(-4 * tile.width * sizes.depth // _BLOCK_BYTES)
    return next(
        (sizes.depth // count for count in range(parts, 2 * parts) if sizes.depth % count == 0),
        sizes.depth,
    )


def _block_rows(sizes: Sizes, depth: int, tile: Tile) -> int:
    """At most as many tiles of rows as keep A's block within half of the second-level cache, so
    that the panel of B is reused over it; fewer where that lets threads end together.
    """
    tiles, panels = -(-sizes.rows // tile.rows), -(-sizes.columns // tile.width)
    fitting = max(tile.cache_bytes // 2 // (4 * depth * tile.rows), 1)
    is_near = 4 * sizes.depth * sizes.columns <= tile.cache_bytes // 2
    overhead = _PACK_TILES if not sizes.packed else _NEAR_TILES if is_near else _FAR_TILES
    chunk = chunk_size(
        tiles,
        math.prod(sizes.batch_shape) * panels,
        tile.threads,
        overhead=overhead,
        least_parts=-(-tiles // fitting),
    )
    return min(sizes.rows, chunk * tile.rows)


def epilogue(
    group: Group, anchor: Node, product: Product, flat: Index, out_shape: tuple[int, ...]
) -> Store:
    """What is stored for a sum."""
    if len(group.outputs) != 1:
        raise UnsupportedError(f"group '{group.name}' exposes more than one value")
    elements = group.elements()
    index = unravel(flat, out_shape)
    total: Expr = ACCUMULATOR
    if product.alpha != 1.0:
        total = mul(total, Literal(product.alpha, DType.F32))
    if product.bias is not None and product.beta != 0.0:
        bias = elements.broadcast(product.bias, index)
        if product.beta != 1.0:
            bias = mul(bias, Literal(product.beta, DType.F32))
        total = add(total, bias)
    (store,) = group.stores(anchor, activated(anchor, total), flat)
    return store
