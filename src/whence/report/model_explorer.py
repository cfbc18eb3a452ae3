"""Files for Model Explorer: the graph before and after, the time on every node, and which nodes of
one became which of the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whence.attribution.profile import Background, Profile
from whence.graph import Graph, Node
from whence.graph.connected_components import connected_components
from whence.plural import counted
from whence.report.stacks import modules

BEFORE, AFTER = "as in the file", "as it runs"


def write_model_explorer(profile: Profile, folder: Path) -> list[Path]:
    """Nothing for a profile that was read from a file: the graphs are not in it."""
    if profile.background is None:
        return []
    contents = {
        "model_explorer.json": graphs(profile, profile.background),
        "model_explorer_time.json": node_data(profile, profile.background),
        "model_explorer_sync.json": sync_navigation(profile.background),
    }
    written = []
    for name, content in contents.items():
        written.append(folder / name)
        written[-1].write_text(json.dumps(content) + "\n", encoding="utf-8")
    return written


def graphs(profile: Profile, background: Background) -> dict[str, Any]:
    """A collection of two graphs. Without its label the viewer does not take the file for one."""
    return {
        "label": profile.model or "model",
        "graphs": [_before(profile, background.source_graph), _after(profile, background)],
    }


def node_data(profile: Profile, background: Background) -> dict[str, Any]:
    """Microseconds per run, by node of either graph."""
    scale = 1 / 1000 / profile.runs if profile.runs else 0.0
    shown = {node.id for node in _nodes(background.source_graph)}
    before = {
        str(row.id): {"value": row.time_ns * scale} for row in profile.sources if row.id in shown
    }
    after = {}
    times = {row.id: row.time_ns for row in profile.kernels}
    for step in background.program.steps:
        # A kernel's time stands on its first node, so that sums over the graph stay right.
        for position, node_id in enumerate(step.nodes):
            after[str(node_id)] = {"value": times[step.number] * scale if position == 0 else 0.0}
    colours = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e8590c"}]
    return {
        BEFORE: {"name": "µs per run", "results": before, "gradient": colours},
        AFTER: {"name": "µs per run (kernel)", "results": after, "gradient": colours},
    }


def sync_navigation(background: Background) -> dict[str, Any]:
    """Which nodes belong together. A node may stand in one entry only, so an entry is a connected
    part of the many-to-many relation.
    """
    left = {node.id for node in _nodes(background.source_graph)}
    pairs = [
        (("left", source), ("right", node.id))
        for node in _nodes(background.program.graph)
        for source in node.origin & left
    ]
    items = dict.fromkeys(item for pair in pairs for item in pair)
    entries = [
        {
            f"{side}NodeIds": [str(number) for where, number in sorted(part) if where == side]
            for side in ("left", "right")
        }
        for part in connected_components(items, pairs)
    ]
    return {"type": "sync_navigation", "mappingEntries": entries}


def _before(profile: Profile, graph: Graph) -> dict[str, Any]:
    rows = {row.id: row for row in profile.sources}
    nodes = []
    for node in _nodes(graph):
        row = rows.get(node.id)
        attrs, namespace = {}, ""
        if row is not None:
            attrs = {name: getattr(row, name) for name in ("name", "fate", "became", "line")}
            attrs["share"], namespace = f"{row.share:.2%}", "/".join(modules(row))
        nodes.append(_node(graph, node, namespace, attrs))
    return {"id": BEFORE, "nodes": nodes, "groupNodeAttributes": _facts(profile)}


def _after(profile: Profile, background: Background) -> dict[str, Any]:
    graph = background.program.graph
    names = {row.id: row.name for row in profile.sources}
    kernel_of = {node_id: step for step in background.program.steps for node_id in step.nodes}
    nodes = []
    for node in _nodes(graph):
        step = kernel_of.get(node.id)
        attrs = {"from": ", ".join(names[source] for source in sorted(node.origin))}
        namespace = "" if step is None else f"kernel {step.number} {step.name}"
        nodes.append(_node(graph, node, namespace, attrs))
    return {"id": AFTER, "nodes": nodes, "groupNodeAttributes": _facts(profile)}


def _facts(profile: Profile) -> dict[str, dict[str, str]]:
    """What is shown for the graph as a whole, which is the group without a name."""
    facts = {
        "engine": f"{profile.engine}, {counted(profile.threads, 'thread')}",
        "runs": str(profile.runs),
        "time per run": f"{profile.run_ns / 1000:.1f} µs",
    }
    return {
        "": {
            **facts,
            **profile.environment,
            "how time is split": profile.policy,
            **{f"note {number}": note for number, note in enumerate(profile.notes, 1)},
        }
    }


def _nodes(graph: Graph) -> Iterator[Node]:
    """All but constants, which would hide the rest. Nested graphs are left to the operator that
    holds them.
    """
    return (node for node in graph if not node.is_const)


def _node(graph: Graph, node: Node, namespace: str, attrs: dict[str, str]) -> dict[str, Any]:
    edges = [
        {
            "sourceNodeId": str(ref.node),
            "sourceNodeOutputId": str(ref.index),
            "targetNodeInputId": str(index),
        }
        for index, ref in enumerate(node.inputs)
        if ref is not None and not graph[ref.node].is_const
    ]
    return {
        "id": str(node.id),
        "label": node.name if node.is_a("Input", "Variable", "Output") else node.op,
        "namespace": namespace,
        "attrs": [{"key": key, "value": value} for key, value in attrs.items() if value],
        "incomingEdges": edges,
        "outputsMetadata": [
            {"id": str(index), "attrs": [{"key": "type", "value": str(kind)}]}
            for index, kind in enumerate(node.outputs)
        ],
    }
