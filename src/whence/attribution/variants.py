"""A kernel by itself, whole or with something left out of it, as a kernel program that can be
compiled and timed.

1. A member is left out by letting its main operand stand in for its result: as it is when the types
   agree, reshaped when the number of elements does. Where neither does, the result is read from
   memory instead. What only the member read is left out with it.
2. The activation of a supernode is left out by its attribute, what is added to the sum by its
   input.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from whence.attribution.anchor import ADDED_INPUT, ADDITIONS, descendants, main_input
from whence.attribution.cost_model import VIEWS, is_contraction
from whence.attribution.source_costs import Kinds
from whence.errors import UnsupportedError
from whence.fusion.fuse import FuseEntry, fuse
from whence.fusion.groups import Decision, make_groups
from whence.graph import Graph, Node, Ref
from whence.graph.state import SOURCES
from whence.kernels.choice import NO_CHOICES, Choices
from whence.kernels.group import Group
from whence.kernels.ir import Kernel
from whence.kernels.lower import lower_group
from whence.kernels.tile import Tile
from whence.ops.definition import Attrs, Pattern
from whence.ops.types.inference import Inference
from whence.provenance import Ledger
from whence.types import TensorType, ValueType


class SupernodePart(enum.Enum):
    """A part of a supernode that can be left out."""

    ACTIVATION = "activation"
    ADDED = "added"


LeftOut: TypeAlias = int | SupernodePart
"""A member of a kernel, or a part of its anchor."""


@dataclass(frozen=True, slots=True)
class Nest:
    """The members of one kernel in a graph that still has its constants."""

    graph: Graph
    nodes: tuple[int, ...]
    outputs: tuple[Ref, ...]
    anchor: int


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel to time. Operands are known by the values of the nest's graph that they are, so that
    variants can share them.
    """

    kernel: Kernel
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    consts: dict[Ref, np.ndarray]
    """Those of the inputs that are constants."""
    dropped: frozenset[int]
    """The members that are not in it."""


def roles(nest: Nest) -> tuple[SupernodePart, ...]:
    """What can be left out of the anchor."""
    node = nest.graph[nest.anchor]
    added = ADDED_INPUT.get(node.op)
    found = []
    if added is not None and node.attrs.get("activation"):
        found.append(SupernodePart.ACTIVATION)
    if added is not None and node.input(added) is not None:
        found.append(SupernodePart.ADDED)
    return tuple(found)


def variant(
    nest: Nest,
    tile: Tile,
    left_out: LeftOut | None = None,
    choices: Choices = NO_CHOICES,
) -> Variant:
    """The kernel without a member, without a part of its anchor, or whole. Raises
    `UnsupportedError` when that is no kernel.
    """
    if left_out == nest.anchor:
        raise UnsupportedError("a kernel is nothing without its anchor")
    return _Builder(nest, left_out).finish(tile, choices)


