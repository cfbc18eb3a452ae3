"""What a backend prefers of the passes, whichever it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import whence
from whence.backends.cpu.backend import CpuBackend
from whence.backends.cpu.generator import CpuGenerator
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.passes.pipeline import PREPARE, passes_for
from whence.passes.preferences import Preferences
from whence.types import DType

X = np.random.default_rng(0).standard_normal((1, 32, 8, 8)).astype(np.float32)


class WithBlocks(CpuBackend):
    """The processor, asked to work on blocks of another size."""

    block: int | None = 16

    def generator(self, *, bf16x2: bool = False) -> CpuGenerator:
        return replace(super().generator(bf16x2=bf16x2), channel_block=self.block)


def network() -> Graph:
    rng = np.random.default_rng(1)
    build = GraphBuilder("net")
    value = build.input("x", DType.F32, [1, 32, 8, 8])
    for _ in range(2):
        weights = rng.standard_normal((32, 32, 3, 3)).astype(np.float32) / 17
        value = build.op("Relu", build.op("Conv", value, build.const(weights), pads=(1, 1, 1, 1)))
    build.output("y", build.op("GlobalAveragePool", value))
    return build.finish()


@pytest.mark.parametrize("block", [None, 8, 16, 32])
def test_blocks_of_channels_are_the_backends_choice(block: int | None) -> None:
    backend = WithBlocks(threads=1)
    backend.block = block
    graph = network()
    model = whence.compile(graph, engine=whence.Engine.of(backend))
    np.testing.assert_allclose(model(X), graph.run([X])[0], rtol=1e-4, atol=1e-5)
    (program,) = model.programs
    found = {node.attrs["block"] for node in program.graph if "block" in node.attrs}
    assert found == (set() if block is None else {block})


def test_a_derived_backend_does_not_take_the_processors_programs(tmp_path: Path) -> None:
    """Nor the other way round: a file that one of them compiled is compiled again by the other."""
    path = tmp_path / "net.onnx"
    whence.save(network(), path)
    whence.compile(path, threads=1)
    backend = WithBlocks(threads=1)
    backend.block = None
    for engine, blocks in (
        (whence.Engine.of(backend), set()),
        (whence.Engine(threads=1), {16}),
    ):
        (program,) = whence.compile(path, engine=engine).programs
        assert {node.attrs["block"] for node in program.graph if "block" in node.attrs} == blocks


def test_the_default_is_the_whole_pipeline() -> None:
    assert passes_for(Preferences()) == tuple(PREPARE)


def test_passes_are_left_out() -> None:
    names = [each.name for each in passes_for(Preferences(without=frozenset({"fold_pad"})))]
    assert names == [each.name for each in PREPARE if each.name != "fold_pad"]
    with pytest.raises(whence.InputError, match="no pass 'fold_pda' to leave out"):
        passes_for(Preferences(without=frozenset({"fold_pda"})))
