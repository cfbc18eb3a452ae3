"""What functions cost an engine, and how a kernel's time is divided by that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.foreign.models import Build
from whence.attribution.cost_model import CostModel
from whence.building.nominal_rates import SIMPLE, nominal_rates
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.foreign import engine_rates
from whence.foreign.engine_rates import FunctionCosts, measured_functions
from whence.foreign.function_models import ELEMENTS, FUNCTIONS, SUMS, TWIN, write_function_models
from whence.foreign.inseparable import find_inseparable
from whence.foreign.operator_costs import operator_costs
from whence.foreign.run import prepare
from whence.foreign.shares import weights_of
from whence.rates import MachineRates


def shares(path: Path, rates: MachineRates, busy_ps: int = 0) -> dict[str, float]:
    source = prepare(path).source
    operators = [number for number in source.live if source[number].op != "Identity"]
    found = weights_of(operator_costs(source, CostModel(rates)), operators, busy_ps)
    whole = sum(found.values())
    return {source[number].name: weight / whole for number, weight in found.items()}


@pytest.fixture
def rates() -> MachineRates:
    return nominal_rates(Target.named("x86_64-avx512"))


def gemm_tanh(path: Path) -> Path:
    build = Build((64, 32))
    x = build.op("MatMul", "product", "x", build.weight("w", 32, 256))
    return build.save(path / "model.onnx", build.op("Tanh", "tanh", x))


def test_a_function_has_what_it_costs_the_engine(tmp_path: Path, rates: MachineRates) -> None:
    path = gemm_tanh(tmp_path)
    slow = replace(rates, element_ps={**rates.element_ps, "Tanh": 4000.0})
    quick = replace(rates, element_ps={**rates.element_ps, "Tanh": 40.0})
    assert shares(path, quick)["tanh"] < 0.4
    assert shares(path, slow)["tanh"] > 0.8
    behind = replace(slow, epilogue={"product Tanh": 0.01})
    assert shares(path, behind)["tanh"] == pytest.approx(shares(path, quick)["tanh"], abs=0.01)


def test_what_a_kernel_takes_longer_than_the_peak_rate_is_the_products(
    tmp_path: Path, rates: MachineRates
) -> None:
    path = gemm_tanh(tmp_path)
    costs = round(64 * 256 * rates.element_ps["Tanh"])
    assert shares(path, rates, 20 * costs)["tanh"] == pytest.approx(0.05, abs=0.01)


def test_limits_and_biases_have_what_was_measured_behind_products(
    tmp_path: Path, rates: MachineRates
) -> None:
    build = Build((1, 8, 32, 32))
    x = build.op("Conv", "conv", "x", build.weight("w", 16, 8, 1, 1))
    x = build.op("Clip", "clip", x, build.constant("low", 0.0), build.constant("high", 6.0))
    path = build.save(tmp_path / "clip.onnx", x)
    once = 16 * 32 * 32 * rates.element_ps[SIMPLE]
    known = replace(rates, epilogue={"convolution Clip": 5.0})
    assert shares(path, known, round(50 * once))["clip"] == pytest.approx(0.1, abs=0.01)

    build = Build((64, 32))
    x = build.op("MatMul", "product", "x", build.weight("w", 32, 256))
    path = build.save(tmp_path / "bias.onnx", build.op("Add", "bias", x, build.weight("b", 256)))
    once = 64 * 256 * rates.element_ps[SIMPLE]
    known = replace(rates, epilogue={SUMS["bias"]: 5.0})
    assert shares(path, known, round(50 * once))["bias"] == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(("rows", "name"), [(64, "bias Add"), (1024, "large bias Add")])
def test_large_results_have_rates_of_their_own(
    tmp_path: Path, rates: MachineRates, rows: int, name: str
) -> None:
    """An engine that goes over its results once more pays for memory where no cache holds them."""
    build = Build((rows, 32))
    x = build.op("MatMul", "product", "x", build.weight("w", 32, 256))
    path = build.save(tmp_path / "bias.onnx", build.op("Add", "bias", x, build.weight("b", 256)))
    once = rows * 256 * rates.element_ps[SIMPLE]
    both = {SUMS["bias"]: 1.0, SUMS["large_bias"]: 1.0}
    known = replace(rates, epilogue={**both, name: 5.0})
    assert shares(path, known, round(50 * once))["bias"] == pytest.approx(0.1, abs=0.02)

    build = Build((rows, 32))
    x = build.op("MatMul", "product", "x", build.weight("w", 32, 256))
    path = build.save(tmp_path / "sigmoid.onnx", build.op("Sigmoid", "sigmoid", x))
    costs = round(rows * 256 * rates.element_ps["Sigmoid"])
    family = "large_product" if rows == 1024 else "product"
    both = {"product Sigmoid": 1.0, "large_product Sigmoid": 1.0}
    known = replace(rates, epilogue={**both, f"{family} Sigmoid": 3.0})
    assert shares(path, known, 30 * costs)["sigmoid"] == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("from_input", [False, True])
def test_a_residual_in_front_of_a_normalisation(
    tmp_path: Path, rates: MachineRates, from_input: bool
) -> None:
    build = Build((1, 64, 256))
    side = "x" if from_input else build.op("Relu", "side", "x")
    total = build.op("Add", "skip", build.op("Neg", "other", "x"), side)
    norm = build.op("LayerNormalization", "norm", total, build.weight("scale", 256), axis=-1)
    source = prepare(build.save(tmp_path / "norm.onnx", norm)).source
    inside = [number for number in source.live if source[number].name in ("skip", "norm")]
    skip = next(number for number in inside if source[number].name == "skip")

    def part(rates: MachineRates) -> float:
        found = weights_of(operator_costs(source, CostModel(rates)), inside)
        return found[skip] / sum(found.values())

    assert part(rates) < 0.5
    assert part(replace(rates, epilogue={SUMS["norm"]: 500.0})) > 0.9


@pytest.mark.parametrize("from_input", [False, True])
def test_a_kernel_that_takes_longer_than_its_operators_cannot_be_divided(
    tmp_path: Path, rates: MachineRates, from_input: bool
) -> None:
    build = Build((1, 64, 256))
    side = "x" if from_input else build.op("Relu", "side", "x")
    total = build.op("Add", "skip", build.op("Neg", "other", "x"), side)
    norm = build.op("LayerNormalization", "norm", total, build.weight("scale", 256), axis=-1)
    source = prepare(build.save(tmp_path / "norm.onnx", norm)).source
    number = source.by_name
    inside = {number["skip"], number["norm"]}

    def together(factor: float, *operators: str) -> frozenset[int]:
        model = CostModel(replace(rates, epilogue={SUMS["norm"]: factor}))
        return find_inseparable(operator_costs(source, model), [number[each] for each in operators])

    assert together(500.0, "skip", "norm") == inside
    assert not together(2.0, "skip", "norm")
    assert not together(500.0, "norm")


def test_every_model_is_valid_and_has_its_twin(tmp_path: Path) -> None:
    write_function_models(tmp_path)
    found = list(tmp_path.glob("*/*.onnx"))
    names = {f"{path.parent.name}/{path.stem}" for path in found}
    assert {f"alone/{name}" for name in FUNCTIONS} < names
    assert {path.parent.name for path in found} == ELEMENTS.keys()
    for kind in ELEMENTS:
        assert f"{kind}/{TWIN}" in names
    with np.load(tmp_path / "inputs.npz") as inputs:
        for path in found:
            model = onnx.load(path)
            onnx.checker.check_model(model, full_check=True)
            assert all(port.name in inputs for port in model.graph.input)


def test_an_engine_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WHENCE_CACHE", str(tmp_path))
    toolchain = Toolchain()
    machine = replace(nominal_rates(toolchain.target), measured=True)
    monkeypatch.setattr(engine_rates, "calibrated", lambda *_: machine)
    monkeypatch.setattr(engine_rates, "available", lambda: {"onnxruntime": "1.2.3"})
    asked: list[str] = []

    def measured(engine: str, simple_ps: float) -> FunctionCosts:
        asked.append(engine)
        return FunctionCosts({"Tanh": 123.0}, {"product Tanh": 0.5})

    monkeypatch.setattr(engine_rates, "measured_functions", measured)
    for _ in range(2):
        found = engine_rates.engine_rates("onnxruntime", "1.2.3", toolchain)
        assert found.element_ps["Tanh"] == 123.0
        assert found.element_ps["Exp"] == machine.element_ps["Exp"]
        assert found.epilogue == {"product Tanh": 0.5}
    assert asked == ["onnxruntime"]
    # Another version, another engine, and one that reads no ONNX are not what was asked.
    assert engine_rates.engine_rates("onnxruntime", "1.3", toolchain) == machine
    assert engine_rates.engine_rates("litert", "2.3.0", toolchain) == machine
    (stored,) = tmp_path.rglob("onnxruntime-*.json")
    stored.write_text(json.dumps({"element_ps": 3}))
    engine_rates.engine_rates("onnxruntime", "1.2.3", toolchain)
    assert asked == ["onnxruntime"] * 2


def test_the_median_of_several_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def took(_: str, folder: Path, rounds: int, seed: int) -> dict[str, list[int]]:
        asked.append(folder)
        # In a process whose memory lies badly, what has a Tanh takes long, and in one of its rounds
        # everything does.
        longer = 999_999 if len(asked) == 2 else 65_536
        names = [f"{path.parent.name}/{path.stem}" for path in folder.glob("*/*.onnx")]
        each = {name: 1000 + longer * ("Tanh" in name or name == "bias/Add") for name in names}
        return {name: [time, 9 * time] for name, time in each.items()}

    monkeypatch.setattr(engine_rates, "time_models", took)
    found = measured_functions("onnxruntime", 20.0)
    assert found is not None
    assert len(set(asked)) == 1 < len(asked)
    assert found.element_ps["Tanh"] == pytest.approx(20 + 65_536_000 / ELEMENTS["alone"])
    assert found.element_ps["Exp"] == 20.0
    # Behind a product, and of a sum, the twin has nothing in its place.
    assert found.epilogue["convolution Clip"] == 0.0
    assert found.epilogue["bias Add"] == pytest.approx(65_536_000 / ELEMENTS["bias"] / 20)
    assert found.epilogue["residual Add"] == 0.0
    monkeypatch.setattr(engine_rates, "time_models", lambda *_: None)
    assert measured_functions("onnxruntime", 20.0) is None


@pytest.mark.slow
def test_functions_are_measured_with_the_engine() -> None:
    pytest.importorskip("onnxruntime")
    found = measured_functions("onnxruntime", 20.0)
    assert found is not None
    assert found.element_ps.keys() == FUNCTIONS.keys()
    assert all(each >= 20.0 for each in found.element_ps.values())
    # A scalar function of the C library, and one that takes a vector instruction.
    assert found.element_ps["Softplus"] > 2 * found.element_ps["Sqrt"]
    assert {"product Tanh", "convolution Clip", *SUMS.values()} <= found.epilogue.keys()


def test_an_engine_that_is_not_here_is_not_measured() -> None:
    assert measured_functions("nowhere", 20.0) is None
