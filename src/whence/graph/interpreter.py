"""Running a graph, at any stage of preparation, through the operators' reference implementations.

Slow and plain on purpose: this is the oracle that everything compiled is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from whence.errors import InputError, ModelError, UnsupportedError, WhenceError
from whence.graph.display_name import display_name
from whence.graph.generation import beam_search, greedy_search, sampling
from whence.graph.guards import guards_of_nodes, holds
from whence.graph.node import Node, Ref
from whence.graph.state import GIVEN, State, fitting, initial_state
from whence.ops.binding import Port, bind_values
from whence.ops.definition import Call, Value
from whence.ops.registry import evaluate
from whence.types import DType, TensorType

if TYPE_CHECKING:
    from whence.graph.graph import Graph

Observer = Callable[[Node, Sequence[Value]], None]
RunBody = Callable[["Graph", Sequence[Value]], list[Value]]
"""Runs a nested graph on the values of its inputs, in order."""


def run(
    graph: Graph,
    inputs: Mapping[str, Value] | Sequence[Value],
    observe: Observer | None = None,
    state: State | None = None,
) -> list[Value]:
    """The graph's outputs for these inputs, given by name or in order. `observe` sees every node's
    results as they are made. `state` is brought up to date when the run is done, and stays as it
    was when it fails.
    """
    return _run(graph, bind_inputs(graph, inputs), observe, state)


def bind_inputs(graph: Graph, inputs: Mapping[str, Value] | Sequence[Value]) -> list[Value]:
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
) -> Sequence[Value]:
    """One node on actual values, nested graphs included, which `run_nested` runs if it is given. An
    error names the node.
    """
    try:
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
        raise type(error)(f"operator {display_name(node)}: {error}") from error
    except (
        ArithmeticError,
        IndexError,
        TypeError,
        ValueError,
        MemoryError,
        RuntimeError,
        NotImplementedError,
        KeyError,
        AttributeError,
    ) as error:
        # The operator's values do not fit together; numpy says how, the user needs to know where.
        shapes = ", ".join(
            str(TensorType.of(value)) if isinstance(value, np.ndarray) else type(value).__name__
            for value in inputs
        )
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"operator {display_name(node)} cannot be evaluated on ({shapes}): {reason}"
        ) from error


def _run_if(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    branch = "then_branch" if bool(np.asarray(inputs[0]).reshape(-1)[0]) else "else_branch"
    return run(node.bodies[branch], inputs[1:])


def _run_branch(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    return run(node.bodies["body"], inputs)


def _run_fail(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    raise ModelError(str(node.attrs["why"]))


def _run_loop(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    body = node.bodies["body"]
    # Both the trip count and the condition may be absent, and absent inputs at the end are not even
    # listed.
    inputs = (*inputs, *[None] * (2 - len(inputs)))
    formal = len(inputs) - _captures(node)
    captured = inputs[formal:]
    trips = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(-1)[0])
    proceed = True if inputs[1] is None else bool(np.asarray(inputs[1]).reshape(-1)[0])
    carried = list(inputs[2:formal])
    scanned: list[list[Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
    step = 0
    while proceed and (trips is None or step < trips):
        iteration, going = (
            _as_declared(formal, value)
            for formal, value in zip(body.inputs, (np.int64(step), np.bool_(proceed)), strict=False)
        )
        condition, *results = run(body, [iteration, going, *carried, *captured])
        proceed = bool(np.asarray(condition).reshape(-1)[0])
        carried = results[: len(carried)]
        for rows, row in zip(scanned, results[len(carried) :], strict=True):
            rows.append(row)
        step += 1
    return [
        *carried,
        *(
            _stack(rows, output, 0)
            for rows, output in zip(scanned, body.outputs[1 + len(carried) :], strict=True)
        ),
    ]


def _run_scan(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    body = node.bodies["body"]
    n_scans = _int(node, "num_scan_inputs")
    formal = len(inputs) - _captures(node)
    states, scans, captured = (
        list(inputs[: formal - n_scans]),
        inputs[formal - n_scans : formal],
        inputs[formal:],
    )
    n_out = len(body.outputs) - len(states)
    in_axes, in_reversed = (
        _ints(node, "scan_input_axes", n_scans),
        _ints(node, "scan_input_directions", n_scans),
    )
    out_axes, out_reversed = (
        _ints(node, "scan_output_axes", n_out),
        _ints(node, "scan_output_directions", n_out),
    )
    rows_in = [
        np.moveaxis(scan, axis, 0)[:: -1 if reverse else 1]
        for scan, axis, reverse in zip(scans, in_axes, in_reversed, strict=True)
    ]
    scanned: list[list[Value]] = [[] for _ in range(n_out)]
    for row in zip(*rows_in, strict=True):
        results = run(body, [*states, *row, *captured])
        states = results[: len(states)]
        for rows, value in zip(scanned, results[len(states) :], strict=True):
            rows.append(value)
    stacked = [
        _stack(rows[:: -1 if reverse else 1], output, axis)
        for rows, output, axis, reverse in zip(
            scanned, body.outputs[len(states) :], out_axes, out_reversed, strict=True
        )
    ]
    return [*states, *stacked]


def _run_sequence_map(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    body = node.bodies["body"]
    formal = len(inputs) - _captures(node)
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


def _as_declared(formal: Node, value: np.generic) -> np.ndarray:
    """A loop's iteration number and condition are numbers, or lists of one number where its body
    declares them so.
    """
    kind = formal.type
    return np.asarray(value).reshape(
        (1,) if isinstance(kind, TensorType) and kind.rank == 1 else ()
    )


def _stack(rows: Sequence[Value], output: Node, axis: int) -> Value:
    if rows:
        return np.stack([np.asarray(row) for row in rows], axis)
    source = output.inputs[0]
    kind = output.graph.type_of(source) if output.graph is not None and source is not None else None
    if not isinstance(kind, TensorType) or kind.dtype is DType.UNDEFINED:
        raise UnsupportedError("a loop that never runs has a scan output of unknown type")
    shape = [dim if isinstance(dim, int) else 0 for dim in kind.shape or ()]
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 0)
    return np.empty(shape, kind.dtype.numpy)


def _captures(node: Node) -> int:
    return _int(node, "captures")


def _int(node: Node, name: str) -> int:
    value = node.attrs.get(name, 0)
    return value if isinstance(value, int) else 0


def _ints(node: Node, name: str, count: int) -> tuple[int, ...]:
    value = node.attrs.get(name)
    return tuple(int(item) for item in value) if isinstance(value, tuple) else (0,) * count


_CONTROL: Mapping[str, Callable[[Node, tuple[Value, ...], RunBody], Sequence[Value]]] = {
    "If": _run_if,
    "Branch": _run_branch,
    "Call": _run_branch,
    "Continuation": _run_branch,
    "Fail": _run_fail,
    "Loop": _run_loop,
    "Scan": _run_scan,
    "SequenceMap": _run_sequence_map,
    "com.microsoft::GreedySearch": greedy_search,
    "com.microsoft::Sampling": sampling,
    "com.microsoft::BeamSearch": beam_search,
}
