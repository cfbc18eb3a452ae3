"""The bodies of loops and conditions, and continuations, compiled: each is a program of its own.

A loop's body is compiled for the shapes that it is first run with, and for open sizes when it runs
with others; a continuation (`passes/control/split_at_run_time_sizes.py`) for open sizes at once.
What a loop hands on unchanged, or captures, and the model holds as a constant, is a constant in the
compiled body as well, packed as kernels want it; and what is handed on unchanged is not copied from
turn to turn. Where shapes change in ways that no compilation serves, the interpreter does what is
left: compiling each time would take longer than running ever does.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from whence.building.build_open import CallShapes, build_open
from whence.building.prepare import prepare_and_build
from whence.errors import ModelError, UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Graph, Node, Ref
from whence.graph.interpreter import RunBody, run_body
from whence.graph.state import BOUNDARY
from whence.ops.binding import Port
from whence.ops.definition import OpClass, Value
from whence.ops.open_dimensions import open_dimensions
from whence.passes.control.split_at_run_time_sizes import CONTINUATION
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.runtime.executable import Executable
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.building.program import Program
    from whence.runtime.engine import Engine
    from whence.runtime.profiler import Profiler

_WORTH_IT = OpClass.CONV | OpClass.MATMUL | OpClass.RECURRENT | OpClass.NORM | OpClass.POOL
_FEWEST = 8
_MOST_COMPILATIONS = 8


class Bodies:
    """The compiled bodies of one program's control operators. Any number of runs may use them at
    the same time.
    """

    def __init__(self, graph: Graph, engine: Engine) -> None:
        self._graph = graph
        self._engine = engine
        self._lock = threading.Lock()
        self._known: dict[tuple[int, str], _Body | None] = {}

    def runner(self, node: Node, profiler: Profiler | None = None) -> RunBody:
        """What runs the bodies of this operator. The steps of a continuation are noted in the
        profile; those of a loop's body are the loop's.
        """
        if node.op != CONTINUATION:
            profiler = None
        names = {id(body): name for name, body in node.bodies.items()}

        def run(body: Graph, feeds: Sequence[Value]) -> list[Value]:
            found = self._body(node, names[id(body)])
            return run_body(body, feeds) if found is None else found.run(feeds, profiler)

        return run

    def _body(self, node: Node, name: str) -> _Body | None:
        key = (node.id, name)
        with self._lock:
            if key not in self._known:
                body = node.bodies[name]
                is_open = node.op == CONTINUATION
                self._known[key] = (
                    _Body(body, _constants(self._graph, node, body), self._engine, is_open=is_open)
                    if is_open or _is_worth_it(node, body)
                    else None
                )
            return self._known[key]


class _Body:
    """One body: which of its inputs are given to the compiled program, and where its outputs come
    from.
    """

    def __init__(
        self,
        body: Graph,
        constants: Mapping[int, np.ndarray],
        engine: Engine,
        *,
        is_open: bool = False,
    ) -> None:
        """With `is_open`, already the first compilation is for open sizes."""
        self._body = body
        self._passed_on = {
            index: place for index, place in _passed_on(body).items() if place not in constants
        }
        self._fixed = {
            index: constants[place]
            for index, place in _passed_on(body).items()
            if place in constants
        }
        self._given = [place for place in range(len(body.inputs)) if place not in constants]
        self._made = [
            index
            for index in range(len(body.outputs))
            if index not in self._passed_on and index not in self._fixed
        ]
        graph = _bound(body, constants, self._made)
        ports = [Port(node.name, node.type) for node in graph.inputs]

        def built(shapes: CallShapes) -> Program:
            return prepare_and_build(fix_input_shapes(graph.copy(), shapes), engine.backend)

        def specialise(shapes: Mapping[str, Sequence[int]]) -> Program:
            is_first = not self._executable.compilations
            if not engine.backend.opens_dimensions or (is_first and not is_open):
                return built(shapes)
            try:
                opened = build_open(lambda closed: open_dimensions(ports, shapes, closed)[1], built)
                return opened[0]
            except (ModelError, UnsupportedError):
                # What cannot be done says so in the numbers of this run.
                return built(shapes)

        self._executable = Executable(ports, engine, specialise, lambda: graph)

    def run(self, feeds: Sequence[Value], profiler: Profiler | None) -> list[Value]:
        given = [feeds[place] for place in self._given]
        executable = self._executable
        if executable.compilations >= _MOST_COMPILATIONS and not executable.serves(given):
            return run_body(self._body, feeds)
        made = iter(executable.run_part(given, profiler) if self._made else ())
        return [
            feeds[self._passed_on[index]]
            if index in self._passed_on
            else self._fixed[index]
            if index in self._fixed
            else next(made)
            for index in range(len(self._body.outputs))
        ]


def _is_worth_it(node: Node, body: Graph) -> bool:
    """A branch is run once for a run of the model, a loop's body many times."""
    operators = sum(count for op, count in body.op_counts.items() if op not in BOUNDARY)
    return bool(body.op_classes & _WORTH_IT) or (
        not node.is_a("If", "Branch") and operators >= _FEWEST
    )


