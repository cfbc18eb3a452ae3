"""LiteRT: its profiler's events, and how XNNPACK's operators find those of the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import whence.foreign
from tests.debugdb.making import DATA
from tests.frontends.tflite.making import Model, write
from whence.errors import ModelError
from whence.foreign.litert_reader import read_litert
from whence.foreign.run import PreparedModel, attribute, prepare, record

MODEL = DATA / "tinycnn.tflite"
EVENTS = Path(__file__).with_name("recorded") / "litert_tinycnn.json"
"""Two runs of LiteRT 2.3.0 with XNNPACK, on x86-64 with AVX2."""
WALLS = (2_000_000, 3_000_000)


@pytest.fixture(scope="module")
def subject() -> PreparedModel:
    return prepare(MODEL)


def placed(subject: PreparedModel, path: Path) -> list[str]:
    recording = read_litert(subject.source, path, WALLS)
    _, placement = attribute(subject, recording)
    source = subject.source
    return [
        f"{each.node.op}: {' '.join(source[number].name for number in each.weights)}"
        for each in placement.places
    ]


def test_operators_of_the_delegate_find_those_of_the_file(subject: PreparedModel) -> None:
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


def test_times_add_up(subject: PreparedModel) -> None:
    profile, placement = attribute(subject, read_litert(subject.source, EVENTS, WALLS))
    assert profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
    assert profile.wall_ns == sum(WALLS)
    assert placement.checks.heavy_elsewhere == {}


def test_what_does_not_fit_one_by_one_is_uncertain(subject: PreparedModel, tmp_path: Path) -> None:
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


def with_epilogues() -> Model:
    """A padding and activations that have no kernels of their own."""
    model, rng = Model(), np.random.default_rng(0)
    x = model.input((1, 8, 8, 4))
    borders = model.const([[0, 0], [0, 1], [0, 1], [0, 0]], np.int32)
    padded = model.op("PAD", [x, borders], (1, 9, 9, 4))
    weights = model.const(rng.standard_normal((8, 3, 3, 4)), np.float32)
    bias = model.const(np.zeros(8), np.float32)
    made = (1, 4, 4, 8)
    valid = model.number("Padding", "VALID")
    conv = model.op("CONV_2D", [padded, weights, bias], made, padding=valid, stride_w=2, stride_h=2)
    positive = model.op("RELU", [conv], made)
    sizes = model.op("ABS", [model.op("NEG", [positive], made)], made)
    model.output(model.op("RELU", [model.op("ADD", [sizes, positive], made)], made))
    return model


def test_what_xnnpack_takes_into_another_operator_is_in_that(tmp_path: Path) -> None:
    subject = prepare(write(with_epilogues(), tmp_path))
    tags = (
        "Convolution (NHWC, F32) IGEMM",
        "Negate (NC)",
        "Abs (NC)",
        "Add (ND)",
    )
    run = [[tag, 8, 10, 0, 0] for tag in tags]
    path = tmp_path / "events.json"
    path.write_text(json.dumps({"runs": [[["Invoke", 1, 50, 0, 0], *run]]}))
    recording = read_litert(subject.source, path, WALLS[:1])
    profile, placement = attribute(subject, recording)
    types = {row.id: row.op for row in profile.sources}
    assert [(each.node.op, [types[of] for of in each.weights]) for each in placement.places] == [
        ("Convolution (NHWC, F32) IGEMM", ["PAD", "CONV_2D", "RELU"]),
        ("Negate (NC)", ["NEG"]),
        ("Abs (NC)", ["ABS"]),
        ("Add (ND)", ["ADD", "RELU"]),
    ]
    assert profile.coverage.lost == 0
    # An activation that has a kernel is the one that stands where the kernel does.
    path.write_text(
        json.dumps({"runs": [[["Invoke", 1, 60, 0, 0], *run, ["Clamp (NC)", 8, 10, 0, 0]]]})
    )
    made = read_litert(subject.source, path, WALLS[:1]).nodes
    held = [[types[number] for number in node.holds] for node in made]
    assert held == [["CONV_2D", "PAD", "RELU"], ["NEG"], ["ABS"], ["ADD"], ["RELU"]]


def test_other_files_are_refused(subject: PreparedModel, tmp_path: Path) -> None:
    path = tmp_path / "litert.json"
    for content, reason in (("[]", "no recording"), ('{"runs": []}', "not alike")):
        path.write_text(content)
        with pytest.raises(ModelError, match=reason):
            read_litert(subject.source, path, WALLS)


@pytest.mark.skipif("litert" not in whence.foreign.available(), reason="litert is not installed")
def test_litert_runs(subject: PreparedModel) -> None:
    recording = record(subject, "litert", threads=1, runs=2, warmup=1)
    profile, placement = attribute(subject, recording)
    assert profile.engine == f"litert {whence.foreign.available()['litert']}"
    assert profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
    assert placement.checks.heavy_elsewhere == {}
