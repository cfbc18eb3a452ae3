"""Running a graph, at any stage of preparation, through the operators' reference implementations.

Slow and plain on purpose: this is the oracle that everything compiled is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from whence.errors import InputError, ModelError, WhenceError
from whence.graph.display_name import display_name
from whence.graph.generation import beam_search, greedy_search, sampling
from whence.graph.guards import guards_of_nodes, holds
from whence.graph.iterations import ITERATING, Iterations, captures, is_true, iterations_of
from whence.graph.node import Node, Ref
from whence.graph.state import GIVEN, State, fitting, initial_state
from whence.ops.binding import Port, bind_values
from whence.ops.definition import Call, Value, labelled
from whence.ops.fallback import first_line
from whence.ops.registry import evaluate
from whence.ops.tensor.counted import empty_rows, entry_of
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.graph.graph import Graph

Observer = Callable[[Node, Sequence[Value]], None]
RunBody = Callable[["Graph", Sequence[Value]], list[Value]]
"""Runs a nested graph on the values of its inputs, in order."""
RunIterations = Callable[[Iterations], Sequence[Value] | None]
"""Runs all iterations of a Loop or Scan; `None` where it cannot, and each iteration runs the body.
"""


def run(
    graph: Graph,
    inputs: Mapping[str, Value] | Value,
    observe: Observer | None = None,
    state: State | None = None,
) -> list[Value]:
    """The graph's outputs for these inputs, given by name or in order. `observe` sees every node's
    results as they are made. `state` is brought up to date when the run is done, and stays as it
    was when it fails.
    """
    return _run(graph, bind_inputs(graph, inputs), observe, state)


def bind_inputs(graph: Graph, inputs: Mapping[str, Value] | Value) -> list[Value]:
    """The inputs in the graph's order, checked against what it declares."""
    return bind_values([Port(node.name, node.type) for node in graph.inputs], inputs)


def _run(
    graph: Graph,
    feeds: Sequence[Value],
    observe: Observer | None,
    state: State | None = None,
) -> list[Value]:
    values: dict[Ref, Value] = {}
    pending: dict[int, int] = {}
    results: dict[int, Value] = {}
    state = initial_state(graph) if state is None else state
    assigned: dict[str, Value] = {}
    for node in graph.variables:
        values[node.ref()] = fitting(node, state.get(node.name))
    for node, value in zip(graph.inputs, feeds, strict=True):
        values[node.ref()] = value
    guards = guards_of_nodes(graph)
    for node in graph:
        pending[node.id] = graph.use_count(node)
        if node.op in GIVEN:
            continue
        if node.op == "Const":
            values[node.ref()] = node.value
            continue
        if node.op == "Output":
            assert node.inputs[0] is not None
            results[node.id] = values[node.inputs[0]]
        elif node.op == "Assign":
            # Reads see the old value until the run is done, wherever they stand.
            assert node.inputs[0] is not None
            variable = str(node.attrs["variable"])
            assigned[variable] = np.array(
                fitting(node, values[node.inputs[0]], graph.variable(variable).type)
            )
        elif all(holds(guard, values[guard.condition]) for guard in guards.get(node.id, ())):
            # A choice reads a value that is not there when that was not needed.
            found = values.get if node.op == "Choose" else values.__getitem__
            inputs = tuple(None if ref is None else found(ref) for ref in node.inputs)
            outputs = evaluate_node(node, inputs, observe)
            for index, value in enumerate(outputs):
                values[Ref(node.id, index)] = value
            if observe is not None:
                observe(node, outputs)
        for ref in node.inputs:
            if ref is not None:
                pending[ref.node] -= 1
                if pending[ref.node] == 0:
                    for index in range(len(graph[ref.node].outputs)):
                        values.pop(Ref(ref.node, index), None)
    state.update(assigned)
    return [results[node.id] for node in graph.outputs]


def run_body(body: Graph, feeds: Sequence[Value]) -> list[Value]:
    """A nested graph by the operators' reference implementations."""
    return _run(body, feeds, None)


