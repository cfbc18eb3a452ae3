"""What was run, as it stands in a profile's environment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from whence.attribution.profile import COMPILED_FOR, DIMENSION
from whence.attribution.sample_inputs import declared_shapes
from whence.building.program import Program
from whence.graph import Graph
from whence.ops.named_dimensions import named_sizes


def model_facts(graph: Graph, shapes: Mapping[str, tuple[int, ...]], model: str) -> dict[str, str]:
    """What was run: the inputs, the sizes of named dimensions, and the file."""
    found = {
        f"input {name}": "×".join(map(str, shape)) or "scalar" for name, shape in shapes.items()
    }
    sizes = {**named_sizes(declared_shapes(graph), shapes), **graph.dimensions}
    found.update((f"{DIMENSION}{name}", str(size)) for name, size in sizes.items())
    path = Path(model)
    try:
        if model and path.is_file():
            with path.open("rb") as file:
                found["model sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        pass  # a profile of a graph may have the name of anything
    return found


def version_facts(graph: Graph, program: Program) -> dict[str, str]:
    """Which program of a model with open sizes ran."""
    if all(isinstance(dim, int) for shape in declared_shapes(graph).values() for dim in shape):
        return {}
    return {COMPILED_FOR: "these sizes alone" if program.template is None else "open sizes"}
