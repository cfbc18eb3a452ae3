"""Running the command line in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from whence.cli.main import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


Whence = Callable[..., Done]


@pytest.fixture
def whence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Whence:
    """`whence("why", path)` → exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["whence", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def conv_bn_relu(name: str = "bn1") -> onnx.ModelProto:
    """Conv, BatchNormalization (called `name`), Relu, Identity."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 3, 3, 3)),
        "s": rng.uniform(0.5, 1, 4),
        "b": rng.standard_normal(4),
        "m": rng.standard_normal(4),
        "v": rng.uniform(0.5, 1, 4),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv1"),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], name=name),
        helper.make_node("Relu", ["n"], ["r"], name="relu1"),
        helper.make_node("Identity", ["r"], ["y"], name="same"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [numpy_helper.from_array(value.astype(np.float32), key) for key, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(conv_bn_relu(), path)
    return path
