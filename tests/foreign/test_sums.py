"""What kind of sum a kernel has, which says what it costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.foreign.models import Build
from whence.attribution.cost_model import CostModel
from whence.building.nominal_rates import nominal_rates
from whence.codegen.target import Target
from whence.foreign.function_models import SUMS
from whence.foreign.operator_costs import operator_costs
from whence.foreign.run import prepare
from whence.foreign.shares import weights_of

RATES = nominal_rates(Target.named("x86_64-avx512"))
KNOWN = {name: float(number) for number, name in enumerate(SUMS.values(), 1)}


def kind(path: Path, operator: str, *members: str) -> str | None:
    """Of the sum `operator` behind the first of `members`, which stand for its kernel with it."""
    source = prepare(path).source
    number = source.by_name
    inside = [number[each] for each in (*members, operator)]
    model = CostModel(replace(RATES, epilogue=KNOWN))
    found = operator_costs(source, model).measured_sum(inside, number[members[0]], number[operator])
    return None if found is None else list(SUMS)[int(found) - 1]


def residual(folder: Path, *, side: int = 8, kept: str = "") -> Path:
    """A narrow convolution between two wide ones, and around it. `kept` says who else reads what is
    added: "earlier" or "later" than the sum, or the "same" kernel.
    """
    build = Build((1, 8, side, side))
    x = build.conv("first", "x", 64, 8, 1)
    y = build.conv("narrow", x, 8, 64, 1)
    if kept == "same":
        y = x
    if kept == "earlier":
        y = build.op("Add", "both", y, build.conv("before", x, 8, 64, 1))
    y = build.conv("last", y, 64, 64 if kept == "same" else 8, 1)
    y = build.op("Relu", "relu", build.op("Add", "sum", y, x))
    if kept == "later":
        y = build.op("Concat", "all", y, x, axis=1)
    return build.save(folder / "model.onnx", y)


@pytest.mark.parametrize("kept", ["", "earlier"])
def test_a_sum_takes_the_place_of_what_nothing_else_needs(tmp_path: Path, kept: str) -> None:
    path = residual(tmp_path, kept=kept)
    assert kind(path, "sum", "last", "relu") == "sum"
    assert kind(residual(tmp_path, side=64, kept=kept), "sum", "last") == "large_sum"


@pytest.mark.parametrize("kept", ["same", "later"])
def test_what_others_still_need_has_to_be_copied_first(tmp_path: Path, kept: str) -> None:
    assert kind(residual(tmp_path, kept=kept), "sum", "last", "relu") == "kept_sum"


def test_a_bias_in_front_of_a_function_is_one_of_its_own(tmp_path: Path) -> None:
    build = Build((64, 32))
    x = build.op("MatMul", "product", "x", build.weight("w", 32, 256))
    x = build.op("Add", "bias", x, build.weight("b", 256))
    path = build.save(tmp_path / "model.onnx", build.op("Tanh", "tanh", x))
    assert kind(path, "bias", "product", "tanh") == "activated_bias"
    # The function is in another kernel, which reads the results once more.
    assert kind(path, "bias", "product") == "bias"
    assert kind(path, "tanh", "product", "bias") is None


def test_other_sums_are_no_residuals(tmp_path: Path) -> None:
    build = Build((1, 8, 8, 8))
    small = build.op("GlobalAveragePool", "pool", "x")
    y = build.op("Add", "spread", build.conv("conv", "x", 8, 8), small)
    path = build.save(tmp_path / "model.onnx", build.op("Add", "twice", y, y))
    assert kind(path, "spread", "conv") is None
    assert kind(path, "twice", "conv", "spread") is None


def test_an_input_of_the_model_is_no_bias_and_in_no_weights(tmp_path: Path) -> None:
    build = Build((1, 8, 8, 8))
    y = build.op("Add", "sum", build.conv("conv", build.op("Neg", "first", "x"), 8, 8), "x")
    path = build.save(tmp_path / "conv.onnx", build.op("Relu", "relu", y))
    assert kind(path, "sum", "conv", "relu") == "sum"
    source = prepare(path).source
    model = CostModel(replace(RATES, epilogue=KNOWN))
    inside = [source.by_name[each] for each in ("conv", "sum")]
    assert weights_of(operator_costs(source, model), inside)[inside[1]] > 0

    build = Build((64, 64))
    y = build.op("MatMul", "product", "x", build.weight("w", 64, 64))
    path = build.save(tmp_path / "product.onnx", build.op("Add", "sum", y, "x"))
    assert kind(path, "sum", "product") is None


def test_what_was_measured_of_a_sum_has_its_reads_in_it(tmp_path: Path) -> None:
    """They are not charged to it once more."""
    source = prepare(residual(tmp_path, side=64)).source
    inside = [source.by_name[each] for each in ("last", "sum", "relu")]
    once = 64 * 64 * 64 * RATES.element_ps["Relu"]

    def part(epilogue: dict[str, float]) -> float:
        model = CostModel(replace(RATES, epilogue=epilogue))
        found = weights_of(operator_costs(source, model), inside, round(50 * once))
        return found[inside[1]] / sum(found.values())

    assert part({SUMS["large_sum"]: 5.0}) == pytest.approx(0.1, abs=0.01)
    assert part({SUMS["sum"]: 5.0}) == pytest.approx(0.1, abs=0.01)
    assert part({}) > 0.15
