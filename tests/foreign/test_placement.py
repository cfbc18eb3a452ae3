"""Where kernels of other engines are placed, from what those engines said of small models. The
expected lines were read one by one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.foreign.models import make
from tests.foreign.record import FOLDER, placement_text
from whence.foreign.run import attribute, prepare, read_recording

RECORDED = sorted(
    (path.parent.parent.name, path.parent.name) for path in FOLDER.glob("*/*/recording.json")
)


def test_engines_were_recorded() -> None:
    assert {engine for engine, _ in RECORDED} >= {"onnxruntime", "openvino"}
    assert len(RECORDED) >= 14


@pytest.mark.parametrize(("engine", "name"), RECORDED)
def test_kernels_are_placed(engine: str, name: str, tmp_path: Path) -> None:
    expected = (FOLDER / engine / name / "placement.txt").read_text(encoding="utf-8")
    assert placement_text(name, engine, tmp_path) == expected


@pytest.mark.parametrize(
    ("engine", "name", "kernel"),
    [
        ("onnxruntime", "residual", "Conv a_bn2_out_nchwc"),
        ("onnxruntime", "silu", "QuickGelu "),
        ("onnxruntime", "transformer", "BiasGelu "),
        ("onnxruntime", "transformer", "SkipLayerNormalization "),
        ("onnxruntime", "quantised", "QLinearConv "),
        ("onnxruntime", "half", "Cast InsertedPrecisionFreeCast_"),
        ("openvino", "transformer", "Subgraph second_half"),
    ],
)
def test_fusions_are_recorded(engine: str, name: str, kernel: str) -> None:
    """A newer engine that fuses otherwise must not leave them without a golden line."""
    lines = (FOLDER / engine / name / "placement.txt").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(kernel) for line in lines)


@pytest.mark.parametrize(("engine", "name"), RECORDED)
def test_times_add_up_and_checks_pass(engine: str, name: str, tmp_path: Path) -> None:
    subject = prepare(make(name, tmp_path))
    recording = read_recording(subject.source, FOLDER / engine / name)
    profile, placement = attribute(subject, recording)
    assert profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
    assert sum(profile.passes.values()) == profile.attributed_ns
    for kernel in profile.kernels:
        assert sum(part.time_ns for part in kernel.origin) == (
            kernel.time_ns if kernel.origin else 0
        )
    assert len(profile.sources) == len(subject.source)
    assert profile.coverage.lost == 0
    assert placement.checks.missing == ()
    assert placement.checks.heavy_elsewhere == {}
    assert profile.attributed_ns >= 0.99 * int(recording.node_ns.sum())
    assert profile.engine.startswith(engine)


def test_a_sum_and_an_activation_belong_to_the_convolution_before_them(tmp_path: Path) -> None:
    """ONNX Runtime calls the node after what it made before they were fused into it."""
    lines = placement_text("residual", "onnxruntime", tmp_path).splitlines()
    assert "Conv a_bn2_out_nchwc [name]: a_conv2 a_bn2 a_add a_relu2" in lines


def test_layout_changes_have_their_own_column(tmp_path: Path) -> None:
    subject = prepare(make("residual", tmp_path))
    profile, _ = attribute(subject, read_recording(subject.source, FOLDER / "onnxruntime/residual"))
    inserted = [kernel for kernel in profile.kernels if kernel.inserted]
    assert inserted
    assert sum(row.inserted_ns for row in profile.sources) == sum(k.time_ns for k in inserted)


def test_a_normalisation_that_was_folded_does_not_hide_the_convolution(tmp_path: Path) -> None:
    """OpenVINO's list of names has the normalisation, and not the convolution."""
    text = (FOLDER / "openvino/residual/openvino.json").read_text(encoding="utf-8")
    assert '"a_bn2,a_add,a_relu2"' in text.replace("Multiply_3846,", "")
    lines = placement_text("residual", "openvino", tmp_path).splitlines()
    assert any(line.endswith(": a_conv2 a_bn2 a_add a_relu2") for line in lines)


def test_snippets_have_the_operators_they_list(tmp_path: Path) -> None:
    lines = placement_text("transformer", "openvino", tmp_path).splitlines()
    (snippet,) = [line for line in lines if line.startswith("Subgraph second_half")]
    assert snippet.endswith(": bias second_div second_erf second_add second_mul second_half")


def test_averages_are_taken_as_differences(tmp_path: Path) -> None:
    """The first run, which compiles kernels, is in OpenVINO's averages and not in the profile."""
    subject = prepare(make("residual", tmp_path))
    folder = FOLDER / "openvino/residual"
    told = json.loads((folder / "openvino.json").read_text(encoding="utf-8"))
    recording = read_recording(subject.source, folder)
    name = next(iter(told["averages"]))
    column = next(n for n, node in enumerate(recording.nodes) if node.name == name)
    after = told["runs"] * told["averages"][name]
    before = told["before"]["runs"] * told["before"]["averages"][name]
    scaled = any("scaled to fit" in note for note in recording.notes)
    assert scaled or int(recording.node_ns[:, column].sum()) == max(0, after - before) * 1000
