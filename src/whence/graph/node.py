"""Nodes and references between them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whence.ops.definition import Attr
from whence.ops.registry import REGISTRY
from whence.ops.tensor.shape import dimension_value
from whence.provenance import NO_ORIGIN, EdgeKind, Origin
from whence.types import TensorType, ValueType

if TYPE_CHECKING:
    from whence.graph.graph import Graph


class Ref(NamedTuple):
    """Output `index` of node `node`."""

    node: int
    index: int = 0  # type: ignore[assignment]  # a field here, where a plain tuple has a method nobody calls on a Ref

    def __str__(self) -> str:
        return f"%{self.node}" if self.index == 0 else f"%{self.node}.{self.index}"


class NodeFlag(enum.Flag):
    NONE = 0
    RETAIN = enum.auto()
    """Never dead, even without consumers. Every node without outputs has it."""
    NO_LAYOUT_CHANGE = enum.auto()
    """Layout passes leave it as it is."""


class Creation(NamedTuple):
    """How a node that a pass made came to be. Written to the ledger when the node enters the
    graph.
    """

    parents: tuple[tuple[int, EdgeKind], ...]
    """Nodes that exist already when the node is made."""
    pass_name: str
    rule: str


class Node:
    """One operator, input, constant or output.

    `inputs`, `outputs` and `attrs` are read freely and changed only through the graph, which keeps
    the consumer index exact. A node belongs to at most one graph; a new one belongs to none until a
    rewrite puts it in.
    """

    # fmt: off
    __slots__ = (
        "_next",
        "_order",
        "_prev",
        "_uses",
        "attrs",
        "bodies",
        "creation",
        "flags",
        "graph",
        "id",
        "inputs",
        "name",
        "op",
        "origin",
        "outputs",
        "value",
    )
    # fmt: on

    def __init__(
        self,
        node_id: int,
        op: str,
        inputs: Sequence[Ref | None] = (),
        outputs: Sequence[ValueType] = (),
        attrs: Mapping[str, Attr] | None = None,
        *,
        name: str = "",
        origin: Origin = NO_ORIGIN,
        value: np.ndarray | None = None,
        bodies: Mapping[str, Graph] | None = None,
        flags: NodeFlag = NodeFlag.NONE,
        creation: Creation | None = None,
    ) -> None:
        self.id = node_id
        self.op = op
        self.inputs: tuple[Ref | None, ...] = tuple(inputs)
        self.outputs: tuple[ValueType, ...] = tuple(outputs)
        self.attrs: Mapping[str, Attr] = attrs if attrs is not None else {}
        self.name = name
        self.origin = origin
        self.value = value
        """The data of a `Const`; `None` for every other operator and for a shape-only constant."""
        self.bodies: Mapping[str, Graph] = bodies if bodies is not None else {}
        """Nested graphs by attribute name. Values they use from outside are extra inputs of this
        node, see `Graph`.
        """
        self.flags = flags if self.outputs else flags | NodeFlag.RETAIN
        self.creation = creation
        self.graph: Graph | None = None
        self._uses: dict[int, int] = {}
        self._prev: Node | None = None
        self._next: Node | None = None
        self._order = 0

    def ref(self, index: int = 0) -> Ref:
        return Ref(self.id, index)

    @property
    def type(self) -> ValueType:
        """The type of output 0."""
        return self.outputs[0]

    @property
    def is_const(self) -> bool:
        return self.op == "Const"

    @property
    def known_value(self) -> np.ndarray | None:
        """What is known of its value when it is compiled: the data of a constant, or the numbers
        and expressions of a `DimensionValue`, as an array of objects.
        """
        return dimension_value(self.attrs) if self.op == "DimensionValue" else self.value

    @property
    def retained(self) -> bool:
        return NodeFlag.RETAIN in self.flags

    def input(self, index: int) -> Ref | None:
        """Input `index`, or `None` when it is absent or the list is shorter."""
        return self.inputs[index] if index < len(self.inputs) else None

    def operand(self, *names: str) -> Ref | None:
        """The operand that the operator's definition calls by one of these names; `None` when it is
        absent, or the operator has none of that name, as Conv has no addend.
        """
        positions = REGISTRY[self.op].operands.positions
        index = next((positions[name] for name in names if name in positions), len(self.inputs))
        return self.inputs[index] if index < len(self.inputs) else None

    def required(self, *names: str) -> Ref:
        """The operand of one of these names, which the operator cannot be without."""
        ref = self.operand(*names)
        assert ref is not None, f"{self!r} has no operand {' or '.join(names)}"
        return ref

    @property
    def first_input(self) -> Ref:
        """The first operand, which the operator cannot be without."""
        ref = self.inputs[0]
        assert ref is not None, f"{self!r} has no first operand"
        return ref

    def is_a(self, *ops: str) -> bool:
        """Is it one of these operators? For the alternatives of a pattern; what is true of a whole
        class of operators is a trait.
        """
        return self.op in ops

    def __repr__(self) -> str:
        inputs = ", ".join("-" if ref is None else str(ref) for ref in self.inputs)
        # Names and operator types are the model's: quoted, so that a message with a node in it
        # stays one line.
        op = self.op if self.op.isprintable() else repr(self.op)
        return f"<%{self.id} {op}({inputs}) {self.name!r}>"


def const_node(node_id: int, value: np.ndarray, name: str = "", origin: Origin = NO_ORIGIN) -> Node:
    """A constant with its data."""
    kind = TensorType.of(value)
    return Node(node_id, "Const", (), (kind,), name=name, origin=origin, value=value)
