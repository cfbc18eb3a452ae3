"""Model Explorer's files: ids that exist, edges that lead somewhere, and each node in one entry of
the mapping.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from whence.attribution.profile import Profile
from whence.report.model_explorer import (
    AFTER,
    BEFORE,
    graphs,
    node_data,
    sync_navigation,
    write_model_explorer,
)


def test_the_graphs_hang_together(profile: Profile) -> None:
    assert profile.background is not None
    content = json.loads(json.dumps(graphs(profile, profile.background)))
    assert [graph["id"] for graph in content["graphs"]] == [BEFORE, AFTER]
    for graph in content["graphs"]:
        ids = [node["id"] for node in graph["nodes"]]
        assert len(set(ids)) == len(ids)
        for node in graph["nodes"]:
            assert {"id", "label", "namespace", "attrs", "incomingEdges"} <= set(node)
            assert all(edge["sourceNodeId"] in ids for edge in node["incomingEdges"])
    before = {node["id"]: node for node in content["graphs"][0]["nodes"]}
    assert [before[str(number)]["label"] for number in (1, 2, 3, 4)] == [
        "Conv",
        "BatchNormalization",
        "Relu",
        "Identity",
    ]
    assert before["1"]["namespace"] == "net/layer1"


def test_the_collection_has_what_the_viewer_asks_for(profile: Profile) -> None:
    """Names and kinds of the fields, as in `GraphCollection` of the package."""
    assert profile.background is not None
    content = graphs(profile, profile.background)
    assert content.keys() == {"label", "graphs"}
    assert content["label"] == profile.model
    for graph in content["graphs"]:
        assert graph.keys() == {"id", "nodes", "groupNodeAttributes"}
        for node in graph["nodes"]:
            texts = [node["id"], node["label"], node["namespace"]]
            texts += [text for fact in node["attrs"] for text in (fact["key"], fact["value"])]
            texts += [text for edge in node["incomingEdges"] for text in edge.values()]
            assert all(isinstance(text, str) for text in texts)


def test_the_package_takes_the_files(profile: Profile) -> None:
    builder = pytest.importorskip(
        "model_explorer.graph_builder", reason="ai-edge-model-explorer is not installed (660 MB)"
    )
    dacite = pytest.importorskip("dacite")
    assert profile.background is not None
    found = dacite.from_dict(
        builder.GraphCollection,
        graphs(profile, profile.background),
        dacite.Config(strict=True),
    )
    assert [graph.id for graph in found.graphs] == [BEFORE, AFTER]


def test_the_times_are_on_nodes_that_exist(profile: Profile) -> None:
    assert profile.background is not None
    content = node_data(profile, profile.background)
    drawn = {
        graph["id"]: {node["id"] for node in graph["nodes"]}
        for graph in graphs(profile, profile.background)["graphs"]
    }
    for name in (BEFORE, AFTER):
        results = content[name]["results"]
        assert set(results) <= drawn[name]
        assert sum(each["value"] for each in results.values()) == pytest.approx(
            profile.attributed_ns / profile.runs / 1000
        )


def test_a_node_stands_in_one_entry_only(profile: Profile) -> None:
    assert profile.background is not None
    entries = sync_navigation(profile.background)["mappingEntries"]
    for side in ("leftNodeIds", "rightNodeIds"):
        listed = [node for entry in entries for node in entry[side]]
        assert len(set(listed)) == len(listed)
    assert {"1", "2", "3"} <= set(entries[0]["leftNodeIds"])


def test_a_profile_without_its_graphs_writes_nothing(profile: Profile, tmp_path: Path) -> None:
    assert write_model_explorer(dataclasses.replace(profile, background=None), tmp_path) == []
    assert len(write_model_explorer(profile, tmp_path)) == 3
