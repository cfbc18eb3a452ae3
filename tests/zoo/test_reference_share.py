"""How much of a compiled model runs in the reference, and why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import whence
from zoo.check import check
from zoo.check_results import report
from zoo.reference_share import reference_share

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'
NATIVE = HEAD + "net (float[4,8] x) => (float[4,8] y) { a = Relu(x)\n y = Softmax(a) }"
DYNAMIC = HEAD + (
    "net (float[4,8] x) => (float[n] y)"
    " { at = NonZero(x)\n t = Transpose(at)\n picked = GatherND(x, t)\n y = Exp(picked) }"
)


def test_a_native_model_has_none() -> None:
    model = whence.compile(onnx.parser.parse_model(NATIVE))
    assert reference_share(model, {"x": np.ones((4, 8), np.float32)}) == (0.0, "")


def test_what_follows_a_size_that_only_the_run_knows() -> None:
    model = whence.compile(onnx.parser.parse_model(DYNAMIC))
    found = reference_share(model, {"x": np.eye(4, 8, dtype=np.float32)})
    assert found.part > 0.5
    assert "it has a shape that is known only at run time" in found.why
    assert "%" in found.why


def test_the_table_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "native.onnx"
    onnx.save(onnx.parser.parse_model(NATIVE), path)
    compiled, interpreted = check(path, "cpu"), check(path)
    assert (compiled.status, compiled.reference) == ("ok", 0.0)
    assert interpreted.reference is None
    report([compiled, interpreted])
    first, second, total = capsys.readouterr().out.splitlines()
    assert first.endswith("reference   0.0%")
    assert "reference" not in second
    assert total.startswith("2 ok")
