"""The module of the program that each operator of the file belongs to.

Files say it in several places, none of which can be relied upon alone: an exporter that folds batch
normalisation leaves the normalisation's metadata on the convolution, and an optimiser that renames
operators drops it. So, in this order:

1. A weight's name: `layer1.0.conv1.weight` is a parameter of `layer1.0.conv1`; of a product whose
   weight has none, the name of the bias that is added to it. It counts where metadata says nothing,
   says less (a module around it) or names a sibling, which is what folding leaves. Otherwise the
   weight is shared with another module, and metadata is right.
2. Metadata of the exporter.
3. The path in the operator's name, `/layer1/0/conv1/Conv`.
4. The operators around it: the module that those which feed and read it have in common; for an
   operator that is no layer of its own (it neither convolves nor multiplies matrices), else the
   module of what feeds it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from whence.attribution.cost_model import is_contraction
from whence.graph import Graph, Node
from whence.provenance import SourceOp


class ModuleEvidence(enum.StrEnum):
    """How a module is known."""

    WEIGHTS = "weights"
    METADATA = "metadata"
    NAME = "name"
    NEIGHBOURS = "neighbours"


class Module(NamedTuple):
    path: str
    """Dotted, outermost first."""
    evidence: ModuleEvidence


# The last part of a parameter's name, as PyTorch, Keras and PaddlePaddle call them, and what
# quantisers append.
_PARAMETER = re.compile(
    r"(weight|bias|kernel|gamma|beta|scale|running_mean|running_var|moving_mean|moving_variance|"
    r"embeddings?|in_proj_weight|in_proj_bias|weight_g|weight_v|(weight|bias)_(ih|hh)(_l\d+\w*)?|"
    r"[wb]_\d+)(_(quantized|q|scale|zero_point|transposed|fp16|int8))*(_\d+)?"
)
_CAFFE = re.compile(r"(.*[a-zA-Z].*)_[wb]_\d+")
_MADE_UP = re.compile(r"(onnx::|val_|_?const|tensor|helper\.|auto\.)|.*\s", re.IGNORECASE)


def find_modules(graph: Graph) -> dict[int, Module]:
    """By source operator, from the graph as loaded; those not known are left out."""
    found: dict[int, Module] = {}
    sources = {source.id: source for source in graph.ledger.sources}
    for nested in graph.nested():
        for node in nested:
            for number in node.origin:
                if number not in found and not node.is_const:
                    own = _own(sources[number], _weight_module(nested, node))
                    if own is not None:
                        found[number] = own
    for source in sources.values():
        if source.id not in found and (own := _own(source, "")) is not None:
            found[source.id] = own
    for nested in graph.nested():
        _take_bias(nested, found)
        _spread(nested, found)
    return found


def module_of_weight(name: str) -> str:
    """`layer1.0.conv1` of `layer1.0.conv1.weight`; empty for a name that is no path to a
    parameter.
    """
    if _MADE_UP.match(name):
        return ""
    whole = name.replace("/", ".").strip(".")
    path, _, last = whole.rpartition(".")
    if path and _PARAMETER.fullmatch(last):
        return path
    # Caffe: the layer's own name, and which of its parameters it is.
    layer = _CAFFE.fullmatch(whole)
    return layer[1] if layer else ""


def _own(source: SourceOp, weights: str) -> Module | None:
    told = source.module
    if weights and (not told or _refines(weights, told)):
        return Module(weights, ModuleEvidence.WEIGHTS)
    if told:
        return Module(told, ModuleEvidence.METADATA)
    path = source.name.strip("/").rpartition("/")[0].replace("/", ".") or source.scope
    return Module(path, ModuleEvidence.NAME) if path else None


def _refines(weights: str, told: str) -> bool:
    """Is the weight's module inside the one that metadata names, or beside it?"""
    return (
        f"{weights}.".startswith(f"{told}.")
        or ("." in told and weights.rpartition(".")[0] == told.rpartition(".")[0])
        or ("." not in told and "." not in weights)
    )


def _weight_module(graph: Graph, node: Node) -> str:
    """Of the first parameter it reads, or reads through operators that only restate constants."""
    for ref in node.inputs:
        if ref is None:
            continue
        for name in _names(graph, graph[ref.node]):
            if path := module_of_weight(name):
                return path
    return ""


def _names(graph: Graph, node: Node, depth: int = 4) -> Iterator[str]:
    """What the file calls a constant, and the constants it is computed from."""
    if node.is_const:
        yield node.name
    elif depth and node.inputs and _is_constant(graph, node, depth):
        for ref in node.inputs:
            if ref is not None:
                yield from _names(graph, graph[ref.node], depth - 1)
    for number in node.origin:
        source = graph.ledger.source(number)
        if node.is_const or _is_constant(graph, node, depth):
            yield from source.outputs


def _is_constant(graph: Graph, node: Node, depth: int) -> bool:
    """Does it depend on constants alone, as far as one looks?"""
    if node.is_const:
        return True
    return bool(depth and node.inputs) and all(
        ref is None or _is_constant(graph, graph[ref.node], depth - 1) for ref in node.inputs
    )


def _take_bias(graph: Graph, found: dict[int, Module]) -> None:
    """A product whose weight has no name belongs to the bias that is added to it alone."""
    for node in graph:
        readers = graph.consumers(node) if is_contraction(node.op) else ()
        if len(readers) == 1 and readers[0].op == "Add":
            bias = [found[each] for each in readers[0].origin if each in found]
            for number in (
                node.origin if bias and bias[0].evidence is ModuleEvidence.WEIGHTS else ()
            ):
                found.setdefault(number, bias[0])


def _spread(graph: Graph, found: dict[int, Module]) -> None:
    for node in graph:
        for number in node.origin:
            if number in found or node.is_const:
                continue
            before = _around(graph, found, [ref.node for ref in node.inputs if ref is not None])
            if not before:
                continue
            after = _around(graph, found, [reader.id for reader in graph.consumers(node)])
            path = _common([*before, *after])
            if is_contraction(node.op):
                path = path if after else ""
            else:
                path = path or before[0]
            if path:
                found[number] = Module(path, ModuleEvidence.NEIGHBOURS)


def _around(graph: Graph, found: Mapping[int, Module], nodes: list[int]) -> list[str]:
    return [
        found[number].path
        for each in nodes
        if not graph[each].is_const
        for number in sorted(graph[each].origin)
        if number in found
    ]


def _common(paths: list[str]) -> str:
    """The modules that all paths begin with."""
    shared = []
    for parts in zip(*(path.split(".") for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)
