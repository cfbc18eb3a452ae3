"""The kernels of one module by the three ways in: torch.export, torch.compile, torch.onnx.export.

No kernel is compiled or run here: passes, fusion and lowering say which there are. That takes
seconds and can be told on any machine.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import whence
from whence.api.prepare import is_static
from whence.building.build import lower_graph
from whence.building.prepare import prepare_graph
from whence.graph import Graph, Node
from whence.interop.models import from_object
from whence.interop.torch.dynamo import compile_graph_module
from whence.ops.binding import Port
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.runtime.engine import Engine
from whence.types import TensorType

WAYS = ("export", "compile", "onnx")


@dataclass
class _Zeros:
    """Stands in for what a graph is compiled to: results of the right shapes."""

    graph: Graph

    @property
    def inputs(self) -> list[Port]:
        return [Port(node.name, node.type) for node in self.graph.inputs]

    def __call__(self, *_: Any) -> Any:
        made = []
        for node in self.graph.outputs:
            kind = self.graph.type_of(node.inputs[0])
            assert isinstance(kind, TensorType)
            assert kind.shape is not None
            made.append(np.zeros([int(dim) for dim in kind.shape], kind.dtype.numpy))
        return made[0] if len(made) == 1 else made


def graphs(module: Any, args: Sequence[Any], program: Any) -> dict[str, list[Graph]]:
    """By way: as they are read."""
    import torch

    found: dict[str, list[Graph]] = {way: [] for way in WAYS}
    exported = from_object(program, None, None, None, None)
    assert exported is not None
    found["export"].append(exported.graph)

    def take(graph: Graph) -> Any:
        found["compile"].append(graph)
        return _Zeros(graph)

    torch.compile(module, backend=lambda graph, inputs: compile_graph_module(graph, inputs, take))(
        *args
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(program, dynamo=True, external_data=False, verbose=False).save(path)
        found["onnx"].append(whence.load(path.read_bytes()))
    return found


def kernels_by_way(module: Any, args: Sequence[Any], program: Any) -> dict[str, Counter[str]]:
    """By way: what kernels do, and how many do it."""
    engine = Engine(threads=1)
    shapes = [tuple(arg.shape) for arg in args if arg is not None]
    return {
        way: sum((kernels_of(graph, shapes, engine) for graph in each), Counter())
        for way, each in graphs(module, args, program).items()
    }


def kernels_of(graph: Graph, shapes: Sequence[Sequence[int]], engine: Engine) -> Counter[str]:
    """Of a graph that is called with inputs of these shapes, if it leaves sizes open."""
    named = [(node.name, shape) for node, shape in zip(graph.inputs, shapes, strict=False)]
    prepared = graph.copy() if is_static(graph) else fix_input_shapes(graph.copy(), dict(named))
    generator = engine.backend.generator()
    prepare_graph(prepared, generator.preferences)
    lowered = lower_graph(prepared, generator)
    return Counter(computed(prepared, step.step.members) for step in lowered.steps)


def computed(graph: Graph, members: Sequence[Node]) -> str:
    """What a kernel does: its operators with the types of their operands and results. Attributes
    are left out, as files write out defaults that PyTorch's graphs do not have.
    """
    return ", ".join(
        f"{node.op}({' '.join(str(graph.type_of(ref)) for ref in node.inputs if ref)})"
        f" {' '.join(map(str, node.outputs))}"
        for node in sorted(members, key=lambda node: (node.op, node.id))
        if not node.is_const
    )


def compare_kernels(by_way: Mapping[str, Counter[str]]) -> list[str]:
    """Kernels that only one of two ways has."""
    return [
        f"{way}, not {other}: {count} x {kernel}"
        for way, other in (("export", "onnx"), ("onnx", "export"), ("compile", "export"))
        for kernel, count in (by_way[way] - by_way[other]).items()
    ]
