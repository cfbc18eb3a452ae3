"""A model in which every operator has a name of its own, which is what engines keep of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import onnx

from whence.graph import Graph


def with_names(path: Path, graph: Graph, folder: Path) -> Path:
    """The file itself if its operators have names that differ, else a copy in `folder` in which
    they do. `graph` is what whence read: the names are those of its source operators.
    """
    model = onnx.load(path, load_external_data=False)
    wanted: dict[str, list[str]] = {}
    for source in graph.ledger.sources:
        wanted.setdefault(source.scope, []).append(source.name)
    changed = False
    for scope, position, node in _nodes(model.graph, ""):
        names = wanted.get(scope, [])
        if position < len(names) and node.name != names[position]:
            node.name, changed = names[position], True
    if not changed:
        return path
    for file in graph.files:
        name = Path(os.path.normpath(file.relative_to(path.parent)))
        if ".." in name.parts:
            # It is in the model's folder by way of another, which the copy's may not have.
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file.resolve(), target)
        except OSError:
            shutil.copyfile(file, target)
    named = folder / path.name
    onnx.save(model, named)
    return named


def _nodes(graph: onnx.GraphProto, scope: str) -> Iterator[tuple[str, int, onnx.NodeProto]]:
    """Every node with its scope, as source operators have it, and its position there."""
    for position, node in enumerate(graph.node):
        yield scope, position, node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                # By now the node has the name that its scope is made of.
                inner = f"{scope}/{node.name}" if scope else node.name
                yield from _nodes(attribute.g, f"{inner}/{attribute.name}")
