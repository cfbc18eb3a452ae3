"""Measuring the machine: what is found is possible, kept, and read back. How fast this machine is
decides nothing here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whence.attribution.cost_model import CostModel
from whence.backends.cpu.backend import CpuBackend
from whence.backends.cpu.generator import tile_for, work_rates
from whence.building import machine_record as record
from whence.building.machine_record import SETTING
from whence.building.nominal_rates import SCALAR_CYCLES, VECTOR_CYCLES, nominal_rates
from whence.calibration import calibrated, measure, rates_for
from whence.calibration.probes import EPILOGUES, epilogue_probes, operands_of
from whence.codegen.cache import Cache
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError
from whence.kernels.tile import AVX512
from whence.rates import BY_UNITS, ArithmeticUnit, MachineRates, MemoryLevel, Rate


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few tries as there can be: nobody looks at the figures."""
    for name, value in (("_TRIES", 2), ("_ROUNDS", 1), ("_MOST_BYTES", 1 << 23), ("_WAKES", 4)):
        monkeypatch.setattr(measure, name, value)
    for name in ("_TRY_NS", "_ALL_THREADS_NS", "_PROBE_NS"):
        monkeypatch.setattr(measure, name, 20_000)


@pytest.mark.usefixtures("quick")
def test_a_machine_is_measured_once_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = Toolchain(cache=Cache(tmp_path))
    assert not rates_for(toolchain).measured
    record.store(toolchain, dataclasses.replace(rates_for(toolchain), date="long ago"))
    assert rates_for(toolchain).date == "long ago"
    record.path_of(toolchain).unlink()
    stages: list[str] = []
    monkeypatch.setenv(SETTING, "auto")
    found = calibrated(
        toolchain, lambda doing, done, total: stages.append(f"{done}/{total} {doing}")
    )
    assert found.measured
    assert len(stages) == 6
    assert stages[-1].endswith("done")
    assert found.threads == toolchain.target.cores
    assert set(found.element_ps) == {*VECTOR_CYCLES, *SCALAR_CYCLES}
    assert all(each >= 0 for each in found.element_ps.values())
    assert found.peak[ArithmeticUnit.F32].one > 0
    assert [level.name for level in found.levels] == ["L1", "L2", "L3", "memory"]
    assert all(0 <= level.overlap <= 1 and level.byte_ps > 0 for level in found.levels)
    families = {name.rpartition(" ")[0] for name in found.epilogue}
    by_units = {f"product{BY_UNITS}", f"convolution{BY_UNITS}"}
    assert families - by_units == {"product", "convolution"}
    assert bool(families & by_units) == (ArithmeticUnit.BF16 in found.peak)
    assert len(found.epilogue) == len(families) * len(EPILOGUES)
    assert min(found.dispatch_ns, found.barrier_ns, found.wake_ns) >= 0

    def never(*_: object) -> MachineRates:
        raise AssertionError("measured again")

    monkeypatch.setattr(measure, "calibrate", never)
    assert calibrated(toolchain) == rates_for(toolchain) == found


def _changed(text: str, change: Callable[[dict[str, Any]], None]) -> str:
    content = json.loads(text)
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"one"', '"two"'),
        lambda text: "[]",
        lambda text: _changed(text, lambda content: content["rates"].update(peak={"f32": [0, -1]})),
        lambda text: _changed(text, lambda content: content.update(circumstances="others")),
    ],
)
def test_a_damaged_record_is_as_good_as_none(damage: Callable[[str], str], tmp_path: Path) -> None:
    toolchain = Toolchain(cache=Cache(tmp_path))
    nominal = nominal_rates(toolchain.target)
    path = record.store(toolchain, dataclasses.replace(nominal, measured=True))
    assert path is not None
    assert rates_for(toolchain).measured
    path.write_text(damage(path.read_text()))
    assert rates_for(toolchain) == nominal


def test_what_was_measured_on_a_busy_machine_chooses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    toolchain = Toolchain(cache=Cache(tmp_path))
    nominal, plain = work_rates(toolchain), tile_for(toolchain)
    rates = dataclasses.replace(
        nominal_rates(toolchain.target, threads=2), measured=True, wake_ns=9e6, reached=0.9
    )
    record.store(toolchain, dataclasses.replace(rates, disturbed=True))
    assert rates_for(toolchain).disturbed
    assert (work_rates(toolchain), tile_for(toolchain)) == (nominal, plain)
    record.store(toolchain, rates)
    quiet = work_rates(toolchain)
    assert quiet.flops_per_ns["f32"] == pytest.approx(1.5 * nominal.flops_per_ns["f32"])
    assert quiet.alone_ns < 1e6, "threads that follow call on call do not sleep"


def _with_bandwidth(level: MemoryLevel, bandwidth: Rate) -> MemoryLevel:
    return dataclasses.replace(level, bandwidth=bandwidth)


