"""Packed weights: read, written and refused as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
from tests.frontends.onnx.models import MICROSOFT, assert_close, run_ort, run_whence, single
from whence.errors import ModelError
from whence.frontends.onnx.reader import read_onnx
from whence.frontends.onnx.writer import write_onnx
from whence.ops.quantised.blockwise import GATHER, MATMUL

RNG = np.random.default_rng(3)
ATTRS: dict[str, Any] = {"K": 40, "N": 5, "bits": 4, "block_size": 16}


def arrays(**changed: np.ndarray) -> dict[str, np.ndarray]:
    given = {
        "a": RNG.standard_normal((3, 40)).astype(np.float32),
        "c_b": RNG.integers(0, 256, (5, 3, 8), np.uint8),
        "c_s": RNG.uniform(0.1, 1, (5, 3)).astype(np.float32),
    }
    return {**given, **changed}


@pytest.mark.parametrize("zeros", [False, True])
def test_a_product_stays_packed_and_is_written_as_it_was(tmp_path: Path, zeros: bool) -> None:
    given = arrays(**({"c_z": RNG.integers(0, 256, (5, 2), np.uint8)} if zeros else {}))
    proto = single("MatMulNBits", given, 21, domain=MICROSOFT, **ATTRS)
    feeds = {"a": given["a"]}
    expected = run_ort(proto, feeds)
    assert_close(run_whence(proto, feeds), expected)
    graph = read_onnx(proto)
    (node,) = [node for node in graph if node.op == MATMUL]
    assert [len(node.inputs), node.operand("B") is not None] == [4 if zeros else 3, True]
    write_onnx(graph, tmp_path / "new.onnx")
    assert_close(run_ort((tmp_path / "new.onnx").read_bytes(), feeds), expected)
    model = whence.compile(graph)
    assert_close([model(given["a"])], expected)
    assert all(step.symbol for step in model.programs[0].steps)


def test_preparing_does_not_unpack() -> None:
    given = {
        "c_t": RNG.integers(0, 256, (7, 32), np.uint8),
        "i": np.array([[1, 5], [0, -1]]),
        "c_s": RNG.standard_normal((7, 4)).astype(np.float32),
    }
    proto = single("GatherBlockQuantized", given, 21, domain=MICROSOFT, block_size=16, bits=4)
    graph = read_onnx(proto)
    whence.prepare(graph)
    assert {node.op for node in graph} == {"Const", "Input", "Output", GATHER}
    model = whence.compile(read_onnx(proto))
    assert_close([model(given["i"])], run_ort(proto, {"i": given["i"]}))
    assert all(step.symbol for step in model.programs[0].steps)


def test_an_index_outside_the_table_ends_the_run() -> None:
    given = {
        "c_t": RNG.integers(0, 256, (7, 32), np.uint8),
        "i": np.array([3]),
        "c_s": RNG.standard_normal((7, 4)).astype(np.float32),
    }
    proto = single("GatherBlockQuantized", given, 21, domain=MICROSOFT, block_size=16, bits=4)
    model = whence.compile(read_onnx(proto))
    with pytest.raises(whence.WhenceError, match="outside"):
        model(np.array([7]))


def test_an_index_that_is_no_integer_is_refused() -> None:
    given = {
        "c_t": RNG.integers(0, 256, (7, 32), np.uint8),
        "i": np.array([3], np.float32),
        "c_s": RNG.standard_normal((7, 4)).astype(np.float32),
    }
    proto = single("GatherBlockQuantized", given, 21, domain=MICROSOFT, block_size=16, bits=4)
    with pytest.raises(ModelError, match="indices of 32 or 64 bits"):
        whence.compile(read_onnx(proto))(np.array([3], np.float32))


@pytest.mark.parametrize(
    ("changed", "attrs", "message"),
    [
        ({"c_b": np.zeros((5, 3, 7), np.uint8)}, {}, "5 rows of 3 blocks"),
        ({}, {"bits": 3}, "3-bit"),
        ({"a": np.zeros((3, 41), np.float32)}, {}, "40 elements"),
        ({"c_s": np.zeros((5, 2), np.float32)}, {}, "5 rows of 3 blocks"),
        ({"c_z": np.zeros((5, 3), np.uint8)}, {}, "zero points"),
    ],
)
def test_what_does_not_fit_is_refused(
    changed: dict[str, np.ndarray], attrs: dict[str, Any], message: str
) -> None:
    proto = single("MatMulNBits", arrays(**changed), 21, domain=MICROSOFT, **{**ATTRS, **attrs})
    with pytest.raises((ModelError, whence.UnsupportedError), match=message) as caught:
        read_onnx(proto)
    assert "'it'" in str(caught.value)
