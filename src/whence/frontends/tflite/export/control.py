"""Operators that hold graphs: branches and loops, whose graphs become subgraphs of the file.

A file's loop asks its question in a subgraph of its own, before each iteration; the graph's loop is
told the answer before the first iteration and asks at the end of each. Where both times it is the
same question about what the loop carries, that question becomes the subgraph. Otherwise the loop
carries the answer as well, and the number of the iteration when something needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.schema import Option
from whence.graph.builder import infer_types
from whence.graph.copying import copy_node
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref, const_node
from whence.types import DType, TensorType, ValueType

_MOST_ASKED = 64


def _if(call: ExportCall) -> None:
    given = call.inputs()
    options: dict[str, Option] = {
        f"{name}_subgraph_index": call.writer.nested(
            call.node.bodies[f"{name}_branch"], f"{call.node.name}/{name}"
        )
        for name in ("then", "else")
    }
    call.emit("IF", given, options)


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop of the graph by its parts."""

    body: Graph
    carried: int
    """How many values it hands from iteration to iteration."""
    most: int | None
    """How many iterations at most."""

    @property
    def counts(self) -> bool:
        return self.most is not None or bool(self.body.uses(self.body.inputs[0].ref()))

    @property
    def results(self) -> list[Ref]:
        """What the body hands on: the answer, then what the loop carries."""
        return [node.first_input for node in self.body.outputs]


def _loop(call: ExportCall) -> None:
    node = call.node
    carried = len(node.inputs) - 2 - call.integer("captures")
    if len(node.outputs) != carried:
        call.unsupported("a loop that collects the results of its iterations")
    limit = call.value(0)
    if call.has(0) and limit is None:
        call.unsupported("a number of iterations that is computed while the model runs")
    iterations = None if limit is None else int(limit.reshape(-1)[0])
    loop = _Loop(
        node.bodies["body"],
        carried,
        None if iterations is None or iterations >= 1 << 62 else iterations,
    )
    state = [call.input(index) for index in range(2, len(node.inputs))]
    question = _question(call, loop)
    if question is not None:
        _emit(call, loop, state, question, _iteration(loop, count=False, answer=False), [])
        return
    kinds = [*([TensorType(DType.I64, ())] if loop.counts else []), TensorType(DType.BOOL, ())]
    first = [call.const(np.zeros((), np.int64))] if loop.counts else []
    first.append(call.input(1) if call.has(1) else call.const(np.ones((), np.bool_)))
    _emit(
        call,
        loop,
        [*first, *state],
        _asks(loop, kinds),
        _iteration(loop, count=loop.counts, answer=True),
        kinds,
    )


def _emit(
    call: ExportCall,
    loop: _Loop,
    state: Sequence[int],
    condition: Graph,
    body: Graph,
    extra: Sequence[TensorType],
) -> None:
    name = call.node.name
    options: dict[str, Option] = {
        "cond_subgraph_index": call.writer.nested(condition, f"{name}/condition"),
        "body_subgraph_index": call.writer.nested(body, f"{name}/body"),
    }
    made = [call.between(kind) for kind in extra]
    made += [call.output(index) for index in range(loop.carried)]
    made += [
        call.between(kind)
        for node in loop.body.inputs[2 + loop.carried :]
        if isinstance(kind := node.type, TensorType)
    ]
    call.emit("WHILE", state, options, outputs=made)


# ---- the question ----


def _question(call: ExportCall, loop: _Loop) -> Graph | None:
    """The loop's condition as a graph, if it is the same before the loop and in it."""
    if loop.counts or not call.has(1):
        return None
    results = loop.results
    captured = [node.ref() for node in loop.body.inputs[2 + loop.carried :]]
    inside = {ref: position for position, ref in enumerate([*results[1:], *captured])}
    outside = {
        ref: position for position, ref in enumerate(call.node.inputs[2:]) if ref is not None
    }
    budget = [_MOST_ASKED]
    if not _same(loop.body, results[0], inside, call.graph, call.ref(1), outside, budget):
        return None
    graph = Graph("condition", loop.body.ledger, loop.body.inference)
    state = _inputs(graph, [node.type for node in loop.body.inputs[2:]])
    answer = _copied(
        loop.body, results[0], {ref: state[position] for ref, position in inside.items()}, graph, {}
    )
    graph.append(Node(graph.new_id(), "Output", (answer,), (), name="go_on"))
    return graph


