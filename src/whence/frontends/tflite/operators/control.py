"""Operators that call subgraphs: `IF`, `WHILE`, `CALL_ONCE`; and the variables that such models
keep.

A graph of whence has no memory: a variable has, at every place of the graph, the value that was
last assigned to it, and at the beginning the one that `CALL_ONCE` gives it. So a run of the graph
is the first run of the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.frontends.naming import quoted
from whence.frontends.tflite.emitter import Emitter
from whence.frontends.tflite.mapping import Mapper, Mappings, OperatorCall
from whence.graph.graph import Graph
from whence.graph.merge import common, without_dims
from whence.graph.node import Ref
from whence.types import DType, TensorType, ValueType


def _results(graph: Graph) -> list[ValueType]:
    return [graph.type_of(ref) for node in graph.outputs if (ref := node.inputs[0]) is not None]


def _if(call: OperatorCall) -> None:
    given = [call.needed(index) for index in range(1, call.n_inputs)]
    types = [call.type_of(ref) for ref in given]
    then = call.subgraph(call.integer("then_subgraph_index"), types)
    otherwise = call.subgraph(call.integer("else_subgraph_index"), types)
    first, second = _results(then), _results(otherwise)
    if not len(first) == len(second) == call.n_outputs:
        call.fail(
            f"its branches have {len(first)} and {len(second)} outputs, it has {call.n_outputs}"
        )
    found = [common(a, b) for a, b in zip(first, second, strict=True)]
    bodies = {"then_branch": then, "else_branch": otherwise}
    for index, ref in enumerate(
        call.emit_holder("If", [call.needed(0), *given], bodies, found, len(given))
    ):
        call.output_codes(index, ref)


def _while(call: OperatorCall) -> None:
    """A loop whose body ends with the question whether to go on; the question is asked once before
    it, too.
    """
    state = [call.needed(index) for index in range(call.n_inputs)]
    if call.n_outputs != len(state):
        call.fail(f"it has {len(state)} inputs and {call.n_outputs} outputs")
    asked = _condition(call, call.inline(call.integer("cond_subgraph_index"), state))
    start = [call.type_of(ref) for ref in state]
    body, types = _steady_body(call, start)
    # A loop that never turns yields what it started with.
    found = [common(before, after) for before, after in zip(start, types, strict=True)]
    for index, ref in enumerate(
        call.emit_holder("Loop", [None, asked, *state], {"body": body}, found)
    ):
        call.output_codes(index, ref)


def _condition(emitter: Emitter, found: Sequence[Ref]) -> Ref:
    if len(found) != 1 or emitter.tensor_type_of(found[0]).dtype is not DType.BOOL:
        emitter.fail(
            "the subgraph that should say whether to go on does not answer with one truth value"
        )
    answer = found[0]
    kind = emitter.tensor_type_of(answer)
    if kind.shape == ():
        return answer
    if kind.elements == 1:
        return emitter.emit("Reshape", [answer, emitter.ints()])
    # onert, which alone accepts more than one, goes by the first.
    flat = emitter.emit("Reshape", [answer, emitter.ints(-1)])
    return emitter.emit("Gather", [flat, emitter.const(np.array(0, np.int64))])


def _steady_body(call: OperatorCall, start: Sequence[ValueType]) -> tuple[Graph, list[ValueType]]:
    """The body, made for values that keep their shape. Those that do not are taken to have any
    size, then all are.
    """
    wanted = list(start)
    loosest = [without_dims(kind) for kind in start]
    reading = call.scope.reading
    ledger = call.scope.graph.ledger
    while True:
        used, graves, n_read = set(reading.used), len(ledger.tombstones), reading.n_read
        try:
            body = _body(call, wanted)
        except (ModelError, UnsupportedError):
            # For sizes that it never sees, the body may be a contradiction.
            if wanted == loosest:
                raise
            changed = loosest
        else:
            found = _results(body)[1:]
            if len(found) != len(wanted):
                call.fail(f"its body has {len(found)} outputs for {len(wanted)} values")
            if all(_keeps(before, after) for before, after in zip(wanted, found, strict=True)):
                return body, found
            changed = [
                (
                    before
                    if _keeps(before, after)
                    else _looser(before, after)
                    if wanted == list(start)
                    else without_dims(before)
                )
                for before, after in zip(wanted, found, strict=True)
            ]
            if changed == wanted:
                call.unsupported(
                    "values that it carries from turn to turn change their number of dimensions or"
                    " their type"
                )
            for node in reversed(body):
                body.remove(node)
        reading.used.clear()
        reading.used.update(used)
        reading.n_read = n_read
        del ledger.tombstones[graves:]
        wanted = changed


def _body(call: OperatorCall, state: Sequence[ValueType]) -> Graph:
    def fill(body: Emitter, given: list[Ref]) -> list[Ref]:
        made = body.inline(call.integer("body_subgraph_index"), given[2:])
        return [_condition(body, body.inline(call.integer("cond_subgraph_index"), made)), *made]

    return call.body("body", [TensorType(DType.I64, ()), TensorType(DType.BOOL, ()), *state], fill)


def _keeps(before: ValueType, after: ValueType) -> bool:
    """Is a value after a turn surely of the type that the turn was made for?"""
    if (
        not isinstance(before, TensorType)
        or not isinstance(after, TensorType)
        or before.dtype is not after.dtype
    ):
        return before == after
    if before.shape is None:
        return True
    return (
        after.shape is not None
        and len(after.shape) == len(before.shape)
        and all(
            old is None or old == new for old, new in zip(before.shape, after.shape, strict=True)
        )
    )


def _looser(before: ValueType, after: ValueType) -> ValueType:
    """What both are, if they have as many dimensions."""
    both = common(before, after)
    return both if isinstance(both, TensorType) and both.shape is not None else without_dims(before)


def _call_once(call: OperatorCall) -> None:
    made = call.inline(call.integer("init_subgraph_index"), [])
    if made:
        call.fail("the subgraph that prepares the model has outputs")


def _inlined(option: str) -> Mapper:
    """A call is the subgraph it names. So is a composite, a named operation that brings its own
    definition.
    """

    def mapper(call: OperatorCall) -> None:
        made = call.inline(
            call.integer(option), [call.needed(index) for index in range(call.n_inputs)]
        )
        if len(made) != call.n_outputs:
            call.fail(f"its subgraph has {len(made)} outputs, it has {call.n_outputs}")
        for index, ref in enumerate(made):
            call.output_codes(index, ref)

    return mapper


def _handle(call: OperatorCall) -> str:
    known = call.constant_codes(0)
    if known is None or known.size != 1 or not isinstance(name := known.reshape(-1)[0], str):
        call.unsupported("which variable it means is computed while the model runs")
    return name


def _var_handle(call: OperatorCall) -> None:
    container, name = (str(call.options.get(key) or "") for key in ("container", "shared_name"))
    # A handle is the text of its name.
    call.output_constant(0, np.array(f"{container}/{name}", np.object_))


def _read_variable(call: OperatorCall) -> None:
    name = _handle(call)
    value = call.scope.variables.get(name)
    if value is None:
        call.fail(f"variable {quoted(name)} is read before it has a value")
    call.output_codes(0, value)


def _assign_variable(call: OperatorCall) -> None:
    value = call.needed(1)
    call.scope.variables[_handle(call)] = value
    # Stands for the operator: moving the value to its place is its work, and the next run would
    # need what it computed.
    moved = call.emit("Identity", [value])
    if call.scope.value_of(value) is None:
        call.keep(moved)


MAPPINGS: Mappings = {
    "ASSIGN_VARIABLE": _assign_variable,
    "CALL": _inlined("subgraph"),
    "CALL_ONCE": _call_once,
    "IF": _if,
    "READ_VARIABLE": _read_variable,
    "STABLEHLO_COMPOSITE": _inlined("decomposition_subgraph_index"),
    "VAR_HANDLE": _var_handle,
    "WHILE": _while,
}
