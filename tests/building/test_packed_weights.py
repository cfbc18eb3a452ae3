"""Constants that are a file's bytes: packed when the block is needed, in memory once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from whence.building import weights as weights_module
from whence.building.graph_pickle import dump
from whence.building.packed_weights import (
    PackedWeights,
    Packing,
    Piece,
    file_bytes_of,
    release_pages,
)
from whence.building.weights import Weights
from whence.building.weights_recipe import decode_recipe, encode_recipe
from whence.graph import Node
from whence.graph.builder import GraphBuilder
from whence.kernels.product.packing import PackPanels, PackSplitColumns

ROWS, COLUMNS = 300, 1000
NUMBERS = np.arange(2 * ROWS * COLUMNS, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Turned:
    """A packing that counts how often it is done."""

    done: list[int]

    def __call__(self, value: np.ndarray) -> np.ndarray:
        self.done.append(1)
        return value.T

    def __hash__(self) -> int:
        return id(self.done)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(b"head" + NUMBERS.tobytes())
    return path


def mapped(path: Path, first: int) -> np.ndarray:
    data = np.memmap(path, np.uint8, mode="r")[4 + 4 * first :][: 4 * ROWS * COLUMNS]
    return data.view(np.ndarray).view(np.float32).reshape(ROWS, COLUMNS)


def constants(*values: np.ndarray) -> list[Node]:
    build = GraphBuilder("constants")
    for number, value in enumerate(values):
        build.output(f"y{number}", build.op("Relu", build.const(value)))
    nodes = [node for node in build.finish() if node.is_const]
    for node, value in zip(nodes, values, strict=True):
        node.value = value  # as a reader leaves it, not a copy
    return nodes


def test_where_an_array_is_in_its_file(path: Path) -> None:
    value = mapped(path, 100)
    found = file_bytes_of(value)
    assert found is not None
    assert (found.path, found.offset) == (path, 404)
    assert file_bytes_of(value[:, 1:]) is None
    assert file_bytes_of(value.copy()) is None


def test_pages_that_are_released_are_read_again(path: Path) -> None:
    value = mapped(path, 100)
    before = value.copy()
    release_pages(value)
    release_pages(before)
    assert np.array_equal(value, before)


def test_large_constants_of_a_file_are_packed_when_the_block_is_needed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_module, "_LARGE", 1)
    packing = Turned([])
    first, second = mapped(path, 0), mapped(path, ROWS * COLUMNS)
    weights = Weights()
    *large, other = constants(first, second, mapped(path, 0), np.arange(5, dtype=np.float32))
    offsets = [weights.place(node, packing, first.nbytes).offset for node in large]
    small = weights.place(other).offset
    made = weights.finish()
    assert not packing.done
    assert offsets[0] == offsets[2] != offsets[1]
    for offset, value in zip(offsets, (first, second, first), strict=True):
        found = made.block[offset : offset + value.nbytes].view(np.float32)
        assert np.array_equal(found.reshape(COLUMNS, ROWS), value.T)
    assert np.array_equal(made.block[small : small + 20].view(np.float32), np.arange(5))
    assert len(packing.done) == 2
    assert made.block is made.block


@pytest.mark.parametrize("columns", [COLUMNS, 992, 7])
@pytest.mark.parametrize("transposed", [False, True])
def test_panels_are_written_where_they_are_wanted(columns: int, transposed: bool) -> None:
    matrix = NUMBERS[: ROWS * columns].reshape(ROWS, columns)
    packing = PackPanels(ROWS, columns, transposed, 16)
    packed = packing(matrix.T.copy() if transposed else matrix)
    unpacked = packed.transpose(1, 0, 2).reshape(ROWS, -1)
    assert np.array_equal(unpacked[:, :columns], matrix)
    assert not unpacked[:, columns:].any()


def test_a_recipe_makes_the_same_block(path: Path) -> None:
    model = path.with_name("m.onnx")
    value = mapped(path, 3)
    packing = PackPanels(ROWS, COLUMNS, False, 16)
    nbytes = packing(value).nbytes
    ready = [(0, np.arange(64, dtype=np.uint8))]

    def block() -> PackedWeights:
        return PackedWeights(64 + nbytes, ready, [Piece(64, nbytes, value, packing)])

    for packed in (block(), block()):
        pieces = encode_recipe(packed, model, ["data.bin"])
        assert pieces is not None
        content = packed.range_content()
        assert content.nbytes == 64
        again = decode_recipe(
            packed.nbytes, packed.ranges, content.data, pieces, {"data.bin": path}
        )
        assert again is not None
        assert np.array_equal(again.block, packed.block)
        assert np.array_equal(packed.range_content(), content)
    assert encode_recipe(block(), model, ["other.bin"]) is None
    assert decode_recipe(1, [(0, 64)], content.data[:8], [], {}) is None


@pytest.mark.parametrize(
    "packing", [PackPanels(ROWS, COLUMNS, False, 16), PackSplitColumns(ROWS, COLUMNS, False)]
)
def test_weights_are_packed_without_what_compiles(path: Path, packing: Packing) -> None:
    """Modules that a start would take a fifth of a second for."""
    value = mapped(path, 3)
    nbytes = packing(value).nbytes
    made = PackedWeights(nbytes, [], [Piece(0, nbytes, value, packing)])
    pieces = encode_recipe(made, path.with_name("m.onnx"), ["data.bin"])
    assert pieces is not None
    (path.with_name("pieces")).write_bytes(dump(pieces))
    program = """
import hashlib, sys
from pathlib import Path
from whence.building.restricted_unpickler import load
from whence.building.weights_recipe import decode_recipe

path = Path(sys.argv[1])
pieces = load(path.with_name("pieces").read_bytes())
made = decode_recipe(pieces[0].nbytes, [], memoryview(b""), pieces, {"data.bin": path})
print(hashlib.sha256(made.block).hexdigest())
print([name for name in ("onnx", "whence.graph", "whence.kernels.ir") if name in sys.modules])
"""
    command = [sys.executable, "-c", program, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split("\n")[:2] == [hashlib.sha256(made.block.data).hexdigest(), "[]"]


def test_nothing_of_a_graph_in_memory_waits() -> None:
    value = NUMBERS[: ROWS * COLUMNS].reshape(ROWS, COLUMNS)
    packing = Turned([])
    (node,) = constants(value)
    Weights().place(node, packing, value.nbytes)
    assert packing.done


def test_parts_are_the_bytes_of_the_block_without_one() -> None:
    """Large constants by themselves, small ones together, and what is stored is what is mapped."""
    large = NUMBERS[: ROWS * COLUMNS].view(np.uint8)
    small = [np.arange(length, dtype=np.uint8) for length in (3, 100, 7)]
    weights = Weights()
    for value in [small[0], large, *small[1:]]:
        weights.bytes_at(value)
    packed = weights.finish()
    contents = [bytes(packed.part_content(part)) for part in packed.parts]
    assert len(contents) == 2
    assert packed._block is None
    block = packed.block
    for (offset, nbytes), content in zip(packed.parts, contents, strict=True):
        assert block[offset : offset + nbytes].tobytes() == content
    assert [bytes(packed.part_content(part)) for part in packed.parts] == contents
