"""Before and after: convolutions in blocks of channels, and what they take along."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import whence
from tests.passes.rewriting import (
    operators,
)
from whence.passes.layout.block_channels import BlockChannels
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.pipeline import PREPARE


@pytest.mark.parametrize(
    "name", ["light_resnet50", "light_squeezenet", "light_densenet121", "light_inception_v2"]
)
def test_whole_networks_stay_blocked(zoo_model: Callable[[str], Path], name: str) -> None:
    graph = whence.load(zoo_model(name))
    run_passes(graph, PREPARE)
    run_passes(graph, (BlockChannels(),), check=CheckLevel.INVARIANTS)
    found = operators(graph)
    assert not {"Conv", "FusedConv", "ToBlocked", "BatchNormalization"} & set(found)
    # At most the end of the network asks for plain channels.
    assert found.count("FromBlocked") <= 1
    assert sum(bool(node.attrs.get("plain_input")) for node in graph) == 1
