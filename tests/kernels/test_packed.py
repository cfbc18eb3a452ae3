"""Products straight from packed weights, and rows gathered from packed tables, against the
reference and against ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import Cases
from whence.api import compile_model
from whence.graph.builder import Symbol
from whence.kernels.index import Var, of
from whence.kernels.ir import Kernel, Name, Prefetch, Stmt, Store
from whence.kernels.product.packed import INT8_ACTIVATIONS
from whence.kernels.product.packed_program import PackedProduct
from whence.machine import CACHE_LINE
from whence.ops.quantised.blockwise import GATHER, MATMUL
from whence.types import DType


def exact_rows(cases: Cases, *shape: int, block: int) -> np.ndarray:
    """Numbers that int8 holds exactly: every block has a largest of 127 times a power of 2."""
    codes = cases.rng.integers(-127, 128, shape)
    codes[..., ::block] = 127
    return (codes * 2.0 ** cases.rng.integers(-6, -3, (*shape[:-1], 1))).astype(np.float32)


def product(
    cases: Cases,
    a: Symbol,
    columns: int,
    depth: int,
    *,
    bits: int = 4,
    block: int = 32,
    zeros: bool = False,
    level: int = 0,
    bias: bool = False,
) -> Symbol:
    rng, blocks = cases.rng, -(-depth // block)
    weights = rng.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8)
    scales = rng.uniform(0.01, 0.1, (columns, blocks)).astype(np.float32)
    points = rng.integers(0, 256, (columns, -(-blocks * bits // 8)), np.uint8)
    # Whatever fills up the last byte of a row's zero points is not looked at.
    inputs: list[Symbol | None] = [a, cases.const(weights), cases.const(scales)]
    inputs += [cases.const(points) if zeros else None, None]
    inputs += [cases.weights(columns)] if bias else []
    while inputs[-1] is None:
        inputs.pop()
    attrs: dict[str, Any] = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    if level:
        attrs["accuracy_level"] = level
    return cases.op(MATMUL, *inputs, **attrs)


@pytest.mark.parametrize("level", [0, 4])
def test_products(level: int) -> None:
    cases = Cases(11)
    for bits, rows, depth, columns, block, zeros in (
        (4, 1, 64, 37, 16, False),
        (4, 1, 576, 96, 32, True),
        (4, 1, 100, 33, 64, False),
        (4, 5, 160, 70, 32, True),
        (4, 27, 256, 33, 128, False),
        (2, 1, 96, 16, 32, True),
        (2, 9, 100, 37, 64, False),
        (8, 1, 96, 70, 32, False),
        (8, 2, 300, 8, 256, True),
    ):
        a = cases.feed(exact_rows(cases, rows, depth, block=block))
        options: dict[str, Any] = {"bits": bits, "block": block, "zeros": zeros}
        y = product(cases, a, columns, depth, level=level, **options)
        cases.expect(y, f"{bits}_{rows}_{depth}_{columns}_{block}_{zeros}")
    cases.check(peer=False)


@pytest.mark.parametrize("level", [0, 1, 4])
def test_like_onnx_runtime(level: int) -> None:
    """What int8 does not hold exactly is rounded as there: to the nearest, block by block."""
    cases = Cases(12)
    for bits, rows, zeros, bias in (
        (4, 1, False, False),
        (4, 1, True, True),
        (4, 6, True, False),
        (8, 1, False, True),
        (8, 5, True, False),
    ):
        y = product(
            cases, cases.normal(2, rows, 128), 40, 128, bits=bits, zeros=zeros, level=level,
            bias=bias,
        )  # fmt: skip
        # The reference does not round the rows.
        cases.expect(y, f"{bits}_{rows}_{zeros}_{bias}", 2e-2 if level == 4 else 1e-5)
    cases.check()


def test_workers_that_quantise_rows_together_compute_the_same() -> None:
    """Whoever rounds a row, and in however many parts a panel's rows are multiplied."""
    cases = Cases(17)
    for rows, depth, columns, zeros in (
        (130, 576, 70, True),
        (128, 100, 96, False),
        (256, 64, 17, False),
    ):
        y = product(
            cases, cases.normal(rows, depth), columns, depth, zeros=zeros, level=INT8_ACTIVATIONS
        )
        cases.expect(y, f"{rows}_{depth}")
    graph = cases.build.finish()
    expected = compile_model(graph, threads=1)(**cases.feeds)
    assert all(np.abs(each).max() > 1 for each in expected)
    for threads in (2, 3):
        model = compile_model(graph, threads=threads)
        # One call at a time has all threads, several at once mostly have one each.
        several = model.run_many([cases.feeds] * 8, streams=2)
        for found in (model(**cases.feeds), *several):
            for ours, alone in zip(found, expected, strict=True):
                np.testing.assert_array_equal(ours, alone)


