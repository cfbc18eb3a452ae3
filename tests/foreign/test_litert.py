"""LiteRT: its profiler's events, and how XNNPACK's operators find those of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import whence.foreign
from tests.debugdb.making import DATA
from whence.errors import ModelError
from whence.foreign.litert_reader import read_litert
from whence.foreign.run import Subject, attribute, prepare, record

MODEL = DATA / "tinycnn.tflite"
EVENTS = Path(__file__).with_name("recorded") / "litert_tinycnn.json"
"""Two runs of LiteRT 2.3.0 with XNNPACK, on x86-64 with AVX2."""
WALLS = (2_000_000, 3_000_000)


@pytest.fixture(scope="module")
def subject() -> Subject:
    return prepare(MODEL)


def placed(subject: Subject, path: Path) -> list[str]:
    recording = read_litert(subject.source, path, WALLS)
    _, placement = attribute(subject, recording)
    source = subject.source
    return [
        f"{each.node.op}: {' '.join(source[number].name for number in each.weights)}"
        for each in placement.places
    ]


def test_operators_of_the_delegate_find_those_of_the_file(subject: Subject) -> None:
    """A pointwise convolution is a fully connected layer to XNNPACK; two operators it leaves to
    LiteRT.
    """
    assert placed(subject, EVENTS) == [
        "Convolution (NHWC, QC8) IGEMM: conv1/Relu",
        "Convolution (NHWC, QC8) DWConv: dw2/Relu",
        "Fully Connected (NC, QS8, QC8W) GEMM: pw3",
        "Add (ND): add4",
        "LeakyReLU (NC): leaky5",
        "AVERAGE_POOL_2D: avgpool6",
        "Mean (ND) Reduce: mean7",
        "Static Reshape (NC): ",
        "Fully Connected (NC, QS8, QC8W) GEMM: fc8",
        "SOFTMAX: softmax9",
    ]


def test_times_add_up(subject: Subject) -> None:
    profile, placement = attribute(subject, read_litert(subject.source, EVENTS, WALLS))
    assert profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
    assert profile.wall_ns == sum(WALLS)
    assert placement.checks.heavy_elsewhere == {}


def test_what_does_not_fit_one_by_one_is_uncertain(subject: Subject, tmp_path: Path) -> None:
    """One convolution less than the file has: which of them is missing cannot be told."""
    told = json.loads(EVENTS.read_text())
    for run in told["runs"]:
        del run[next(at for at, row in enumerate(run) if "Convolution" in row[0])]
    path = tmp_path / "litert.json"
    path.write_text(json.dumps(told))
    lines = placed(subject, path)
    assert "Convolution (NHWC, QC8) DWConv: " in lines
    assert "AVERAGE_POOL_2D: avgpool6" in lines
    recording = read_litert(subject.source, path, WALLS)
    profile, _ = attribute(subject, recording)
    assert any(name.startswith("uncertain: Convolution") for name in profile.residual_ns)
    # They are in some kernel, so nothing is lost.
    rows = {row.name: row for row in profile.sources}
    assert rows["conv1/Relu"].fate == "live"
    assert rows["conv1/Relu"].became.startswith("uncertain: one of 1 × Convolution")
    assert profile.coverage.lost == 0


def test_other_files_are_refused(subject: Subject, tmp_path: Path) -> None:
    path = tmp_path / "litert.json"
    for content, reason in (("[]", "no recording"), ('{"runs": []}', "not alike")):
        path.write_text(content)
        with pytest.raises(ModelError, match=reason):
            read_litert(subject.source, path, WALLS)


@pytest.mark.skipif("litert" not in whence.foreign.available(), reason="litert is not installed")
def test_litert_runs(subject: Subject) -> None:
    recording = record(subject, "litert", threads=1, runs=2, warmup=1)
    profile, placement = attribute(subject, recording)
    assert profile.engine == f"litert {whence.foreign.available()['litert']}"
    assert profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
    assert placement.checks.heavy_elsewhere == {}
