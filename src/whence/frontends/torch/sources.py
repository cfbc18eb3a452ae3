"""The operators the user started with: the nodes of the graph that PyTorch traced, before it was
decomposed; which of them each node of the decomposed graph stems from; and where in the user's
program they stand, as PyTorch notes it on the nodes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.frontends.program_place import ProgramPlace, line_of
from whence.provenance import SourceOp

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph
    from torch.fx import Node as FxNode

# `L['self']._modules['layer1']._modules['0']` and `L['self'].layer1[0]` are `layer1.0`.
_BRACKETED = re.compile(r"\[\s*['\"]?([^'\"\]]+)['\"]?\s*\]")
_LOCAL = re.compile(r"^[LG](?=\[)")
_HOLDERS = frozenset({"_modules", "_parameters", "_buffers"})


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
    operators: list[SourceOp] = []
    by_name: dict[str, int] = {}
    for node in _calls(traced):
        by_name[node.name] = len(operators) + 1
        operators.append(_source(len(operators) + 1, node.name, node))
    numbers: dict[str, int] = {}
    last: dict[int, str] = {}
    for node in _calls(lowered):
        number = next((by_name[name] for name in _ancestors(node, traced) if name in by_name), 0)
        if not number:
            number = len(operators) + 1
            name = node.name if node.name not in by_name else f"{node.name}#{number}"
            by_name[name] = number
            operators.append(_source(number, name, node))
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
    module = "operator" if module == "_operator" else module
    name = getattr(target, "__name__", text)
    if module.startswith("torch.nn.functional"):
        return f"functional.{name}"
    return f"{module.split('.')[0] or 'torch'}.{name}"


def describe(node: FxNode) -> str:
    """A node for an error message: its name, operator, module and line."""
    place = _place_of(node)
    where = [f"module '{place.module}'" if place.module else "", place.line]
    known = ", ".join(part for part in where if part)
    return f"operator '{node.name}' ({operator_name(node)}{', ' if known else ''}{known})"


def _calls(graph: FxGraph) -> Iterator[FxNode]:
    for node in graph.nodes:
        if node.op in ("call_function", "call_method", "call_module"):
            yield node


def _source(number: int, name: str, node: FxNode) -> SourceOp:
    place = _place_of(node)
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


@cache
def _torch_folder() -> str:
    import torch

    return f"{Path(torch.__file__).parent}{os.sep}"


def _place_of(node: FxNode) -> ProgramPlace:
    stack = node.meta.get("stack_trace") or ""
    module = _module(node.meta.get("nn_module_stack"))
    return ProgramPlace(module, line=line_of(stack, _torch_folder()), stack=stack.rstrip())


def dotted(name: str) -> str:
    """The dotted path of a module or parameter that `torch.compile` names by the Python expression
    that reaches it.
    """
    path = _BRACKETED.sub(r".\1", _LOCAL.sub("", name))
    parts = [part for part in path.split(".") if part and part not in _HOLDERS]
    return ".".join(parts[1:] if parts[:1] == ["self"] else parts)


def _module(stack: Any) -> str:
    """The path of the innermost module of a node's `nn_module_stack`: a dictionary of (path,
    class).
    """
    if not isinstance(stack, Mapping) or not stack:
        return ""
    path, _ = list(stack.values())[-1]
    if not isinstance(path, str) or path.startswith("_empty_nn_module_stack"):
        return ""
    return dotted(path) if "[" in path else path
