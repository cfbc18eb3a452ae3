"""What memory a run needs: tensors that are alive at each step, and who holds the peak."""

from __future__ import annotations

from tests.attribution.harness import profile_of
from whence.attribution.read import read_profile
from whence.graph.builder import GraphBuilder
from whence.types import DType


def _graph() -> GraphBuilder:
    """Each softmax is a kernel; the first one's result is read again at the end."""
    build = GraphBuilder("memory")
    x = build.input("x", DType.F32, [64, 256])
    first = build.op("Softmax", x, name="first", axis=-1)
    second = build.op("Softmax", first, name="second", axis=0)
    wide = build.op("Concat", second, second, second, name="wide", axis=1)
    third = build.op("Softmax", wide, name="third", axis=0)
    small = build.op("ReduceMax", third, name="small", keepdims=1)
    build.output("y", build.op("Mul", first, small, name="last"))
    return build


def test_what_is_alive_at_each_step_fits_the_arena() -> None:
    found = profile_of(_graph().finish())
    use = found.memory
    assert use is not None
    assert len(use.alive_bytes) == len(found.kernels)
    assert 0 < use.peak_bytes <= use.arena_bytes
    assert use.alive_bytes[use.peak_step] == use.peak_bytes
    assert sum(held.bytes for held in use.held) == use.peak_bytes
    assert all(held.first <= use.peak_step <= held.last for held in use.held)
    names = {row.id: row.name for row in found.sources}
    holders = {names[source] for held in use.held for source in held.sources}
    assert "first" in holders, "it is kept for the product at the end"


def test_memory_is_read_back(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    found = profile_of(_graph().finish())
    found.save(tmp_path)
    assert read_profile(tmp_path).memory == found.memory
