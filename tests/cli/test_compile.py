"""`whence compile`."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.cli.conftest import Whence
from whence.api import load

DATABASE = ("my_net_debug.xml", "my_net_debug.duckdb")


def _model(path: Path, text: str) -> Path:
    onnx.save(parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>' + text), path)
    return path


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return _model(
        tmp_path / "my-net.onnx",
        "net (float[2,4] x) => (float[2,4] y) { a = Neg(x)  y = Softmax(a) }",
    )


def test_a_library_a_header_weights_and_sources(whence: Whence, net: Path, tmp_path: Path) -> None:
    done = whence("compile", net, "-o", tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    for name in ("libmy_net.so", "my_net.h", "whence.h", "my_net.weights", "src", *DATABASE):
        assert (tmp_path / "out" / name).exists()
        assert f"out/{name}" in done.out
    assert "my-net.onnx →" in done.out
    assert "kernels, weights" in done.out


def test_the_library_runs(whence: Whence, net: Path, tmp_path: Path) -> None:
    assert whence("compile", net, "-o", tmp_path / "out").code == 0
    code = ctypes.CDLL(str(tmp_path / "out" / "libmy_net.so"))
    code.my_net_description.restype = ctypes.c_void_p
    model, stream = ctypes.c_void_p(), ctypes.c_void_p()
    weights = str(tmp_path / "out" / "my_net.weights").encode()
    assert (
        code.whence_model_create(
            ctypes.byref(model), ctypes.c_void_p(code.my_net_description()), weights, 1
        )
        == 0
    )
    assert code.whence_stream_create(ctypes.byref(stream), model, 0) == 0
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    y = np.zeros_like(x)
    assert (
        code.whence_execute(
            stream, (ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)
        )
        == 0
    )
    assert code.whence_stream_wait(stream) == 0
    np.testing.assert_allclose(y, load(net).run([x])[0], rtol=1e-5)
    code.whence_stream_destroy(stream)
    code.whence_model_destroy(model)


def test_for_opencl(whence: Whence, net: Path, tmp_path: Path) -> None:
    done = whence("compile", net, "-o", tmp_path / "out", "--engine", "opencl")
    assert (done.code, done.err) == (0, "")
    for name in ("libmy_net.so", "my_net.h", "whence_opencl.h", "my_net.cl", *DATABASE):
        assert (tmp_path / "out" / name).exists()
        assert f"out/{name}" in done.out
    assert "__kernel void" in (tmp_path / "out" / "my_net.cl").read_text()
    # Where a library may leave functions to the program only if the linker is told so.
    command = ("compile", net, "-o", tmp_path / "mac", "--engine", "opencl")
    assert whence(*command, "--target", "aarch64-macos").code == 0
    assert whence("compile", net, "-o", tmp_path / "no", "--engine", "fpga").code == 2
    refused = whence("compile", net, "-o", tmp_path / "no", "--engine", "opencl", "--tune")
    assert (refused.code, refused.err.count("\n")) == (1, 1)


def test_open_shapes_are_to_be_fixed(whence: Whence, tmp_path: Path) -> None:
    net = _model(
        tmp_path / "open.onnx", "net (float[n,4] x, float[4] z) => (float[n,4] y) { y = Add(x, z) }"
    )
    done = whence("compile", net, "-o", tmp_path / "out")
    assert done.code == 1
    assert "leaves input shapes open: fix them with --dim n=1" in " ".join(done.err.split())
    assert not (tmp_path / "out").exists()
    assert whence("compile", net, "-o", tmp_path / "out", "--shape", "x=3x4").code == 0
    assert "f32[3,4]" in (tmp_path / "out" / "open.h").read_text(encoding="ascii")


def test_a_model_that_needs_python_is_refused_in_one_line(whence: Whence, tmp_path: Path) -> None:
    net = _model(tmp_path / "late.onnx", "net (float[4] x) => (int64[1,k] y) { y = NonZero(x) }")
    done = whence("compile", net, "-o", tmp_path / "out")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "which has no fixed size" in done.err


@pytest.mark.parametrize(
    ("target", "library", "magic"),
    [
        # ELF for x86-64, ELF for aarch64, Mach-O for arm64.
        ("x86_64-avx2", "libmy_net.so", (0, b"\x7fELF", 18, b"\x3e\0")),
        ("aarch64", "libmy_net.so", (0, b"\x7fELF", 18, b"\xb7\0")),
        ("aarch64-macos", "libmy_net.dylib", (0, b"\xcf\xfa\xed\xfe", 4, b"\x0c\0\0\x01")),
    ],
)
def test_for_another_machine(
    whence: Whence,
    net: Path,
    tmp_path: Path,
    target: str,
    library: str,
    magic: tuple[int, bytes, int, bytes],
) -> None:
    done = whence("compile", net, "-o", tmp_path / "out", "--target", target)
    assert done.code == 0, done.err
    data = (tmp_path / "out" / library).read_bytes()
    for at, bytes_there in (magic[:2], magic[2:]):
        assert data[at:].startswith(bytes_there)


def test_tuning(whence: Whence, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHENCE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "product.onnx"
    weights = onnx.numpy_helper.from_array(np.ones((40, 50), np.float32), "w")
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> net (float[20,40] x) => (float[20,50] y) { y ='
        " MatMul(x, w) }"
    )
    model.graph.initializer.append(weights)
    onnx.save(model, path)
    done = whence("compile", path, "-o", tmp_path / "out", "--tune", "--threads", "1")
    assert (done.code, done.err) == (0, "")
    assert "tuned 1 problem\n" in done.out
    (row,) = (
        line.split() for line in done.out.splitlines() if line.startswith("  matrix products")
    )
    assert row[2:4] == ["1", "1"]
    assert row[-1].endswith("%")
    assert (tmp_path / "out" / "libproduct.so").exists()
    assert len(list((tmp_path / "cache" / "kernels" / "tuned").iterdir())) == 1
    assert (
        "tuned 1 problem, 1 of them before\n"
        in whence("compile", path, "-o", tmp_path / "out", "--tune", "--threads", "1").out
    )
    assert "tuned" not in whence("compile", path, "-o", tmp_path / "out").out
    assert "nothing to tune" in whence("compile", net, "-o", tmp_path / "out", "--tune").out


def test_tuning_is_for_this_machine(whence: Whence, net: Path, tmp_path: Path) -> None:
    done = whence("compile", net, "-o", tmp_path / "out", "--tune", "--target", "aarch64")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "leave out --tune, or --target aarch64" in done.err
    assert not (tmp_path / "out").exists()


def test_bad_usage(whence: Whence, net: Path, tmp_path: Path) -> None:
    assert whence("compile", net).code == 2
    assert whence("compile", tmp_path / "none.onnx", "-o", tmp_path / "out").code != 0
    done = whence("compile", net, "-o", tmp_path / "out", "--target", "pdp11")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "no target named 'pdp11'" in done.err
    done = whence("compile", net, "-o", tmp_path / "out", "--fusion", "magic")
    assert done.code in (1, 2)
    assert "magic" in done.err