class _Builder:
    def __init__(self, nest: Nest, left_out: LeftOut | None) -> None:
        self._nest, self._left_out = nest, left_out
        self._inside = frozenset(nest.nodes)
        self._made = Graph("variant", Ledger(), Inference())
        self._placed: dict[Ref, Ref] = {}
        self._original: dict[Ref, Ref] = {}

    def finish(self, tile: Tile, choices: Choices) -> Variant:
        nest = self._nest
        needed = self._needed()
        if nest.anchor not in needed:
            raise UnsupportedError("nothing is left of the kernel's anchor")
        for number in nest.nodes:
            if number in needed:
                self._copy(nest.graph[number])
        operators = {node.id for node in self._made if node.op not in SOURCES}
        ends: dict[Ref, Ref] = {}
        for ref in nest.outputs:
            end = self._value(self._substitute(ref))
            # What is nothing but an operand now need not be stored.
            if end.node in operators:
                ends.setdefault(end, ref)
        if not ends:
            raise UnsupportedError("nothing is left of the kernel")
        for number, end in enumerate(ends):
            self._add("Output", (end,), name=f"output{number}")
        self._original.update(ends)
        entry = self._entry(operators, next(iter(ends)).node)
        kernel = lower_group(
            Group(self._made, entry.name, entry.members, entry.inputs, entry.outputs),
            entry.anchor,
            tile,
            choices,
        )
        consts = {
            self._original[ref]: value
            for ref in entry.inputs
            if (value := self._made[ref.node].value) is not None
        }
        inputs, outputs = (
            tuple(self._original[ref] for ref in refs) for refs in (entry.inputs, entry.outputs)
        )
        return Variant(kernel, inputs, outputs, consts, self._inside - needed)

    def _needed(self) -> frozenset[int]:
        """The members that the outputs still depend on."""
        found: set[int] = set()
        waiting = [self._substitute(ref).node for ref in self._nest.outputs]
        while waiting:
            number = waiting.pop()
            if number not in self._inside or number in found or number == self._left_out:
                continue
            found.add(number)
            waiting += [
                self._substitute(ref).node
                for ref in self._operands(self._nest.graph[number])
                if ref is not None
            ]
        return frozenset(found)

    def _substitute(self, ref: Ref) -> Ref:
        """The value to read in place of `ref`: another one when `ref` is of the member that is left
        out, and fits.
        """
        if ref.node != self._left_out:
            return ref
        graph = self._nest.graph
        main = main_input(
            graph,
            graph[ref.node],
            self._inside,
            descendants(graph, self._nest.nodes, self._nest.anchor),
        )
        return main if main is not None and ref.index == 0 and _fits(graph, main, ref) else ref

    def _operands(self, node: Node) -> tuple[Ref | None, ...]:
        if self._left_out is SupernodePart.ADDED and node.id == self._nest.anchor:
            index = ADDED_INPUT[node.op]
            return (*node.inputs[:index], None, *node.inputs[index + 1 :])
        return node.inputs

    def _copy(self, node: Node) -> None:
        attrs = dict(node.attrs)
        if self._left_out is SupernodePart.ACTIVATION and node.id == self._nest.anchor:
            attrs = {key: value for key, value in attrs.items() if not key.startswith("activation")}
        inputs = tuple(None if ref is None else self._operand(ref) for ref in self._operands(node))
        copy = self._add(node.op, inputs, node.outputs, attrs, name=node.name)
        self._placed.update(
            (node.ref(index), copy.ref(index)) for index in range(len(node.outputs))
        )

    def _operand(self, ref: Ref) -> Ref:
        """The copy of an operand, in the shape in which it is read."""
        graph, instead = self._nest.graph, self._substitute(ref)
        found, kind = self._value(instead), graph.type_of(ref)
        if instead == ref or graph.type_of(instead) == kind:
            return found
        assert isinstance(kind, TensorType)
        sizes = np.array(kind.static_shape, np.int64)
        shape = self._add("Const", (), (TensorType.of(sizes),), name="shape", value=sizes)
        return self._add("Reshape", (found, shape.ref()), (kind,), name="stand_in").ref()

    def _value(self, ref: Ref) -> Ref:
        if ref not in self._placed:
            graph = self._nest.graph
            node, number = graph[ref.node], len(self._placed)
            if node.is_const:
                copy = self._add("Const", (), node.outputs, name=node.name, value=node.value)
            else:
                copy = self._add("Input", (), (graph.type_of(ref),), name=f"input{number}")
            self._placed[ref] = copy.ref()
            self._original[self._placed[ref]] = ref
        return self._placed[ref]

    def _add(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        outputs: Sequence[ValueType] = (),
        attrs: Attrs | None = None,
        *,
        name: str,
        value: np.ndarray | None = None,
    ) -> Node:
        number = self._made.new_id()
        return self._made.append(Node(number, op, inputs, outputs, attrs, name=name, value=value))

    def _entry(self, operators: set[int], root: int) -> FuseEntry:
        (anchor,) = (
            copy.node for ref, copy in self._placed.items() if ref == Ref(self._nest.anchor, 0)
        )
        decisions = {
            node.id: Decision(root, anchor, Pattern.OPAQUE)
            for node in self._made
            if node.id in operators or node.op == "Reshape"
        }
        entries = fuse(self._made, make_groups("one", self._made, decisions, ())).entries
        return next(entry for entry in entries if entry.root.id == root)


def _fits(graph: Graph, main: Ref, ref: Ref) -> bool:
    one, other = graph.tensor_type(main), graph.tensor_type(ref)
    if one is None or other is None or one.elements is None:
        return False
    return one.dtype is other.dtype and one.elements == other.elements


def left_outs(nest: Nest) -> Iterator[LeftOut]:
    """Everything that can be tried. A view saves nothing: that needs no measurement."""
    yield from (
        number
        for number in nest.nodes
        if number != nest.anchor and nest.graph[number].op not in VIEWS
    )
    yield from roles(nest)


def sources_of(role: SupernodePart, working: Sequence[int], kinds: Kinds) -> list[int]:
    """The operators of the file that a part of the anchor stands for, of those that are in it."""
    light = [source for source in working if not any(map(is_contraction, kinds[source]))]
    added = [source for source in light if kinds[source] & ADDITIONS]
    if role is SupernodePart.ADDED:
        return added if len(added) == 1 else []
    return [source for source in light if source not in added]
