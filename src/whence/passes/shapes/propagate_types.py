"""Types are worked out anew where more is known than when they were first written down.

1. A node one of whose outputs has a gap (unknown rank, dimension or element type) is inferred
   again.
2. A node one of whose inputs learnt something, or became a constant, is inferred again; so is
   whatever comes after it.
3. A nested graph learns the types of the values it captures, and an `If` what both its branches
   agree on.
4. What a Loop or Scan carries keeps the sizes that it begins with, where an iteration that is given
   them makes them again; and rows are as many as there are iterations (`iteration_count.py`).

Nothing known is ever forgotten. What a file declares of a value is compared with what is found out
about it here, and an operator of which it says something else is refused. Where inference disagrees
with what a pass wrote down, the node is left alone: no kernel is made of it (`graph/operands.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whence.errors import ModelError, WhenceError
from whence.extent import is_symbolic
from whence.graph import Graph, Node, Rewriter
from whence.graph.change import contradict
from whence.graph.copying import copy_graph
from whence.graph.display_name import display_name
from whence.graph.iterations import (
    ITERATING,
    captures,
    loop_heads,
    row_type,
    scanned_inputs,
    stacked_type,
    stacking_axes,
)
from whence.graph.merge import common, merge, without_shape
from whence.graph.operands import check_claim
from whence.graph.state import SOURCES
from whence.ops.definition import labelled
from whence.ops.named_dimensions import named_sizes
from whence.ops.types.inference import Inference
from whence.passes.base import Pass
from whence.passes.shapes.iteration_count import iteration_count
from whence.types import Dim, DType, TensorType, ValueType, as_dims


@dataclass(frozen=True, slots=True)
class PropagateTypes(Pass):
    name = "propagate_types"
    summary = "infer output types from what is now known of the inputs"

    def run(self, rewriter: Rewriter) -> None:
        types = TypeRefresher(rewriter.graph)
        for node in rewriter.graph:
            if (types.learnt and types.concerns(node)) or any(map(has_gap, node.outputs)):
                types.refresh(node)
        if types.refined:
            rewriter.rules["a type follows from the types of the inputs"] += types.refined


class TypeRefresher:
    """Re-inference during one walk in list order. It remembers who learnt something, so that only
    those concerned are asked again. With `every_node_runs`, an operator that cannot work on what is
    now known is refused; else it fails when it runs, if it ever does.
    """

    def __init__(self, graph: Graph, *, every_node_runs: bool = False) -> None:
        self.graph = graph
        self.every_node_runs = every_node_runs
        self.learnt: set[int] = set()
        """Nodes of which more is known than their consumers have seen: better types, or constants
        where none were.
        """
        self.refined = 0

    def concerns(self, node: Node) -> bool:
        """Does `node` read something that learnt?"""
        learnt = self.learnt
        return any(ref is not None and ref.node in learnt for ref in node.inputs)

    def visit(self, node: Node) -> None:
        """Infer again if an input learnt something. Costs next to nothing otherwise."""
        if self.learnt and self.concerns(node):
            self.refresh(node)

    def refresh(self, node: Node) -> bool:
        """Infer the node's types again; True when something new came out."""
        if node.bodies:
            return self.refine(node, self._through_bodies(node))
        if not node.outputs or node.op in SOURCES:
            return False
        try:
            found = self.graph.inference.infer(self.graph.query(node))
        except ModelError as error:
            if self.every_node_runs:
                label = f"operator {display_name(node)}"
                raise ModelError(labelled(label, str(error))) from error
            return False
        except WhenceError:
            return False
        return self.refine(node, found)

    def refine(self, node: Node, found: tuple[ValueType, ...]) -> bool:
        """Add what `found` says to the node's types; True when something was new. What contradicts
        the node's types changes nothing; what contradicts the file's claim is a `ModelError`.
        """
        if found == node.outputs or any(map(contradict, node.outputs, found)):
            return False
        if node.id in self.graph.claims:
            check_claim(self.graph, node, found)
        merged = tuple(map(merge, found, node.outputs))
        if merged == node.outputs:
            return False
        self.graph.set_types(node, merged)
        self.learnt.add(node.id)
        self.refined += 1
        return True

    def _through_bodies(self, node: Node) -> tuple[ValueType, ...]:
        """Tell the nested graphs what is known of their captures; returns what that says of the
        node's outputs.
        """
        count = captures(node)
        given = node.inputs[len(node.inputs) - count :]
        for body in node.bodies.values():
            entries = body.inputs[len(body.inputs) - count :]
            kinds = [None if ref is None else self.graph.type_of(ref) for ref in given]
            self.refined += _enter(body, entries, kinds)
        if node.op in ITERATING:
            return self._through_iterations(node)
        if node.op != "If":
            return node.outputs
        branches = [
            [body.type_of(ref) for output in body.outputs if (ref := output.inputs[0]) is not None]
            for body in node.bodies.values()
        ]
        return tuple(map(common, *branches))

    def _through_iterations(self, node: Node) -> tuple[ValueType, ...]:
        """Tell the body of a Loop or Scan what is known of what it carries, and of its rows;
        returns what that says of the node's outputs.
        """
        body, (first, head) = node.bodies["body"], loop_heads(node)
        rows = [row_type(*each) for each in scanned_inputs(self.graph, node)]
        states = len(node.inputs) - first - len(rows) - captures(node)
        if len(node.outputs) != len(body.outputs) - head or states < 0:
            return node.outputs
        begins = [
            None if ref is None else self.graph.type_of(ref)
            for ref in node.inputs[first : first + states]
        ]
        steady = _steady_types(node, begins, rows)
        if steady is None:
            return node.outputs
        carried, iteration = steady
        self.refined += _learn(body, iteration)
        made = [_made(output) for output in body.outputs[head + states :]]
        is_known = all(isinstance(kind, TensorType) and kind.is_static for kind in node.outputs)
        length = None if is_known else iteration_count(self.graph, node)
        axes = stacking_axes(node, len(made))
        if len(axes) != len(made):
            return node.outputs
        return (
            *carried,
            *(stacked_type(kind, length, axis) for kind, axis in zip(made, axes, strict=True)),
        )


