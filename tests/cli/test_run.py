"""`whence run`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.cli.conftest import Whence


def _model(path: Path, text: str) -> Path:
    onnx.save(parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>' + text), path)
    return path


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return _model(
        tmp_path / "net.onnx",
        "net (float[2,3] x, float[3] b) => (float[2,3] y, float[2,3] z) { y = Add(x, b)  z ="
        " Neg(y) }",
    )


def _saved(path: Path, value: np.ndarray) -> Path:
    np.save(path, value)
    return path


def test_on_values_from_files(whence: Whence, net: Path, tmp_path: Path) -> None:
    x, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    inputs = [
        "--input",
        f"x={_saved(tmp_path / 'x.npy', x)}",
        "--input",
        f"b={_saved(tmp_path / 'b.npy', b)}",
    ]
    done = whence("run", net, *inputs, "-o", tmp_path / "out", "--threads", 1)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "y  f32[2,3]  min 1  mean 3.5  max 6",
        "z  f32[2,3]  min -6  mean -3.5  max -1",
    ]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), x + 1)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "z.npy"), -x - 1)


def test_inputs_that_are_not_given_are_random(whence: Whence, net: Path, tmp_path: Path) -> None:
    first, second = whence("run", net), whence("run", net)
    assert first.code == 0
    assert first.out == second.out
    assert first.out.startswith("y  f32[2,3]  min ")


def test_open_shapes(whence: Whence, tmp_path: Path) -> None:
    net = _model(tmp_path / "open.onnx", "net (float[n,4] x) => (float[n,4] y) { y = Neg(x) }")
    assert "y  f32[5,4]" in whence("run", net, "--shape", "x=5x4").out
    assert (
        "y  f32[7,4]"
        in whence(
            "run", net, "--input", f"x={_saved(tmp_path / 'x.npy', np.ones((7, 4), np.float32))}"
        ).out
    )


def test_no_output_is_written_over_another(whence: Whence, tmp_path: Path) -> None:
    names = ("a", "a_2", "a.")
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> net (float[1] x)'
        " => (float[1] p, float[1] q, float[1] r) { p = Neg(x)  q = Exp(x)  r = Abs(x) }"
    )
    for node, output, name in zip(proto.graph.node, proto.graph.output, names, strict=True):
        node.output[0] = output.name = name
    onnx.save(proto, tmp_path / "odd.onnx")
    x = _saved(tmp_path / "x.npy", np.zeros(1, np.float32))
    done = whence("run", tmp_path / "odd.onnx", "-o", tmp_path / "out", "--input", f"x={x}")
    assert done.code == 0, done.err
    written = {path.stem: float(np.load(path)[0]) for path in (tmp_path / "out").iterdir()}
    assert written == {"a": 0, "a_2": 1, "a_2_2": 0}


def test_outputs_with_names_that_are_no_file_names(whence: Whence, tmp_path: Path) -> None:
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> net (float[2] x) => (float[2] a, float[2] b) { a'
        " = Neg(x)  b = Exp(x) }"
    )
    proto.graph.node[0].output[0] = proto.graph.output[0].name = "../up/a"
    proto.graph.node[1].output[0] = proto.graph.output[1].name = "..\\up\\a"
    onnx.save(proto, tmp_path / "odd.onnx")
    done = whence("run", tmp_path / "odd.onnx", "-o", tmp_path / "deep" / "out")
    assert done.code == 0, done.err
    assert sorted(path.name for path in (tmp_path / "deep" / "out").iterdir()) == [
        "up_a.npy",
        "up_a_1.npy",
    ]


def test_text_and_sequences(whence: Whence, tmp_path: Path) -> None:
    text = """net (float[2] x) => (string[2] words, seq(float[2]) both) {
        n = Neg(x)  words = Cast<to = 8>(x)  both = SequenceConstruct(x, n)
    }"""
    net = _model(tmp_path / "odd.onnx", text)
    given = np.array([1, 2], np.float32)
    done = whence(
        "run", net, "--input", f"x={_saved(tmp_path / 'x.npy', given)}", "-o", tmp_path / "out"
    )
    assert done.code == 0, done.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "both.0.npy",
        "both.1.npy",
        "words.npy",
    ]
    assert np.load(tmp_path / "out" / "words.npy", allow_pickle=False).tolist() == ["1", "2"]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "both.1.npy"), -given)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--input", "x"], 2, "is not NAME=FILE.npy"),
        (["--input", "q={x}"], 1, "the model has no input 'q'; it takes x, b"),
        (["--input", "x={missing}"], 1, "missing.npy': no such file"),
        (["--input", "x={garbage}"], 1, "garbage.npy': it is not an .npy file"),
        (["--input", "x={pickled}"], 1, "pickled.npy': it holds Python objects, not numbers"),
        (
            ["--input", "b={double}"],
            1,
            "input 'b' is f64 and has shape [2, 3], the model takes f32[3]",
        ),
        (["-o", "{x}"], 1, "x.npy' is a file; -o names a folder"),
        (["--input", "b={x}"], 1, "input 'b' has shape [2, 3], the model takes f32[3]"),
        (["--input", "x={double}"], 1, "input 'x' is f64"),
        (["--threads", "-1"], 1, "make no sense"),
    ],
)
def test_what_does_not_fit(
    whence: Whence, net: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    x = np.zeros((2, 3), np.float32)
    (tmp_path / "garbage.npy").write_bytes(b"not an array")
    np.save(tmp_path / "pickled.npy", np.array([{}], object), allow_pickle=True)
    files = {
        "x": _saved(tmp_path / "x.npy", x),
        "double": _saved(tmp_path / "double.npy", x.astype(np.float64)),
        "missing": tmp_path / "missing.npy",
        "garbage": tmp_path / "garbage.npy",
        "pickled": tmp_path / "pickled.npy",
    }
    done = whence("run", net, *(argument.format(**files) for argument in arguments))
    assert done.code == code
    assert message in " ".join(done.err.split())
    if code == 1:
        assert done.err.count("\n") == 1


def test_a_model_that_fails_names_the_operator(whence: Whence, tmp_path: Path) -> None:
    net = _model(
        tmp_path / "bad.onnx",
        "net (float[4] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }",
    )
    done = whence("run", net, "--input", f"s={_saved(tmp_path / 's.npy', np.array([3, 3]))}")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "'y' (Reshape)" in done.err
