r"""The printed graph: stable, greppable, one node a line, provenance included.

    %7 f32[1,64,56,56] = FusedConv(%3, %4) strides=[1,1] from[12,13,14] by fold_batch_norm,fuse_activations  # layer1.0.conv1

Text that comes from a model is escaped, so that a line is always one line.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.ops.definition import Attr
from whence.types import DType

_DTYPE_ATTRS = frozenset(
    {
        "to",
        "dtype",
        "output_dtype",
        "output_datatype",
        "precision",
        "softmax_precision",
        "stash_type",
    }
)


def print_graph(graph: Graph, *, consts: bool = True) -> str:
    """The whole graph as text, nested graphs indented under their node."""
    return "\n".join(_lines(graph, _passes_by_node(graph), "", consts)) + "\n"


def print_node(node: Node) -> str:
    """One node as it stands in the printed graph. Reads the whole ledger to say which passes made
    it: not for use in a loop.
    """
    made_by = _passes_by_node(node.graph) if node.graph is not None else {}
    return _line(node, made_by)


def print_attrs(node: Node) -> list[str]:
    """Its attributes, each as it stands in the printed graph."""
    return [f"{escape(key)}={_attr(key, value)}" for key, value in sorted(node.attrs.items())]


def escape(text: str) -> str:
    """Printable, on one line, and reversible: backslash escapes for control characters and for the
    backslash itself.
    """
    return "".join(
        (
            char
            if char.isprintable() and char != "\\"
            else char.encode("unicode_escape").decode("ascii")
        )
        for char in text
    )


def _lines(graph: Graph, made_by: dict[int, list[str]], indent: str, consts: bool) -> Iterator[str]:
    for node in graph:
        if node.is_const and not consts:
            continue
        yield indent + _line(node, made_by)
        for name, body in node.bodies.items():
            yield f"{indent}  {escape(name)}:"
            yield from _lines(body, made_by, indent + "    ", consts)


def _line(node: Node, made_by: dict[int, list[str]]) -> str:
    # Types may name dimensions, and those names are the model's too.
    types = ", ".join(escape(str(kind)) for kind in node.outputs)
    inputs = ", ".join("-" if ref is None else str(ref) for ref in node.inputs)
    parts = [
        f"%{node.id} {types} =" if node.outputs else f"%{node.id} =",
        f"{escape(node.op)}({inputs})",
    ]
    if node.is_const and node.value is not None:
        parts.append(_value(node.value))
    parts.extend(print_attrs(node))
    if node.origin:
        parts.append(f"from[{','.join(str(source) for source in sorted(node.origin))}]")
    passes = made_by.get(node.id)
    if passes:
        parts.append("by " + ",".join(passes))
    if node.name:
        parts.append(f" # {escape(node.name)}")
    return " ".join(parts)


def _value(value: np.ndarray) -> str:
    if value.size > 8:
        return "{...}"
    # NumPy's own scalars know how few digits tell them apart; the floats of `tolist` show all of a
    # double's.
    return (
        "{"
        + ", ".join(
            repr(item) if isinstance(item, str | bytes) else str(item) for item in value.reshape(-1)
        )
        + "}"
    )


def _attr(key: str, value: Attr) -> str:
    if key in _DTYPE_ATTRS and isinstance(value, int) and value in DType._value2member_map_:
        return str(DType(value))
    if isinstance(value, tuple):
        return "[" + ",".join(_attr("", item) for item in value) + "]"
    if isinstance(value, np.ndarray):
        return f"{list(value.shape)}{_value(value)}"
    if isinstance(value, str | bytes):
        return escape(value if isinstance(value, str) else repr(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _passes_by_node(graph: Graph) -> dict[int, list[str]]:
    made_by: dict[int, list[str]] = {}
    for edge in graph.ledger.edges:
        names = made_by.setdefault(edge.child, [])
        if edge.pass_name not in names:
            names.append(edge.pass_name)
    return made_by
