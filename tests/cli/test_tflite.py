"""The commands on TFLite files: the same words as for ONNX, in terms of the file's operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cli.conftest import Whence
from tests.frontends.tflite.making import Model, write

TINYCNN = Path(__file__).parents[1] / "debugdb" / "data" / "tinycnn.tflite"
OPERATORS = (
    "conv1/Relu",
    "dw2/Relu",
    "pw3",
    "add4",
    "leaky5",
    "avgpool6",
    "mean7",
    "fc8",
    "softmax9",
)


def test_why_lists_the_operators_of_the_file(whence: Whence) -> None:
    done = whence("why", TINYCNN)
    assert done.code == 0
    for name in OPERATORS:
        assert name in done.out
    assert "9 live, 0 lost" in done.out


def test_why_tells_the_life_of_one(whence: Whence) -> None:
    done = whence("why", TINYCNN, "leaky5")
    assert done.code == 0
    assert "leaky5 (LEAKY_RELU) live" in done.out
    assert "read from the file as number 5" in done.out


def test_passes_take_it(whence: Whence) -> None:
    done = whence("passes", TINYCNN)
    assert done.code == 0
    assert "9 source operators: 9 live, 0 lost" in done.out


def test_a_custom_operator_is_named(whence: Whence, tmp_path: Path) -> None:
    model = Model()
    made = model.tensor((2,), name="landmarks")
    model.op("CUSTOM:Landmarks", [model.input((2,), np.float32)], outputs=[made], custom=b"")
    model.output(made)
    done = whence("why", write(model, tmp_path))
    assert done.code == 1
    assert "operator 'landmarks' (CUSTOM:Landmarks)" in done.err
    assert "Traceback" not in done.err


def test_a_damaged_file_is_one_line(whence: Whence, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(TINYCNN.read_bytes()[:500])
    done = whence("why", broken)
    assert done.code == 1
    assert "broken.tflite" in done.err
    assert len(done.err.strip().splitlines()) == 1