def _passed_on(body: Graph) -> dict[int, int]:
    """By output: the input that it hands on as it is."""
    places = {node.id: place for place, node in enumerate(body.inputs)}
    return {
        index: places[ref.node]
        for index, node in enumerate(body.outputs)
        for ref in node.inputs
        if ref is not None and ref.node in places
    }


def _constants(graph: Graph, node: Node, body: Graph) -> dict[int, np.ndarray]:
    """By input of the body: what it is in every turn, where the model holds that as a constant."""
    captures = node.attrs.get("captures", 0)
    n_captures = captures if isinstance(captures, int) else 0
    found: dict[int, np.ndarray] = {}
    # Captures are the last inputs of the operator and of the body.
    for back in range(1, n_captures + 1):
        value = _known_number(graph, node.inputs[len(node.inputs) - back])
        if value is not None:
            found[len(body.inputs) - back] = value
    if node.op == "Loop":
        handed_on = _passed_on(body)
        for place in range(2, len(body.inputs) - n_captures):
            value = graph.const_value(node.input(place))
            # The body's first output is the condition, its inputs begin with the turn and the
            # condition.
            if value is not None and handed_on.get(place - 1) == place:
                found[place] = value
    return found


def _known_number(graph: Graph, ref: Ref | None) -> np.ndarray | None:
    """A constant, or what the sizes that the program is for decide."""
    value = graph.known_value(ref)
    if value is None or ref is None or value.dtype != np.object_:
        return value
    kind = graph.type_of(ref)
    assert isinstance(kind, TensorType)
    return None if any(map(is_symbolic, value.flat)) else value.astype(kind.dtype.numpy)


def _bound(body: Graph, constants: Mapping[int, np.ndarray], made: Sequence[int]) -> Graph:
    """A graph of its own that does what the body does, with these inputs fixed and only these
    outputs.
    """
    whole = body.copy()
    fixed = {
        node.id: constants[place] for place, node in enumerate(whole.inputs) if place in constants
    }
    names = {node.id: f"in{place}" for place, node in enumerate(whole.inputs)} | {
        node.id: f"out{place}" for place, node in enumerate(whole.outputs)
    }
    kept = {whole.outputs[index].id for index in made}
    graph = Graph(whole.name, whole.ledger, whole.inference)
    for node in whole:
        if node.op == "Output" and node.id not in kept:
            continue
        is_fixed = node.id in fixed
        copy = Node(
            node.id,
            "Const" if is_fixed else node.op,
            node.inputs,
            node.outputs,
            node.attrs,
            name=names.get(node.id, node.name),
            origin=node.origin,
            value=fixed.get(node.id, node.value),
            bodies=node.bodies,
            flags=node.flags,
        )
        graph._adopt(copy)
    graph._inputs = {node_id: None for node_id in whole._inputs if node_id not in fixed}
    graph._outputs = {node_id: None for node_id in whole._outputs if node_id in kept}
    return graph
