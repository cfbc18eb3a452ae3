"""Large constants are read past the message of a file, and come out as the parser has them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import whence
from whence.frontends.onnx.large_tensors import LargeTensors

LARGE = np.random.default_rng(0).standard_normal((300, 100)).astype(np.float32)
SMALL = np.arange(100, dtype=np.float32)


def model(*constants: TensorProto) -> onnx.ModelProto:
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [300, 100]) for name in ("x", "y")
    )
    nodes, last = [], "x"
    for number, each in enumerate(constants):
        made = "y" if number == len(constants) - 1 else f"v{number}"
        nodes.append(helper.make_node("Add", [last, each.name], [made], made))
        last = made
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], list(constants)))


def saved(path: Path, made: onnx.ModelProto) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


def constants_of(path: Path) -> dict[str, np.ndarray]:
    return {node.name: node.value for node in whence.load(path) if node.value is not None}


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.frontends.onnx.large_tensors._LARGE_FILE", 1 << 16)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = model(numpy_helper.from_array(SMALL, "small"), numpy_helper.from_array(LARGE, "large"))
    return saved(tmp_path / "m.onnx", made)


def test_what_is_parsed_is_short_and_the_data_is_the_same(file: Path) -> None:
    with file.open("rb", buffering=0) as opened:
        message = LargeTensors(opened).message()
    assert len(message) < 2000 < file.stat().st_size
    found = constants_of(file)
    np.testing.assert_array_equal(found["large"], LARGE)
    np.testing.assert_array_equal(found["small"], SMALL)
    assert found["large"].flags.aligned
    assert not found["large"].flags.writeable


def test_all_else_of_the_message_is_kept(file: Path) -> None:
    expected = onnx.load(file)
    with file.open("rb", buffering=0) as opened, LargeTensors(opened) as large:
        found = onnx.ModelProto.FromString(large.message())
        for tensor in found.graph.initializer:
            tensor.raw_data = large.data(tensor.raw_data).tobytes()
    assert found == expected


def test_much_data_is_read_by_threads(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.frontends.onnx.large_tensors._MUCH", 1)
    before = threading.active_count()
    with file.open("rb", buffering=0) as opened, LargeTensors(opened) as large:
        large.message()
        assert threading.active_count() > before
    assert threading.active_count() == before
    np.testing.assert_array_equal(constants_of(file)["large"], LARGE)


def test_a_thread_that_fails_is_heard_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.frontends.onnx.large_tensors._MUCH", 1)
    preadv = os.preadv

    def shorter(handle: int, buffers: list[memoryview], offset: int) -> int:
        return 0 if buffers[0].nbytes > LARGE.nbytes // 2 else preadv(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", shorter)
    with pytest.raises(whence.ModelError, match="was cut off while it was read"):
        whence.load(file)


def test_what_a_constant_declares_is_checked(tmp_path: Path) -> None:
    wrong = numpy_helper.from_array(LARGE, "large")
    wrong.dims[0] = 301
    path = saved(tmp_path / "m.onnx", model(wrong))
    with pytest.raises(whence.ModelError, match=r"'large' is declared .* file holds 120000"):
        whence.load(path)


def test_a_file_that_is_cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(whence.ModelError, match="is cut off"):
        whence.load(file)


@pytest.mark.parametrize("end", [b"\x0b\x0c", b"\x08" + b"\xff" * 12], ids=["group", "varint"])
def test_what_cannot_be_looked_through_is_for_the_parser(file: Path, end: bytes) -> None:
    # A group is a form that ONNX does not use; a parser skips it as it does unknown fields.
    file.write_bytes(file.read_bytes() + end)
    with file.open("rb", buffering=0) as opened:
        assert LargeTensors(opened).message() == file.read_bytes()


def test_data_in_two_places_is_for_the_parser(tmp_path: Path) -> None:
    # A message that states a field twice means the second.
    twice = numpy_helper.from_array(LARGE, "large").SerializeToString()
    other = TensorProto(raw_data=(LARGE + 1).tobytes()).SerializeToString()
    tensor = TensorProto.FromString(twice + other)
    assert tensor.raw_data == (LARGE + 1).tobytes()
    made = model(numpy_helper.from_array(LARGE, "large"))
    content = made.SerializeToString()
    graph = made.graph.SerializeToString()
    inner = _delimited(5, twice)
    assert inner in graph
    graph = graph.replace(inner, _delimited(5, twice + other))
    path = tmp_path / "m.onnx"
    path.write_bytes(
        content.replace(_delimited(7, made.graph.SerializeToString()), _delimited(7, graph))
    )
    np.testing.assert_array_equal(constants_of(path)["large"], LARGE + 1)


def test_a_file_that_gets_shorter_while_it_is_read(file: Path) -> None:
    with file.open("rb", buffering=0) as opened, LargeTensors(opened) as large:
        message = onnx.ModelProto.FromString(large.message())
        (mark,) = (each.raw_data for each in message.graph.initializer if each.name == "large")
        os.truncate(file, 1000)
        with pytest.raises(whence.ModelError, match="was cut off while it was read"):
            large.data(mark)


def test_a_stream(file: Path, tmp_path: Path) -> None:
    pipe, content = tmp_path / "pipe.onnx", file.read_bytes()
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(content))
    writer.start()
    found = constants_of(pipe)
    writer.join()
    np.testing.assert_array_equal(found["large"], LARGE)


def _delimited(number: int, content: bytes) -> bytes:
    length, varint = len(content), bytearray()
    while length >= 0x80:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *varint, length]) + content
