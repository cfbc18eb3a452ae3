"""Programs that pack a constant alike have it in memory once."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from whence import api
from whence.building.mapped_pieces import PAGE, MappedRange, block_of
from whence.building.weights import Weights
from whence.codegen.cache import Cache
from whence.codegen.digest import digest_of
from whence.codegen.toolchain import Toolchain
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.types import DType

ROWS, WIDTH = 512, 384
TABLE = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)


def save_layers(path: Path) -> Path:
    """A table of more than half a megabyte, which no kernel wants in another order, and a product,
    for a prompt and for one token.
    """
    build = GraphBuilder("layers")
    ids = build.input("ids", DType.I64, ["sequence"])
    x = build.op("Gather", build.const(TABLE), ids)
    weights = np.random.default_rng(1).standard_normal((WIDTH, 8)).astype(np.float32)
    build.output("y", build.op("MatMul", x, build.const(weights)))
    api.save(build.finish(), path)
    return path


def records(cache: Cache) -> list[list[tuple[int, int, str]]]:
    """The pieces that programs in the cache are made of."""
    found = []
    for entry in cache.entries():
        data = entry.path.read_bytes()
        if data[:1] == b"{" and b'"weights_bytes"' in data:
            found.append([tuple(piece) for piece in json.loads(data)["weights"]])
    return found


def compiled(path: Path, folder: Path) -> Executable:
    engine = Engine(threads=1, toolchain=Toolchain(cache=Cache(folder)))
    return api.compile_model(path, engine=engine)


def test_prefill_and_decode_share_their_weights(tmp_path: Path) -> None:
    path, folder = save_layers(tmp_path / "layers.onnx"), tmp_path / "cache"
    first = compiled(path, folder)
    inputs = [np.arange(rows) for rows in (1, 8)]
    wanted = [first(ids) for ids in inputs]
    assert first.compilations == 2
    one, two = records(Cache(folder))
    # What both pack alike is one file, of which everybody has the pages.
    table = digest_of(TABLE.data.cast("B"))
    assert [digest for _, _, digest in one].count(table) == 1
    assert [digest for _, _, digest in two].count(table) == 1
    assert sum(entry.bytes for entry in Cache(folder).entries() if table in entry.path.name) < (
        2 * TABLE.nbytes
    )
    again = compiled(path, folder)
    for ids, y in zip(inputs, wanted, strict=True):
        np.testing.assert_array_equal(again(ids), y)
    blocks = [program.weights for program in again.programs]
    assert len(blocks) == 2
    assert not any(block.flags.writeable for block in blocks)
    if sys.platform == "linux":
        assert mapped_files(blocks[0]) & mapped_files(blocks[1])


def mapped_files(block: np.ndarray) -> set[str]:
    """The files, by inode, whose pages lie in a block and are large."""
    begin = block.ctypes.data
    found = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, _, _, _, inode, *_ = line.split()
        low, high = (int(number, 16) for number in where.split("-"))
        if low >= begin and high <= begin + block.nbytes + PAGE and high - low >= 1 << 19:
            found.add(inode)
    assert found
    return found


@pytest.mark.parametrize("can_map", [True, False])
def test_a_block_of_files(tmp_path: Path, can_map: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_map:
        monkeypatch.delattr("mmap.MAP_PRIVATE", raising=False)
    parts = [os.urandom(PAGE + 5), os.urandom(3)]
    files = [tmp_path / name for name in "ab"]
    for file, part in zip(files, parts, strict=True):
        file.write_bytes(part)
    pieces = [MappedRange(0, len(parts[0])), MappedRange(2 * PAGE, 3)]
    block = block_of(2 * PAGE + 64, pieces, files)
    assert block.tobytes() == parts[0].ljust(2 * PAGE, b"\0") + parts[1].ljust(64, b"\0")
    assert not block.flags.writeable
    files[1].write_bytes(b"longer")
    with pytest.raises(OSError, match="has not 3 bytes"):
        block_of(2 * PAGE + 64, pieces, files)


def test_pieces_cover_every_constant() -> None:
    build = GraphBuilder("constants")
    sizes = (10, 70_000, 20_000, 16_384, 3, 30_000, 64)
    parts = [build.const(np.full(size, size, np.float32)) for size in sizes]
    build.output("y", build.op("Concat", *parts, axis=0))
    weights = Weights()
    places = [weights.place(node) for node in build.finish() if node.is_const]
    block = weights.finish().block
    made = np.zeros_like(block)
    for offset, nbytes in weights.parts:
        assert offset % PAGE == 0
        made[offset : offset + nbytes] = block[offset : offset + nbytes]
    for place, size in zip(places, sizes, strict=True):
        part = made[place.offset : place.offset + 4 * size].view(np.float32)
        assert (part == size).all()
    ends = [offset + nbytes for offset, nbytes in weights.parts]
    assert all(end <= start for end, (start, _) in zip(ends, weights.parts[1:], strict=False))