def _same(
    a: Graph,
    x: Ref,
    known: Mapping[Ref, int],
    b: Graph,
    y: Ref,
    others: Mapping[Ref, int],
    budget: list[int],
) -> bool:
    """Are two values the same function of the values in `known` and `others`?"""
    if x in known and y in others and known[x] == others[y]:
        return True
    first, second = a[x.node], b[y.node]
    budget[0] -= 1
    if (
        budget[0] < 0
        or first.op != second.op
        or first.bodies
        or first.op == "Input"
        or x.index != y.index
        or len(first.inputs) != len(second.inputs)
    ):
        return False
    if first.is_const:
        one, other = first.value, second.value
        return (
            one is not None
            and other is not None
            and one.dtype == other.dtype
            and np.array_equal(one, other)
        )
    if dict(first.attrs) != dict(second.attrs):
        return False
    pairs = zip(first.inputs, second.inputs, strict=True)
    return all(
        one is other is None
        or (
            one is not None and other is not None and _same(a, one, known, b, other, others, budget)
        )
        for one, other in pairs
    )


def _copied(
    source: Graph, ref: Ref, given: Mapping[Ref, Ref], target: Graph, made: dict[int, Node]
) -> Ref:
    """A value and what it is computed from, put into another graph."""
    if ref in given:
        return given[ref]
    node = source[ref.node]
    if node.id not in made:
        inputs = [
            None if each is None else _copied(source, each, given, target, made)
            for each in node.inputs
        ]
        copy = copy_node(node, target.new_id(), inputs)
        made[node.id] = target.prepend(copy) if node.is_const else target.append(copy)
    return made[node.id].ref(ref.index)


# ---- subgraphs of a loop that carries the answer ----


def _asks(loop: _Loop, extra: Sequence[ValueType]) -> Graph:
    """Takes the whole state; says whether to go on, and whether there are iterations left."""
    graph = Graph("condition", loop.body.ledger, loop.body.inference)
    state = _inputs(graph, [*extra, *(node.type for node in loop.body.inputs[2:])])
    answer = state[1] if loop.counts else state[0]
    other = _const(graph, np.ones((), np.bool_))
    if loop.most is not None:
        other = _node(graph, "Less", [state[0], _const(graph, np.array(loop.most, np.int64))])
    graph.append(
        Node(graph.new_id(), "Output", (_node(graph, "And", [answer, other]),), (), name="go_on")
    )
    return graph


def _iteration(loop: _Loop, *, count: bool, answer: bool) -> Graph:
    """The body, which hands on what it uses from outside, and counts or answers if it has to."""
    graph = loop.body.copy()
    outputs, inputs = graph.outputs, graph.inputs
    handed = [(node.name, node.first_input) for node in outputs[0 if answer else 1 :]]
    for node in outputs:
        graph.remove(node)
    handed += [
        (f"outside_{position}", node.ref())
        for position, node in enumerate(inputs[2 + loop.carried :])
    ]
    if count:
        handed.insert(
            0,
            (
                "iteration",
                _node(graph, "Add", [inputs[0].ref(), _const(graph, np.ones((), np.int64))]),
            ),
        )
    for name, ref in handed:
        graph.append(Node(graph.new_id(), "Output", (ref,), (), name=name))
    for node in inputs[1 if count else 0 : 1 if answer else 2]:
        graph.remove(node)
    return graph


def _inputs(graph: Graph, kinds: Sequence[ValueType]) -> list[Ref]:
    return [
        graph.append(Node(graph.new_id(), "Input", (), (kind,), name=f"state_{position}")).ref()
        for position, kind in enumerate(kinds)
    ]


def _const(graph: Graph, value: np.ndarray) -> Ref:
    return graph.prepend(const_node(graph.new_id(), value)).ref()


def _node(graph: Graph, op: str, inputs: list[Ref]) -> Ref:
    return graph.append(
        Node(graph.new_id(), op, inputs, infer_types(graph, op, inputs, {}, 1), name=op)
    ).ref()


EXPORTS: Exports = {"If": _if, "Loop": _loop}