def test_kernels_are_chosen_by_what_was_measured_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = Toolchain(cache=Cache(tmp_path))
    rates = nominal_rates(toolchain.target, threads=2)
    bandwidths = (Rate(300, 600), Rate(200, 400), Rate(50, 100), Rate(33, 48))
    levels = tuple(map(_with_bandwidth, rates.levels, bandwidths))
    rates = dataclasses.replace(rates, clock_ghz=3.0, levels=levels, measured=True)
    record.store(toolchain, rates)
    assert record.measured(toolchain) is None, "the tests have WHENCE_CALIBRATE=never"
    assert tile_for(toolchain, 1).memory_bytes == AVX512.memory_bytes
    backend = CpuBackend(threads=2, toolchain=toolchain)
    identity = backend.cache_identity()
    assert identity is not None
    before = identity.parts()
    monkeypatch.setenv(SETTING, "auto")
    # 33 / 3 = 11 bytes, and 48 / 2 / 3 = 8 for each of two threads.
    assert tile_for(toolchain, 1).memory_bytes == pytest.approx(11)
    assert tile_for(toolchain, 2).memory_bytes == pytest.approx(8)
    assert identity.parts() != before, "what was compiled without it is not taken for this"
    assert tile_for(toolchain, 1).interleaved, "the third-level cache has a quarter of the speed"
    levels = (*levels[:2], _with_bandwidth(levels[2], Rate(100, 200)), levels[3])
    record.store(toolchain, dataclasses.replace(rates, levels=levels))
    assert not tile_for(toolchain, 1).interleaved, "it has half of it"
    sanitized = Toolchain(cache=toolchain.cache, sanitize=True)
    assert tile_for(sanitized, 1).memory_bytes == AVX512.memory_bytes


def test_the_setting_decides_whether_a_machine_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = Toolchain(cache=Cache(tmp_path))
    monkeypatch.setenv(SETTING, "never")
    assert not calibrated(toolchain).measured
    monkeypatch.setenv(SETTING, "sometimes")
    with pytest.raises(InputError, match="WHENCE_CALIBRATE is 'sometimes'"):
        calibrated(toolchain)


@pytest.mark.parametrize("name", [name for name in Target.names() if name != "host"])
def test_every_target_has_nominal_rates_that_do_not_depend_on_this_machine(name: str) -> None:
    rates = nominal_rates(Target.named(name), threads=4)
    assert record.decode(record.encode(rates)) == rates
    assert not rates.measured
    assert rates.peak[ArithmeticUnit.F32].all == pytest.approx(
        4 * rates.peak[ArithmeticUnit.F32].one
    )
    assert (ArithmeticUnit.BF16 in rates.peak) == (name == "x86_64-amx")
    prices = [level.byte_ps for level in rates.levels]
    assert prices == sorted(prices)


@pytest.mark.parametrize("name", ["x86_64", "x86_64-avx2", "x86_64-amx", "aarch64-dotprod"])
def test_the_code_that_measures_compiles_for_every_kind_of_machine(name: str) -> None:
    toolchain = Toolchain(Target.named(name))
    assert toolchain.build_library([measure._source(tile_for(toolchain))]).exists()


def test_a_rate_of_some_threads_lies_between_one_and_all() -> None:
    rate = Rate(10.0, 70.0)
    assert [rate.at(threads, 4) for threads in (1, 2, 3, 4, 9)] == [10, 30, 50, 70, 70]
    assert rate.at(2, 1) == 10


def test_data_lies_in_the_nearest_level_that_holds_it() -> None:
    rates = nominal_rates(Target.named("x86_64-avx2"))
    sizes = (1 << 10, 1 << 16, 1 << 22, 1 << 30)
    assert [rates.level(size).name for size in sizes] == ["L1", "L2", "L3", "memory"]


def test_what_follows_a_product_of_matrix_units_is_measured_apart() -> None:
    units = dataclasses.replace(AVX512, bf16x2=True)
    probes = epilogue_probes(AVX512, units)
    assert {"product", "convolution", f"product{BY_UNITS}"} <= set(probes)
    assert all(probe.kernel.reduced_precision for probe in probes[f"product{BY_UNITS}"])
    model = CostModel(
        dataclasses.replace(
            nominal_rates(Target.default()),
            epilogue={"product Gelu": 1.25, f"product{BY_UNITS} Gelu": 0.75},
        )
    )
    assert model.epilogue("MatMul", "Gelu") == 1.25
    assert model.epilogue("MatMul", "Gelu", by_units=True) == 0.75


def test_functions_are_measured_on_ordinary_numbers_whatever_the_packing() -> None:
    """Sigmoid of huge numbers is subnormal, which takes ten times as long."""
    units = dataclasses.replace(AVX512, bf16x2=True)
    rng = np.random.default_rng(0)
    for family, probes in epilogue_probes(AVX512, units).items():
        for probe in probes:
            values = operands_of(probe, rng)[1]
            if family.endswith(BY_UNITS):
                values = (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
            assert np.abs(values).max() < 1, family
            assert np.abs(values).std() > 0.01, family
