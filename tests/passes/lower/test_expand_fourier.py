"""Parts of a Fourier transform in front of a product, against NumPy, natively."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from whence.graph.builder import GraphBuilder
from whence.types import DType


def _build(
    part: str,
    *,
    length: int,
    filters: int,
    product: str,
    bias: bool = False,
    read_twice: bool = False,
) -> tuple[GraphBuilder, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    bins = length // 2 + 1
    weights = rng.standard_normal((bins, filters)).astype(np.float32)
    offset = rng.standard_normal(filters).astype(np.float32)
    build = GraphBuilder()
    x = build.input("x", DType.F32, [3, 7, 1, length])
    spectrum = build.op("RealFourier2D", x, build.const(np.array([1, length])))
    rows = build.op("Squeeze", spectrum, build.const(np.array([-2])))
    found = build.op(part, rows)
    if product == "Gemm":
        flat = build.op("Reshape", found, build.const(np.array([21, bins])))
        third = [build.const(offset)] if bias else []
        made = build.op("Gemm", flat, build.const(weights.T.copy()), *third, transB=1)
    else:
        made = build.op("MatMul", found, build.const(weights))
    build.output("y", made)
    if read_twice:
        build.output("z", build.op("ComplexAbs", rows))
    return build, weights, offset * bias


@pytest.mark.parametrize("part", ["RealPart", "ImaginaryPart"])
@pytest.mark.parametrize("product", ["Gemm", "MatMul"])
@pytest.mark.parametrize("length", [16, 15, 256])
def test_a_part_is_a_product(part: str, product: str, length: int) -> None:
    bias = product == "Gemm"
    build, weights, offset = _build(part, length=length, filters=9, product=product, bias=bias)
    graph = build.finish()
    x = np.random.default_rng(1).standard_normal((3, 7, 1, length)).astype(np.float32)
    spectrum = np.fft.rfft(x.astype(np.float64)[:, :, 0])
    taken = spectrum.real if part == "RealPart" else spectrum.imag
    expected = taken @ weights + offset
    model = whence.compile(graph)
    found = np.asarray(model(x)).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())
    (program,) = model.programs
    assert all(step.symbol for step in program.steps), "every step has a native kernel"


@pytest.mark.parametrize(
    "options", [{"read_twice": True, "filters": 9}, {"filters": 300}], ids=["read twice", "many"]
)
def test_a_transform_that_is_worth_its_name_stays(options: dict[str, int]) -> None:
    build, *_ = _build("RealPart", length=16, product="MatMul", **options)  # type: ignore[arg-type]
    graph = build.finish()
    whence.prepare(graph)
    assert "RealFourier2D" in {node.op for node in graph}
