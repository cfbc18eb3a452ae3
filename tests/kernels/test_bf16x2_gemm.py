"""Matrix products by matrix units against the reference, and where they are taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.kernels.native import Lower, NativeCase, run_native
from tests.kernels.test_bf16x2 import MATRIX, runs_emulated
from whence.codegen.emit import emit
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.errors import UnsupportedError
from whence.graph import Node
from whence.graph.builder import GraphBuilder
from whence.kernels.group import Group
from whence.kernels.ir import Kernel
from whence.kernels.lower import lower_group
from whence.kernels.product.bf16x2 import Bf16x2GemmPlan, lower_bf16x2_gemm
from whence.kernels.product.bf16x2_program import Bf16x2Gemm
from whence.kernels.product.gemm import lower_gemm
from whence.kernels.tile import AVX512, Tile
from whence.types import DType


def by(plan: Bf16x2GemmPlan) -> Lower:
    """Lower with exactly this plan, whatever it costs."""

    def lower(group: Group, anchor: Node, tile: Tile) -> Kernel:
        return lower_bf16x2_gemm(group, anchor, tile, plan)

    return lower


@dataclass(frozen=True)
class Product:
    """A product of these sizes, with what follows it."""

    name: str
    rows: tuple[int, ...]
    depth: int
    columns: int
    lower: Lower
    op: str = "MatMul"
    after: str = "Relu"
    tile: Tile = MATRIX
    is_constant: bool = True
    attrs: dict[str, Any] = field(default_factory=dict)

    def case(self) -> NativeCase:
        rng, build = np.random.default_rng(0), GraphBuilder("product")
        shape = (
            (self.columns, self.depth) if self.attrs.get("transB") else (self.depth, self.columns)
        )
        left = (self.depth, *self.rows) if self.attrs.get("transA") else (*self.rows, self.depth)
        x, w, c = (
            rng.standard_normal(size).astype(np.float32) for size in (left, shape, (self.columns,))
        )
        right = build.const(w) if self.is_constant else build.input("w", DType.F32, shape)
        y = build.op(
            self.op, build.input("x", DType.F32, left), right, name="product", **self.attrs
        )
        build.output(
            "y", build.op(self.after, build.op("Add", y, build.const(c), name="sum"), name="after")
        )
        return NativeCase(
            self.name, build.finish(), {"x": x, "w": w}, self.lower, self.tile, self.op
        )


def product(
    rows: int | tuple[int, ...],
    depth: int,
    columns: int,
    block_rows: int,
    parts: int = 1,
    **attrs: Any,
) -> Product:
    op = "Gemm" if attrs else "MatMul"
    name = f"product {rows}×{depth}×{columns}, {block_rows} rows, {parts} parts {attrs}"
    return Product(
        name,
        rows if isinstance(rows, tuple) else (rows,),
        depth,
        columns,
        by(Bf16x2GemmPlan(block_rows, parts)),
        op,
        attrs=attrs,
    )


PRODUCTS = [
    product(32, 64, 64, 32),
    product(197, 96, 160, 96, 2),
    product(197, 96, 160, 197, 5),
    product(100, 40, 65, 64, 2),
    product(17, 33, 31, 17),
    product(1, 64, 100, 1, 3),
    product(70, 7, 5, 32),
    product((3, 25), 50, 48, 32),
    product(41, 40, 70, 32, 2, transB=1, alpha=0.5),
    # More weights than stay near, so that those to come are asked for ahead: of one group of rows,
    # and of several.
    product(32, 1024, 544, 32, 2),
    product(80, 1056, 512, 80, 4),
]


@runs_emulated
def test_results() -> None:
    cases = [each.case() for each in PRODUCTS]
    wrong = {}
    for case, (made,) in zip(cases, run_native(cases), strict=True):
        (expected,) = case.graph.run({name: case.feeds[name] for name in ("x",)})
        gap = np.abs(made - expected).max() / np.abs(expected).max()
        if not gap < 2e-5:
            wrong[case.name] = gap
    assert not wrong


def test_some_fetch_weights_ahead() -> None:
    statements = [each.case().kernel().body[0] for each in PRODUCTS]
    assert {
        bool(statement.ahead) for statement in statements if isinstance(statement, Bf16x2Gemm)
    } == {False, True}


def test_the_code_compiles_for_a_machine_that_has_them() -> None:
    kernels = [each.case().kernel() for each in PRODUCTS]
    assert (
        Toolchain(Target.named("x86_64-amx"))
        .build_library(emit(kernels, [["anchor"]] * len(kernels)).units)
        .is_file()
    )


@runs_emulated
def test_its_error_beside_float32() -> None:
    """Against double precision, over a depth of 768: about 4e-6 of the largest output."""
    errors = {}
    for name, lower in {"vectors": lower_gemm, "units": by(Bf16x2GemmPlan(64, 1))}.items():
        case = Product(name, (64,), 768, 64, lower).case()
        ((made,),) = run_native([case])
        w, c = (node.value for node in case.graph if node.value is not None)
        expected = np.maximum(case.feeds["x"].astype(np.float64) @ w.astype(np.float64) + c, 0)
        errors[name] = np.abs(made - expected).max() / np.abs(expected).max()
    assert errors["vectors"] < errors["units"] < 8e-6


@runs_emulated
def test_numbers_that_are_none() -> None:
    """NaN stays NaN, and what is infinite is not finite afterwards; other rows do not notice."""
    case = Product("numbers", (8,), 40, 40, by(Bf16x2GemmPlan(8, 1)), after="Identity").case()
    for row, number in enumerate((np.nan, np.inf, np.finfo(np.float32).max)):
        case.feeds["x"][row, 39] = number
    ((made,),) = run_native([case])
    assert np.isnan(made[0]).all()
    assert not np.isfinite(made[1:3]).any()
    assert np.isfinite(made[3:]).all()


def kind(case: Product) -> type:
    native = case.case()
    (anchor,) = (node for node in native.graph if node.op == case.op)
    (statement,) = lower_group(native.group(), anchor, case.tile).body
    return type(statement)


def test_it_is_taken_where_it_pays() -> None:
    assert kind(Product("attention", (197,), 192, 576, lower_group)) is Bf16x2Gemm
    assert kind(Product("few rows of far weights", (32,), 384, 1536, lower_group)) is Bf16x2Gemm
    assert kind(Product("one row", (1,), 1024, 1024, lower_group)) is not Bf16x2Gemm
    assert kind(Product("small", (8,), 32, 32, lower_group)) is not Bf16x2Gemm
    assert (
        kind(Product("no matrix units", (197,), 192, 576, lower_group, tile=AVX512))
        is not Bf16x2Gemm
    )
    assert (
        kind(Product("no constant", (197,), 192, 576, lower_group, is_constant=False))
        is not Bf16x2Gemm
    )
    assert (
        kind(Product("turned", (197,), 192, 576, lower_group, "Gemm", attrs={"transA": 1}))
        is not Bf16x2Gemm
    )


def test_digits_are_kept_for_a_softmax() -> None:
    build, rng = GraphBuilder("product"), np.random.default_rng(0)
    weights = rng.standard_normal((192, 576)).astype(np.float32)
    y = build.op(
        "MatMul", build.input("x", DType.F32, (197, 192)), build.const(weights), name="product"
    )
    build.output("y", build.op("Softmax", y, name="softmax"))
    graph = build.finish()
    (anchor,) = (node for node in graph if node.op == "MatMul")
    group = Group(
        graph,
        "product",
        (anchor,),
        tuple(ref for ref in anchor.inputs if ref is not None),
        (anchor.ref(),),
    )
    (statement,) = lower_group(group, anchor, MATRIX).body
    assert not isinstance(statement, Bf16x2Gemm)


@pytest.mark.parametrize(
    "case",
    [
        Product("no units", (64,), 64, 64, lower_group, tile=AVX512),
        Product("no constant", (64,), 64, 64, lower_group, is_constant=False),
    ],
)
def test_where_it_cannot_be(case: Product) -> None:
    native = case.case()
    (anchor,) = (node for node in native.graph if node.op == "MatMul")
    with pytest.raises(UnsupportedError, match="matrix units"):
        lower_bf16x2_gemm(native.group(), anchor, case.tile, Bf16x2GemmPlan(32, 1))
