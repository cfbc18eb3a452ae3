"""How times grow with a dimension: made-up times, and a small model."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from whence.api import compile_model
from whence.attribution.dimension_sweep import DimensionSweep, sweep_dimension
from whence.attribution.growth import Growth, GrowthKind, fit_growth
from whence.attribution.rows import Band
from whence.errors import InputError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.report.growth import growth_content, growth_page, print_growth
from whence.types import DType

SIZES = (0, 64, 512, 2048)


@pytest.mark.parametrize(
    ("wanted", "fixed", "each", "square"),
    [
        (GrowthKind.CONSTANT, 5_000.0, 0.0, 0.0),
        (GrowthKind.CONSTANT, 5_000.0, 0.1, 0.0),
        (GrowthKind.LINEAR, 5_000.0, 40.0, 0.0),
        (GrowthKind.LINEAR, 0.0, 40.0, 0.0),
        (GrowthKind.QUADRATIC, 100.0, 4.0, 0.1),
        (GrowthKind.QUADRATIC, 0.0, 0.0, 0.1),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_forms_are_told_apart(
    wanted: GrowthKind, fixed: float, each: float, square: float, noise: float
) -> None:
    true = Growth(wanted, fixed, each, square)
    dice = np.random.default_rng(1)
    times = [true.at(size) * (1 + noise * dice.uniform(-1, 1)) for size in SIZES]
    found = fit_growth(SIZES, times, noise)
    assert found.kind is wanted
    assert found.error <= 0.11
    if wanted is not GrowthKind.CONSTANT:
        assert found.at(2048) == pytest.approx(true.at(2048), rel=0.15)
        assert min(found.fixed_ns, found.each_ns, found.square_ns) >= 0


def test_what_cannot_be_told_is_not_claimed() -> None:
    assert fit_growth((1, 2), (1.0, 4.0)).kind is GrowthKind.LINEAR
    assert fit_growth((8,), (5.0,)).kind is GrowthKind.CONSTANT
    assert fit_growth(SIZES, (0, 0, 0, 0)).kind is GrowthKind.CONSTANT
    # What becomes shorter is no growth.
    assert fit_growth(SIZES, (100, 90, 70, 40)).each_ns == 0
    # However noisy the machine, what takes sixty times as long is not constant.
    assert fit_growth(SIZES, (100, 120, 150, 7000), noise=3.0).kind is not GrowthKind.CONSTANT


def attention() -> Graph:
    """Scores of all positions with all, and a product for each position."""
    build = GraphBuilder("attention")
    x = build.input("x", DType.F32, ["batch", "sequence", 8])
    turned = build.op("Transpose", x, perm=(0, 2, 1))
    scores = build.op("Softmax", build.op("MatMul", x, turned, name="scores"), axis=-1, name="soft")
    mixed = build.op("MatMul", scores, x, name="mixed")
    weights = build.const(np.ones((8, 8), np.float32))
    build.output("y", build.op("MatMul", mixed, weights, name="projection"))
    return build.finish()


@pytest.fixture(scope="module")
def swept() -> DimensionSweep:
    model = compile_model(attention(), threads=1)
    return sweep_dimension(model, "sequence", (16, 4, 64), runs=3, warmup=1, model="m/net.onnx")


def timed(sweep: DimensionSweep) -> DimensionSweep:
    """With made-up times: `projection` grows with the size, `scores` with its square."""
    growths = {"projection": (500, 30, 0), "scores": (100, 0, 7), "mixed": (900, 0, 0)}
    profiles = []
    for size, profile in zip(sweep.sizes, sweep.profiles, strict=True):
        rows = []
        for row in profile.sources:
            fixed, each, square = growths.get(row.name, (0, 0, 0))
            time = fixed + each * size + square * size * size
            rows.append(dataclasses.replace(row, time_ns=3 * time, band=Band(time, time, time)))
        whole = sum(row.time_ns for row in rows)
        runs = (whole // 3,) * 3
        profiles.append(
            dataclasses.replace(profile, sources=tuple(rows), wall_ns=whole, runs_ns=runs)
        )
    return dataclasses.replace(sweep, profiles=tuple(profiles))


def test_a_sweep_profiles_every_size(swept: DimensionSweep) -> None:
    assert swept.sizes == (4, 16, 64)
    assert [profile.dimensions for profile in swept.profiles] == [
        {"batch": 1, "sequence": size} for size in (4, 16, 64)
    ]
    assert [profile.runs for profile in swept.profiles] == [3, 3, 3]
    assert len(swept.rows()) == len(swept.profiles[0].sources)
    flops = [sum(row.flops for row in profile.sources) for profile in swept.profiles]
    assert flops[0] < flops[1] < flops[2]


def test_rows_by_operator_and_by_type(swept: DimensionSweep) -> None:
    sweep = timed(swept)
    rows = {row.key: row for row in sweep.rows()}
    assert list(rows)[:2] == ["scores", "projection"]
    assert rows["scores"].growth.kind is GrowthKind.QUADRATIC
    assert rows["scores"].growth.square_ns == pytest.approx(7, rel=0.05)
    assert rows["projection"].growth.kind is GrowthKind.LINEAR
    assert rows["projection"].growth.each_ns == pytest.approx(30, rel=0.05)
    assert rows["mixed"].growth.kind is GrowthKind.CONSTANT
    (product,) = (row for row in sweep.rows("type") if row.key == "MatMul")
    assert product.times_ns[-1] == sweep.total.times_ns[-1] == 900 + 500 + 30 * 64 + 100 + 7 * 64**2
    with pytest.raises(InputError, match="not by 'kernel'"):
        sweep.rows("kernel")


@pytest.mark.parametrize("width", [80, 140])
def test_the_table_fits(swept: DimensionSweep, width: int) -> None:
    console = Console(width=width, record=True, highlight=False, file=io.StringIO())
    print_growth(console, timed(swept))
    text = console.export_text()
    table = [line for line in text.splitlines() if "µs" in line or "growth" in line]
    assert max(map(len, table)) <= width
    assert "quadratic, 7 ns·n²" in text
    assert "linear, 30 ns each" in text
    assert "the whole run" in text
    assert "sequence 64 takes" in text
    assert "of what operators add is scores" in text


def test_files(swept: DimensionSweep, tmp_path: Path) -> None:
    sweep = timed(swept)
    files = sweep.save(tmp_path, growth_page)
    assert files[:2] == [tmp_path / "growth.json", tmp_path / "growth.html"]
    found = json.loads(files[0].read_text())
    assert found["schema"] == "whence.growth/1"
    assert found["model"] == "net.onnx"
    assert found["sizes"] == [4, 16, 64]
    assert {row["name"]: row["growth"] for row in found["operators"]}["scores"] == "quadratic"
    assert (tmp_path / "16" / "profile.json").exists()
    content = growth_content(sweep)
    assert content["operators"][0]["fit"][2] == pytest.approx(7, rel=0.05)


def test_wrong_sizes() -> None:
    model = compile_model(attention(), threads=1)
    with pytest.raises(InputError, match="needs at least two sizes"):
        sweep_dimension(model, "sequence", (4, 4))
    with pytest.raises(InputError, match="no dimension 'length'"):
        sweep_dimension(model, "length", (4, 5), runs=1)
