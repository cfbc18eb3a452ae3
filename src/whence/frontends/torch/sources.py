"""The operators the user started with: the nodes of the graph that PyTorch traced, before it was
decomposed; and which of them each node of the decomposed graph stems from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.frontends.torch.places import place_of
from whence.provenance import SourceOp

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph
    from torch.fx import Node as FxNode


@dataclass(frozen=True, slots=True)
class Sources:
    """Numbered 1..N in the order of the traced graph; what decomposition alone made, and PyTorch
    does not say from what, comes after.
    """

    operators: tuple[SourceOp, ...]
    numbers: dict[str, int]
    """By name of a node of the decomposed graph: the operator it stems from."""
    last: dict[int, str]
    """The last node of the decomposed graph that stems from each operator."""


def find_sources(traced: FxGraph, lowered: FxGraph) -> Sources:
    folder = _torch_folder()
    operators: list[SourceOp] = []
    by_name: dict[str, int] = {}
    for node in _calls(traced):
        by_name[node.name] = len(operators) + 1
        operators.append(_source(len(operators) + 1, node.name, node, folder))
    numbers: dict[str, int] = {}
    last: dict[int, str] = {}
    for node in _calls(lowered):
        number = next((by_name[name] for name in _ancestors(node, traced) if name in by_name), 0)
        if not number:
            number = len(operators) + 1
            name = node.name if node.name not in by_name else f"{node.name}#{number}"
            by_name[name] = number
            operators.append(_source(number, name, node, folder))
        numbers[node.name] = number
        # Picking one of several results makes no node.
        if number not in last or operator_name(node) != "operator.getitem":
            last[number] = node.name
    return Sources(tuple(operators), numbers, last)


def operator_name(node: FxNode) -> str:
    """What a node does, as PyTorch calls it: `aten.conv2d`, `aten.add.Tensor`, `operator.mul`."""
    target: Any = node.target
    if node.op == "call_method":
        return f"Tensor.{target}"
    if node.op == "call_module":
        return f"module.{target}"
    text = str(target)
    if hasattr(target, "_schema") or hasattr(target, "namespace"):
        return text.removesuffix(".default")
    module = getattr(target, "__module__", None) or ""
    module = {"_operator": "operator", "builtins": "builtins"}.get(module, module)
    name = getattr(target, "__name__", text)
    if module.startswith("torch.nn.functional"):
        return f"functional.{name}"
    return f"{module.split('.')[0] or 'torch'}.{name}"


def describe(node: FxNode) -> str:
    """A node for an error message: its name, operator, module and line."""
    place = place_of(node.meta, _torch_folder())
    where = [f"module '{place.module}'" if place.module else "", place.line]
    known = ", ".join(part for part in where if part)
    return f"operator '{node.name}' ({operator_name(node)}{', ' if known else ''}{known})"


def _calls(graph: FxGraph) -> Iterator[FxNode]:
    for node in graph.nodes:
        if node.op in ("call_function", "call_method", "call_module"):
            yield node


def _source(number: int, name: str, node: FxNode, folder: str) -> SourceOp:
    place = place_of(node.meta, folder)
    return SourceOp(
        number,
        name,
        operator_name(node),
        module=place.module,
        line=place.line,
        stack=place.stack,
        outputs=(node.name,),
        positions=(number - 1,),
    )


def _ancestors(node: FxNode, traced: FxGraph) -> list[str]:
    """Names that a node's forebears may have in the traced graph, the likeliest first."""
    chain: list[Any] = []
    waiting = list(node.meta.get("from_node") or ())
    while waiting:
        each = waiting.pop(0)
        chain.append(each)
        waiting.extend(each.from_node or ())
    exact = [each.name for each in chain if each.graph_id == id(traced)]
    # A node that a retracing took over as it was has no history.
    return [*exact, *(each.name for each in reversed(chain)), *([] if chain else [node.name])]


def _torch_folder() -> str:
    import torch

    return f"{Path(torch.__file__).parent}{os.sep}"