def _enter(body: Graph, entries: Sequence[Node], kinds: Sequence[ValueType | None]) -> int:
    """Tell a nested graph the types of inputs; returns how many types it made better."""
    types = TypeRefresher(body)
    for entry, kind in zip(entries, kinds, strict=True):
        if kind is not None:
            types.refine(entry, (kind,))
    if types.learnt:
        for each in body:
            types.visit(each)
    return types.refined


def _steady_types(
    node: Node, begins: Sequence[ValueType | None], rows: Sequence[ValueType]
) -> tuple[list[ValueType], Graph] | None:
    """The types that hold for what a loop carries before and after every iteration: those that it
    begins with, less whatever an iteration that is given them does not make again; and the body
    with what follows from them. `None` if that contradicts them.
    """
    body, (first, head) = node.bodies["body"], loop_heads(node)
    last = first + len(begins)
    declared = [entry.type for entry in body.inputs[first:last]]
    if any(
        kind is not None and contradict(kind, known)
        for kind, known in zip(begins, declared, strict=True)
    ):
        return None
    steady = [
        known if kind is None else merge(kind, known)
        for kind, known in zip(begins, declared, strict=True)
    ]
    while True:
        given = [*steady, *rows]
        is_known = given == [entry.type for entry in body.inputs[first : last + len(rows)]]
        iteration = body if is_known else copy_graph(body, body.ledger)
        try:
            _enter(iteration, iteration.inputs[first : last + len(rows)], given)
        except ModelError:
            # The file says otherwise of some value in it; whether it is wrong, the run will tell.
            return None
        after = [_made(output) for output in iteration.outputs[head : head + len(begins)]]
        if any(map(contradict, declared, after)):
            return None
        kept = [
            merge(common(*pair), known)
            for *pair, known in zip(steady, after, declared, strict=True)
        ]
        if kept == steady:
            return steady, iteration
        steady = kept


def _learn(graph: Graph, copy: Graph) -> int:
    """What a copy of a graph has found out, so that nobody finds it out again: loops in loops would
    do so once more for each. Returns how many types are better.
    """
    refined = 0
    for node in () if copy is graph else graph:
        twin = copy[node.id]
        if twin.outputs != node.outputs:
            graph.set_types(node, twin.outputs)
            refined += 1
        for name, body in node.bodies.items():
            refined += _learn(body, twin.bodies[name])
    return refined


def _made(output: Node) -> ValueType:
    ref = output.first_input
    assert output.graph is not None
    return output.graph.type_of(ref)


def fix_input_shapes(graph: Graph, shapes: Mapping[str, Sequence[Dim]]) -> Graph:
    """Fix the shapes of inputs that the graph leaves open, in place, and return it with every type
    that follows. An input that is declared as a scalar may get any shape; then none that the file
    states is believed. An operator that cannot work on these shapes is refused, even where only
    the shape of its result is used, so that passes would remove it. Sizes may be expressions over
    dimensions (`ops/open_dimensions.py`).
    """
    if any(map(is_symbolic, itertools.chain.from_iterable(shapes.values()))):
        # What was found for the same expressions in another compilation asks that one's questions.
        for nested in graph.nested():
            nested.inference = Inference()
    # No pass has made branches of nested graphs part of this one.
    types = TypeRefresher(graph, every_node_runs="Choose" not in graph.op_counts)
    declared = {n.name: n.type.shape or () for n in graph.inputs if isinstance(n.type, TensorType)}
    graph.dimensions = {**named_sizes(declared, shapes), **graph.dimensions}
    for node in graph.inputs:
        if node.name in shapes and isinstance(node.type, TensorType):
            if node.type.shape == () and shapes[node.name]:
                _forget_shapes(graph)
                graph.set_types(node, (without_shape(node.type),))
            types.refine(node, (TensorType(node.type.dtype, as_dims(shapes[node.name])),))
    for node in graph:
        types.visit(node)
    return graph


def _forget_shapes(graph: Graph) -> None:
    graph.claims.clear()
    for node in graph:
        if not node.is_a("Input", "Const"):
            graph.set_types(node, tuple(map(without_shape, node.outputs)))


def has_gap(kind: ValueType) -> bool:
    """Is something about the type entirely unknown? A named dimension is not a gap."""
    return isinstance(kind, TensorType) and (
        kind.dtype is DType.UNDEFINED or kind.shape is None or None in kind.shape
    )
