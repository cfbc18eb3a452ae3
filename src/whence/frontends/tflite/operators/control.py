"""Operators that call subgraphs: `IF`, `WHILE`, `CALL_ONCE`; and the variables that such models
keep (see `frontends/tflite/variables.py`).

Branches and loops have no state of their own: the present values of the variables that they use go
in with their other inputs, and those they assign come out with their other outputs. What
`CALL_ONCE` does is done here: it says what variables are before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.frontends.naming import quoted
from whence.frontends.origin_metadata import LOAD
from whence.frontends.tflite.emitter import Emitter
from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.variables import Key, resource_key
from whence.graph.graph import Graph
from whence.graph.merge import common, without_dims
from whence.graph.node import Ref
from whence.provenance import Reason, Tombstone, union_of
from whence.types import DType, TensorType, ValueType


def _if(call: OperatorCall) -> None:
    indices = [call.integer(f"{side}_subgraph_index") for side in ("then", "else")]
    inner = _Variables(call, indices)
    given = [call.needed(index) for index in range(1, call.n_inputs)]
    given += inner.values
    types = [call.type_of(ref) for ref in given]
    then, otherwise = (inner.body(index, types) for index in indices)
    first, second = then.output_types, otherwise.output_types
    if not len(first) == len(second) == call.n_outputs + len(inner.assigned):
        extra = len(inner.assigned)
        call.fail(
            f"its branches have {len(first) - extra} and {len(second) - extra} outputs, it has"
            f" {call.n_outputs}"
        )
    found = [common(a, b) for a, b in zip(first, second, strict=True)]
    bodies = {"then_branch": then, "else_branch": otherwise}
    made = call.emit_holder("If", [call.needed(0), *given], bodies, found, len(given))
    call.outputs_codes(made[: call.n_outputs])
    inner.assign(made[call.n_outputs :])


def _while(call: OperatorCall) -> None:
    """A loop whose body ends with the condition, which is also evaluated once before it."""
    inner = _Variables(call, [call.integer(f"{part}_subgraph_index") for part in ("cond", "body")])
    state = [call.needed(index) for index in range(call.n_inputs)]
    if call.n_outputs != len(state):
        call.fail(f"it has {len(state)} inputs and {call.n_outputs} outputs")
    asked = _condition(call, call.inline(call.integer("cond_subgraph_index"), state))
    # The question may have assigned something.
    state += inner.values
    start = [call.type_of(ref) for ref in state]
    body, types = _steady_body(call, start, inner)
    # A loop that never runs yields what it started with.
    found = [common(before, after) for before, after in zip(start, types, strict=True)]
    made = call.emit_holder("Loop", [None, asked, *state], {"body": body}, found)
    call.outputs_codes(made[: call.n_outputs])
    inner.assign(
        ref
        for key, ref in zip(inner.used, made[call.n_outputs :], strict=True)
        if key in inner.assigned
    )


class _Variables:
    """The variables that the subgraphs of an operator use."""

    def __init__(self, call: OperatorCall, subgraphs: Sequence[int]) -> None:
        self._call = call
        touched = call.scope.reading.use.of(*subgraphs)
        self.used = [key for key in touched.used if call.scope.variable(key) is not None]
        self.assigned = [key for key in self.used if key in touched.assigned]

    @property
    def values(self) -> list[Ref]:
        """What they are before the operator."""
        return [self._call.scope.present[key] for key in self.used]

    def body(self, index: int, types: Sequence[ValueType]) -> Graph:
        """A subgraph whose inputs have these types, those of the variables last."""

        def fill(body: Emitter, given: list[Ref]) -> list[Ref]:
            return self.around(body, given, lambda own: body.inline(index, own))

        return self._call.body(f"subgraph {index}", types, fill)

    def around(
        self,
        body: Emitter,
        given: list[Ref],
        fill: Callable[[list[Ref]], list[Ref]],
        *,
        every: bool = False,
    ) -> list[Ref]:
        """What `fill` makes of the operator's inputs, then the variables assigned, or all."""
        count = len(given) - len(self.used)
        body.scope.present.update(zip(self.used, given[count:], strict=True))
        made = fill(given[:count])
        return [
            *made,
            *(body.scope.present[key] for key in (self.used if every else self.assigned)),
        ]

    def assign(self, values: Iterable[Ref]) -> None:
        """They are these after the operator."""
        for key, ref in zip(self.assigned, values, strict=True):
            self._call.assign(key, ref)


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
        return emitter.op("Reshape", answer, emitter.ints())
    # onert, which alone accepts more than one and none, goes by the first, and by none does not go
    # on.
    if kind.elements == 0:
        return emitter.const(np.array(False))
    flat = emitter.op("Reshape", answer, emitter.ints(-1))
    return emitter.op("Gather", flat, emitter.scalar(0, DType.I64))


