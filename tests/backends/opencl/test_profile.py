"""A profile of a run on a device: sums are exact, copies and gaps are named, and what runs on the
host is seen.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import whence
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.types import DType


@pytest.fixture(scope="module")
def profile(engine: Engine) -> whence.Profile:
    build, rng = GraphBuilder("net"), np.random.default_rng(0)
    x = build.op(
        "MatMul",
        build.input("x", DType.F32, (24, 32)),
        build.const(rng.standard_normal((32, 40)).astype(np.float32)),
        name="product",
    )
    x = build.op("Relu", x, name="relu")
    # No device of ours computes in half precision: the host does, and the value goes there and
    # back.
    x = build.op("Cast", build.op("Cast", x, name="narrow", to=10), name="wide", to=1)
    build.output("y", build.op("Softmax", x, name="softmax", axis=-1))
    return whence.profile(build.finish(), engine=engine, runs=4, warmup=1)


def test_sums_are_exact(profile: whence.Profile) -> None:
    assert (
        sum(source.time_ns for source in profile.sources) + sum(profile.residual_ns.values())
        == profile.wall_ns
    )
    assert profile.coverage.lost == 0
    assert sorted(source.name for source in profile.sources) == [
        "narrow",
        "product",
        "relu",
        "softmax",
        "wide",
    ]


def test_copies_and_gaps_are_named(profile: whence.Profile) -> None:
    assert profile.residual_ns["transfers"] > 0
    assert profile.residual_ns["queue"] > 0
    assert not any(name.startswith("unattributed") for name in profile.residual_ns)


def test_every_operator_that_ran_has_time(profile: whence.Profile) -> None:
    times = {source.name: source.time_ns for source in profile.sources}
    assert times["product"] > 0
    assert times["softmax"] > 0
    assert any(times[name] > 0 for name in ("narrow", "wide"))
    assert any(not kernel.native for kernel in profile.kernels)


def test_it_is_saved_like_any_other(profile: whence.Profile, tmp_path: Path) -> None:
    written = {path.name for path in profile.save(tmp_path)}
    assert {"profile.json", "report.html", "trace.pftrace"} <= written
    assert "__kernel" in (tmp_path / "report.html").read_text(encoding="utf-8")
