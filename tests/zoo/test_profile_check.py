"""The check of profiles finds what is wrong with one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import conv_bn_relu
from whence.api import compile_model
from whence.attribution import Profile, profile_executable
from zoo.profile_check import _faults, check


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(conv_bn_relu(), path)
    return path


@pytest.fixture
def profile(model: Path) -> Profile:
    return profile_executable(compile_model(model, threads=1), runs=2, warmup=0, model=str(model))


def test_a_model_that_adds_up(model: Path) -> None:
    found = check(model, 2, files=True)
    assert (found.name, found.status, found.detail, found.operators) == ("tiny", "ok", "", 4)
    assert 0 < found.kernels < 1
    assert found.kernels + found.dispatch + found.idle == pytest.approx(1, abs=0.1)


def test_a_file_that_is_none_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"nothing")
    assert check(path, 1).status == "failed"


def test_what_is_wrong_is_found(model: Path, profile: Profile) -> None:
    assert list(_faults(profile, model)) == []
    first, *rest = profile.sources
    assert any(
        "ns are not" in fault
        for fault in _faults(dataclasses.replace(profile, wall_ns=profile.wall_ns + 1), model)
    )
    longer = dataclasses.replace(
        profile, sources=(dataclasses.replace(first, time_ns=first.time_ns + 1), *rest)
    )
    assert any("ns are not" in fault for fault in _faults(longer, model))
    assert "an operator is missing or there twice" in list(
        _faults(dataclasses.replace(profile, sources=(first, first, *rest)), model)
    )
    lost = dataclasses.replace(profile.coverage, lost=1)
    assert "1 operators lost" in list(_faults(dataclasses.replace(profile, coverage=lost), model))
    renamed = dataclasses.replace(profile, sources=(dataclasses.replace(first, op="Gemm"), *rest))
    assert any("the file has 4 operators" in fault for fault in _faults(renamed, model))
    kernel, *others = profile.kernels
    half = dataclasses.replace(kernel, time_ns=kernel.time_ns + 2)
    assert f"kernel {kernel.id} does not add up" in list(
        _faults(dataclasses.replace(profile, kernels=(half, *others)), model)
    )