def _steady_body(
    call: OperatorCall, start: Sequence[ValueType], inner: _Variables
) -> tuple[Graph, list[ValueType]]:
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
            body = _body(call, wanted, inner)
        except (ModelError, UnsupportedError):
            # For sizes that it never sees, the body may be a contradiction.
            if wanted == loosest:
                raise
            changed = loosest
        else:
            found = body.output_types[1:]
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
                    "values that it carries from one iteration to the next change their rank or type"
                )
            body.clear()
        reading.used.clear()
        reading.used.update(used)
        reading.n_read = n_read
        del ledger.tombstones[graves:]
        wanted = changed


def _body(call: OperatorCall, state: Sequence[ValueType], inner: _Variables) -> Graph:
    def fill(body: Emitter, given: list[Ref]) -> list[Ref]:
        def iteration(own: list[Ref]) -> list[Ref]:
            made = body.inline(call.integer("body_subgraph_index"), own)
            return [_condition(body, body.inline(call.integer("cond_subgraph_index"), made)), *made]

        return inner.around(body, given[2:], iteration, every=True)

    return call.body("body", [TensorType(DType.I64, ()), TensorType(DType.BOOL, ()), *state], fill)


def _keeps(before: ValueType, after: ValueType) -> bool:
    """Is a value after an iteration surely of the type that the iteration was made for?"""
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
    """Runs the subgraph now, on nothing, for what it assigns."""
    reading, index = call.scope.reading, call.integer("init_subgraph_index")
    if call.scope.is_nested:
        call.unsupported("it stands in a branch or a loop")
    keys: list[Key] = []

    def fill(body: Emitter, _: list[Ref]) -> list[Ref]:
        if body.inline(index, []):
            call.fail("the subgraph that prepares the model has outputs")
        keys.extend(body.scope.present)
        return list(body.scope.present.values())

    body = call.body("initial values", [], fill)
    inside = [node for graph in body.nested() for node in graph]
    if any(node.op in ("Loop", "Scan") for node in inside):
        call.unsupported("the initial values of its variables are computed in a loop")
    sizes = [
        kind.nbytes if isinstance(kind, TensorType) else None
        for node in inside
        for kind in node.outputs
    ]
    stored = sum(buffer.nbytes for buffer in reading.model.buffers)
    if None in sizes or sum(size or 0 for size in sizes) > _MOST_INITIAL + 16 * stored:
        call.unsupported("the initial values of its variables take too much to compute")
    reading.initial.update(zip(keys, map(np.asarray, body.run([])), strict=True))
    done = union_of(node.origin for node in body)
    body.clear()
    rule = "it gives variables their initial values, before the first run"
    for source in sorted(done):
        stone = Tombstone(source, frozenset((source,)), Reason.FOLDED, LOAD, rule)
        call.scope.graph.ledger.add_tombstone(stone)
    call.add_own_tombstone(Reason.FOLDED, rule)


def _inlined(call: OperatorCall, option: str) -> None:
    """A call is the subgraph it names, and so is a composite, which has its own definition."""
    made = call.inline(call.integer(option), [call.needed(index) for index in range(call.n_inputs)])
    if len(made) != call.n_outputs:
        call.fail(f"its subgraph has {len(made)} outputs, it has {call.n_outputs}")
    call.outputs_codes(made)


_MOST_INITIAL = 1 << 28


def _handle(call: OperatorCall) -> str:
    known = call.constant_codes(0)
    if known is None or known.size != 1 or not isinstance(name := known.reshape(-1)[0], str):
        call.unsupported("which variable it means is computed while the model runs")
    return name


def _var_handle(call: OperatorCall) -> None:
    # A handle is the text of its name.
    name = np.array(resource_key(call.record), np.object_)
    call.output_known(0, name, "it says which variable others mean")


def _read_variable(call: OperatorCall) -> None:
    name, scope = _handle(call), call.scope
    is_first = name not in scope.reading.names
    value = scope.variable(name)
    if value is None:
        call.fail(f"variable {quoted(name)} is read before it has a value")
    if is_first and name in scope.reading.names and not scope.is_nested:
        # The first to read a variable is what it stands for.
        value = call.adopt(value)
    call.output_codes(0, value)


MAPPINGS: Mappings = {
    "ASSIGN_VARIABLE": lambda call: call.assign(_handle(call), call.needed(1)),
    "CALL": partial(_inlined, option="subgraph"),
    "CALL_ONCE": _call_once,
    "IF": _if,
    "READ_VARIABLE": _read_variable,
    "STABLEHLO_COMPOSITE": partial(_inlined, option="decomposition_subgraph_index"),
    "VAR_HANDLE": _var_handle,
    "WHILE": _while,
}