def evaluate_node(
    node: Node,
    inputs: tuple[Value, ...],
    observe: Observer | None = None,
    run_nested: RunBody | None = None,
    run_iterations: RunIterations | None = None,
) -> Sequence[Value]:
    """One node on actual values, nested graphs included, which `run_nested` runs if it is given,
    and `run_iterations` those that iterate. An error names the node.
    """
    try:
        if run_iterations is not None and node.op in ITERATING:
            made = run_iterations(iterations_of(node, inputs))
            if made is not None:
                return made
        control = _CONTROL.get(node.op)
        if control is not None:
            return control(
                node, inputs, run_nested or (lambda body, feeds: _run(body, feeds, observe))
            )
        return evaluate(Call(node.op, node.attrs, inputs, len(node.outputs)))
    except WhenceError as error:
        if node.op == "Continuation":
            # No operator of the file, which the error names already.
            raise
        raise type(error)(labelled(f"operator {display_name(node)}", str(error))) from error
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # The operator's values do not fit together; numpy says how, the user needs to know where.
        shapes = ", ".join(
            str(TensorType.of(value)) if isinstance(value, np.ndarray) else type(value).__name__
            for value in inputs
        )
        raise InputError(
            f"operator {display_name(node)} cannot be evaluated on ({shapes}): {first_line(error)}"
        ) from error


def _run_if(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    branch = "then_branch" if is_true(inputs[0]) else "else_branch"
    return run(node.bodies[branch], inputs[1:])


def _run_branch(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    return run(node.bodies["body"], inputs)


def _run_continuation(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    """Of some of what it takes the first rows are meant, by counts that come first; and of some the
    size that they are.
    """
    first, sized = entry_of(node.attrs)
    counts, feeds = inputs[: len(first)], list(inputs[len(first) :])
    for place, count in zip(first, counts, strict=True):
        feeds[place] = feeds[place][: count.item()]
    body = node.bodies["body"]
    for place in sized:
        try:
            feeds[place] = empty_rows(feeds[place].item())
        except ModelError as error:
            raise ModelError(f"operator {body.inputs[place].name}: {error}") from None
    return run(body, feeds)


def _run_fail(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    raise ModelError(str(node.attrs["why"]))


def _run_iterations(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    iterations, body = iterations_of(node, inputs), node.bodies["body"]
    carried, goes_on, iteration = iterations.carried, iterations.goes_on, 0
    scanned: list[list[Value]] = [[] for _ in body.outputs[iterations.is_counted + len(carried) :]]
    while goes_on and (iterations.most is None or iteration < iterations.most):
        results = run(body, iterations.feeds(iteration, carried))
        if iterations.is_counted:
            condition, *results = results
            goes_on = is_true(condition)
        carried = results[: len(carried)]
        for rows, row in zip(scanned, results[len(carried) :], strict=True):
            rows.append(row)
        iteration += 1
    return iterations.results(carried, scanned)


def _run_sequence_map(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    body = node.bodies["body"]
    formal = len(inputs) - captures(node)
    items, captured = inputs[:formal], inputs[formal:]
    results: list[list[Value]] = [[] for _ in body.outputs]
    for position, item in enumerate(items[0]):
        row = [
            item,
            *(other[position] if isinstance(other, list) else other for other in items[1:]),
        ]
        for collected, value in zip(results, run(body, [*row, *captured]), strict=True):
            collected.append(value)
    return results


_CONTROL: Mapping[str, Callable[[Node, tuple[Value, ...], RunBody], Sequence[Value]]] = {
    "If": _run_if,
    "Branch": _run_branch,
    "Call": _run_branch,
    "Continuation": _run_continuation,
    "Fail": _run_fail,
    "Loop": _run_iterations,
    "Scan": _run_iterations,
    "SequenceMap": _run_sequence_map,
    "com.microsoft::GreedySearch": greedy_search,
    "com.microsoft::Sampling": sampling,
    "com.microsoft::BeamSearch": beam_search,
}
