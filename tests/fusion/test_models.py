"""Fusion of real models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from whence.api import load, prepare
from whence.fusion import ALGORITHMS, check_fused, find_groups, fuse
from whence.provenance import NO_ORIGIN


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", ["light_squeezenet", "silero_vad_v6", "yunet_2023mar"])
def test_every_operator_is_in_one_group_and_every_group_remembers_its_operators(
    zoo_model: Callable[[str], Path], name: str, algorithm: str
) -> None:
    graph = prepare(load(zoo_model(name)))
    for nested in graph.nested():
        check_fused(fuse(nested, find_groups(nested, algorithm)))
    fused = fuse(graph, find_groups(graph, algorithm))
    carried = NO_ORIGIN.union(
        *(node.origin for node in graph if node.op not in ("Input", "Const", "Output"))
    )
    assert NO_ORIGIN.union(*(entry.origin for entry in fused)) == carried


def test_layers_of_a_real_model_share_code(zoo_model: Callable[[str], Path]) -> None:
    graph = prepare(load(zoo_model("light_squeezenet")))
    fused = fuse(graph, find_groups(graph))
    assert len({entry.key for entry in fused}) == len({entry.name for entry in fused}) < len(fused)
