"""What a fused group is called, and when two are the same code."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import numpy as np

from whence.graph import Graph, Node, Ref
from whence.ops.definition import Attr

_LONGEST = 80
_STRANGE = re.compile(r"[^a-z0-9]+")


def readable_name(members: Sequence[Node]) -> str:
    """`fuse_conv_relu`: the operators in order. An identifier whatever the operators are called;
    long ones end in a digest.
    """
    parts = (
        _STRANGE.sub("_", node.op.rpartition("::")[2].lower()).strip("_") or "op"
        for node in members
    )
    name = "_".join(("fuse", *parts))
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class Names:
    """Hands out function names: one for each structure, numbered from the second structure that
    would have the same name.
    """

    def __init__(self) -> None:
        self._by_key: dict[str, str] = {}
        self._next: dict[str, int] = {}
        self._taken: set[str] = set()

    def name(self, key: str, members: Sequence[Node]) -> str:
        if key not in self._by_key:
            base = readable_name(members)
            name = base
            while name in self._taken:
                number = self._next.get(base, 1)
                self._next[base] = number + 1
                name = f"{base}_{number}"
            self._taken.add(name)
            self._by_key[key] = name
        return self._by_key[key]


def structural_key(
    graph: Graph,
    members: Sequence[Node],
    inputs: Sequence[Ref],
    consts: Sequence[Node],
    outputs: Sequence[Ref],
    anchor: Node,
) -> str:
    """Equal for two groups exactly when the same code serves both: operators, attributes, types,
    wiring and the constants that are part of the code.

    Names, ids, origins and the contents of stored constants are left out; whether an input is a
    stored constant is in, because its layout may be chosen when the code is made. A group with
    nested graphs is equal only to itself.
    """
    numbers: dict[Ref, str] = {ref: f"input{index}" for index, ref in enumerate(inputs)}
    inlined = {const.ref(): f"const{index}" for index, const in enumerate(consts)}
    lines = [
        f"input {graph.type_of(ref)} {'stored' if graph[ref.node].is_const else 'computed'}"
        for ref in inputs
    ]
    values = [(const.type, const.known_value) for const in consts]
    lines += [f"const {kind} {_attr(value)}" for kind, value in values if value is not None]
    for index, node in enumerate(members):
        # A constant may be data to one operator and part of the code to another, so both its names
        # are told.
        sources = " ".join(
            "-" if ref is None else numbers.get(ref, "") + inlined.get(ref, "")
            for ref in node.inputs
        )
        types = " ".join(str(kind) for kind in node.outputs)
        lines.append(f"{node.op!r} ({sources}) -> {types} {_attrs(node.attrs)}")
        if node.bodies:
            lines.append(f"bodies of {node.id}")
        numbers.update(
            {node.ref(output): f"%{index}.{output}" for output in range(len(node.outputs))}
        )
    lines.append("outputs " + " ".join(numbers[ref] for ref in outputs))
    lines.append(f"anchor {members.index(anchor)}")
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def _attrs(attrs: Mapping[str, Attr]) -> str:
    return " ".join(f"{key!r}={_attr(value)}" for key, value in sorted(attrs.items()))


def _attr(value: Attr) -> str:
    if isinstance(value, np.ndarray):
        contents = (
            repr(value.tolist()).encode()
            if value.dtype == object
            else np.ascontiguousarray(value).tobytes()
        )
        return f"{value.dtype}{value.shape}{hashlib.sha256(contents).hexdigest()}"
    if isinstance(value, tuple):
        return f"({','.join(_attr(item) for item in value)})"
    return value.hex() if isinstance(value, float) else repr(value)
