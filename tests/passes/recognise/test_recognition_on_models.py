"""What is recognised in real models, counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from whence.frontends.onnx.reader import read_onnx
from whence.passes.equivalence import EquivalenceProbe
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.pipeline import PORTABLE

MODELS: list[tuple[str, dict[str, tuple[int, ...]], dict[str, int]]] = [
    (
        "ppocrv4_rec",
        {"x": (1, 3, 48, 96)},
        {"LayerNormalization": 5, "HardSwish": 28, "Swish": 7, "Attention": 2, "Softmax": 1},
    ),
    ("ppocrv6_rec_tiny", {"x": (1, 3, 48, 96)}, {"Gelu": 10, "HardSwish": 2, "HardSigmoid": 3}),
    ("magika_v3_3", {"bytes": (2, 2048)}, {"Gelu": 2, "Softmax": 1}),
]


@pytest.mark.parametrize(("name", "shapes", "expected"), MODELS)
def test_counts(
    zoo_model: Callable[[str], Path],
    name: str,
    shapes: Mapping[str, Sequence[int]],
    expected: Mapping[str, int],
) -> None:
    graph = read_onnx(zoo_model(name), shapes=shapes)
    probe = EquivalenceProbe(graph)
    run_passes(graph, PORTABLE, check=CheckLevel.INVARIANTS)
    assert probe.comparable
    probe.compare(graph, "all")
    assert {op: graph.op_counts.get(op, 0) for op in expected} == expected