def test_what_follows_is_part_of_the_kernel() -> None:
    cases = Cases(13)
    x = cases.normal(3, 64)
    gate, up = (product(cases, x, 48, 64, level=4) for _ in range(2))
    cases.expect(cases.op("Mul", cases.op("Mul", gate, cases.op("Sigmoid", gate)), up), "", 2e-2)
    program = cases.check(peer=False)
    assert len(program.steps) == 2


def test_rows_of_zeros_and_a_single_column() -> None:
    cases = Cases(14)
    for level in (0, 4):
        a = np.zeros((3, 64), np.float32)
        a[1, 32:] = 1.0
        cases.expect(product(cases, cases.feed(a), 1, 64, level=level), str(level))
    cases.check(peer=False)


def test_weights_stay_packed() -> None:
    """Four bits and a scale for every 32 of them: no more than five bits a number, whatever the
    panels are filled up with.
    """
    cases = Cases(15)
    cases.expect(product(cases, cases.normal(1, 512), 256, 512, level=4), "", 2e-2)
    program = cases.check(peer=False)
    assert program.weights.nbytes <= 512 * 256 * 5 // 8 + 4096


def statements(body: Sequence[Stmt]) -> Iterator[Stmt]:
    for each in body:
        yield each
        for name in ("body", "otherwise"):
            yield from statements(getattr(each, name, ()) or ())


def test_the_next_panel_is_prefetched_while_many_rows_use_one() -> None:
    store = Store("out0", of(Var("n", 256)), Name("acc", DType.F32))
    for rows in (16, 128):
        product = PackedProduct(
            rows, 256, 576, 4, 32, True, "in0", "in1", "in2", None, 16, 4, 8, 2, 1, False, store,
        )  # fmt: skip
        kernel = Kernel("packed", (), product.panels, (product,))
        blocks = rows // product.tile_rows * 2 * product.blocks
        ahead = [each for each in statements(product.program(kernel)) if isinstance(each, Prefetch)]
        words = sum(each.pointer.startswith("words") for each in ahead)
        line = CACHE_LINE // 4
        assert words * blocks * line >= product.blocks * product.width * product.block_words
        assert any(each.pointer.startswith("scales") for each in ahead)


def test_gathered_rows() -> None:
    cases = Cases(16)
    rng = cases.rng
    for bits, zeros, rank in (
        (4, False, 2),
        (4, True, 2),
        (8, True, 2),
        (2, False, 2),
        (4, True, 3),
    ):
        inner = (3,) if rank == 3 else ()
        table = rng.integers(0, 256, (19, *inner, 64 * bits // 8), np.uint8)
        scales = rng.uniform(0.01, 0.1, (19, *inner, 4)).astype(np.float32)
        points = rng.integers(0, 256, (19, *inner, -(-4 * bits // 8)), np.uint8)
        inputs = [cases.const(table), cases.feed(np.array([[0, 18, 7], [-1, 3, 3]]))]
        inputs += [cases.const(scales), *([cases.const(points)] if zeros else [])]
        y = cases.op(
            GATHER, *inputs, bits=bits, block_size=16, gather_axis=0, quantize_axis=rank - 1
        )
        cases.expect(y, f"{bits}_{zeros}_{rank}")
    cases.check(peer=False)
