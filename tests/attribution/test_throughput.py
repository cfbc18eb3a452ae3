"""Several callers at once, and batches, from Python as on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import whence
from tests.docs.models import write_models
from whence.types import TensorType


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_models(tmp_path)
    return tmp_path


def test_streams_and_batch_are_measured(models: Path) -> None:
    found = whence.profile(models / "open.onnx", runs=4, warmup=1, threads=1, streams=2, batch=3)
    assert found.environment["input x"] == "3×4"
    assert found.throughput is not None
    assert (found.throughput.streams, found.throughput.batch) == (2, 3)
    rate = found.throughput.runs_per_second
    assert found.throughput.samples_per_second == pytest.approx(3 * rate)
    alone = whence.profile(models / "open.onnx", runs=4, warmup=1, threads=1)
    assert alone.throughput is None


def test_a_batch_of_a_compiled_model(models: Path) -> None:
    model = whence.compile(models / "open.onnx", threads=1)
    assert whence.profile(model, runs=4, batch=5).environment["input x"] == "5×4"


def test_a_batch_that_cannot_be_is_refused(models: Path) -> None:
    with pytest.raises(whence.InputError, match="no input of the model takes a batch"):
        whence.profile(models / "model.onnx", batch=2)
    with pytest.raises(whence.InputError, match="those given have a size of their own"):
        whence.profile(models / "open.onnx", {"x": np.zeros((2, 4), np.float32)}, batch=2)
    with pytest.raises(whence.InputError, match="make no sense"):
        whence.profile(models / "open.onnx", streams=-1)


def test_a_batch_of_the_size_that_the_model_has(models: Path) -> None:
    (port,) = whence.load(models / "model.onnx").inputs
    assert isinstance(port.type, TensorType)
    assert port.type.shape is not None
    size = port.type.shape[0]
    assert isinstance(size, int)
    found = whence.profile(models / "model.onnx", runs=4, warmup=1, streams=2, batch=size)
    assert found.throughput is not None
    assert found.throughput.batch == size
