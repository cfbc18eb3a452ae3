"""The printed fused graph: one entry a line, greppable, provenance included, then what was not
fused.

#1 fuse_conv_relu(%7, %8) -> %2: %1 Conv, %2 Relu; anchor %1, out_elemwise_fusable from[1,2]
not fused %2 -> %3: output has 2 consumers
"""

from __future__ import annotations

from whence.fusion.fuse import FusedGraph, FuseEntry
from whence.graph.escaping import escape


def print_fused(fused: FusedGraph, *, missed: bool = True) -> str:
    """The entries in execution order as text."""
    lines = [_line(entry) for entry in fused]
    if missed:
        lines += [
            f"not fused %{edge.producer} -> %{edge.consumer}: {edge.text}"
            for edge in fused.groups.missed
        ]
    return "\n".join(lines) + "\n"


def _line(entry: FuseEntry) -> str:
    inputs = ", ".join(str(ref) for ref in entry.inputs)
    outputs = ", ".join(str(ref) for ref in entry.outputs)
    members = ", ".join(f"%{node.id} {escape(node.op)}" for node in entry.members)
    flat = ", flat" if entry.flatten else ""
    origin = (
        f" from[{','.join(str(source) for source in sorted(entry.origin))}]" if entry.origin else ""
    )
    return (
        f"#{entry.id} {entry.name}({inputs}) -> {outputs}: {members}; anchor %{entry.anchor.id},"
        f" {entry.pattern.name.lower()}{flat}{origin}"
    )
