"""The bodies of loops and conditions, and continuations, compiled: each is a program of its own.

A loop's body is compiled for the shapes that it is first run with, and for open sizes when it runs
with others; a continuation (`passes/control/split_at_run_time_sizes.py`) for open sizes at once.
What a loop hands on unchanged, or captures, and the model holds as a constant, is a constant in the
compiled body as well, packed as kernels want it; and what is handed on unchanged is not copied from
iteration to iteration. All iterations of a loop run in one call, where its engine can
(`backends/cpu/native_iterations.py`). Where shapes change in ways that no compilation serves, the
interpreter does what is left: compiling each time would take longer than running ever does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whence.building.build_open import CallShapes, build_open
from whence.building.prepare import prepare_and_build
from whence.errors import ModelError, UnsupportedError
from whence.graph import Graph, Node
from whence.graph.interpreter import RunBody, run_body
from whence.graph.iterations import ITERATING, Iterations, loop_heads
from whence.graph.state import BOUNDARY
from whence.ops.binding import Port
from whence.ops.definition import OpClass, Value
from whence.ops.open_dimensions import open_dimensions
from whence.passes.control.split_at_run_time_sizes import CONTINUATION
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.runtime.body_graph import KnownInputs, bound, known_inputs, passed_on
from whence.runtime.executable import Executable
from whence.runtime.iteration_roles import BodyRoles, handed_on, roles_of
from whence.types import TensorType, ValueType

if TYPE_CHECKING:
    from whence.building.program import Program
    from whence.runtime.engine import Engine
    from whence.runtime.profiler import Profiler

_WORTH_IT = OpClass.CONV | OpClass.MATMUL | OpClass.RECURRENT | OpClass.NORM | OpClass.POOL
_FEWEST = 8
_MOST_COMPILATIONS = 8
_ENTERED = "it makes what has its size from the run; its iterations are native code"
_SHORT = "its body is too short to be worth compiling"


class IterationBody(NamedTuple):
    """The body of a loop whose sizes are known, compiled for them."""

    program: Program
    given: Sequence[int]
    """Which of the body's inputs the program is given,"""
    dimensions: Sequence[np.ndarray]
    """and what behind them, whose sizes are those of dimensions."""
    made: Sequence[int]
    """Which of the body's outputs the program makes."""
    roles: BodyRoles


class Bodies:
    """Compiled bodies of a program's control operators, for any number of runs at a time."""

    def __init__(self, graph: Graph, engine: Engine) -> None:
        """`graph` is the program's, or that of its template: bodies serve all its sizes then."""
        self._graph = graph
        self._engine = engine
        self._lock = threading.Lock()
        self._known: dict[tuple[int, str], Body | None] = {}

    def runner(
        self, node: Node, sizes: Mapping[str, int], profiler: Profiler | None = None
    ) -> RunBody:
        """What runs the bodies of this operator, in a program for these sizes. The steps of a
        continuation are noted in the profile; those of a loop's body are the loop's, unless its
        iterations run in native code (`run_iterations`).
        """
        if profiler is not None and (node.op != CONTINUATION or not profiler.notes_parts):
            profiler = None
        names = {id(body): name for name, body in node.bodies.items()}

        def run(body: Graph, feeds: Sequence[Value]) -> list[Value]:
            found = self.body(node.id, names[id(body)])
            return run_body(body, feeds) if found is None else found.run(feeds, sizes, profiler)

        return run

    def run_iterations(
        self, iterations: Iterations, sizes: Mapping[str, int], profiler: Profiler | None = None
    ) -> list[Value] | None:
        """All iterations of a loop in native code; `None` where that cannot be. The steps of the
        body are noted in the profile.
        """
        if iterations.is_empty:
            return None
        found = self.body(iterations.node.id)
        if profiler is not None and not profiler.notes_parts:
            profiler = None
        return None if found is None else found.run_iterations(iterations, sizes, profiler)

    def why(self, node: int) -> str:
        """Why a loop that ran is a reference step; empty for one that did not, or is none."""
        found = self._known.get((node, "body"))
        if found is None:
            return _SHORT if (node, "body") in self._known else ""
        return found.why

    def body(self, node_id: int, name: str = "body") -> Body | None:
        """One of an operator's bodies; `None` where it is not worth compiling."""
        node, key = self._graph[node_id], (node_id, name)
        with self._lock:
            if key not in self._known:
                body, found = node.bodies[name], None
                if node.op == CONTINUATION or _is_worth_it(node, body):
                    found = Body(node, body, known_inputs(self._graph, node, body), self._engine)
                self._known[key] = found
            return self._known[key]


class Body:
    """One body: which inputs the compiled program is given, and where outputs come from."""

    def __init__(self, node: Node, body: Graph, known: KnownInputs, engine: Engine) -> None:
        constants = known.constants
        self.why = ""
        """Why iterations of its loop take time in Python."""
        self._body = body
        same = handed_on(node, body, passed_on(body))
        self._passed_on = {index: place for index, place in same.items() if place not in constants}
        self._fixed = {
            index: constants[place] for index, place in same.items() if place in constants
        }
        self._given = [
            place
            for place in range(len(body.inputs))
            if place not in constants and place not in known.sizes
        ]
        self._dimensions = known.dimensions
        self._made = [
            index
            for index in range(len(body.outputs))
            if index not in self._passed_on and index not in self._fixed
        ]
        self._roles = (
            roles_of(node, body, self._given, self._made) if node.op in ITERATING else None
        )
        graph = bound(body, known, self._made)
        ports = [Port(node.name, node.type) for node in graph.inputs]

        def built(shapes: CallShapes) -> Program:
            return prepare_and_build(fix_input_shapes(graph.copy(), shapes), engine.backend)

        def specialise(shapes: Mapping[str, Sequence[int]]) -> Program:
            # The sizes of a loop's body often stay what they are first, those of a continuation
            # never.
            is_fixed = node.op != CONTINUATION and not self._executable.compilations
            if is_fixed or not engine.backend.opens_dimensions:
                return built(shapes)
            try:
                opened = build_open(lambda closed: open_dimensions(ports, shapes, closed)[1], built)
                return opened[0]
            except (ModelError, UnsupportedError):
                # What cannot be done says so in the numbers of this run.
                return built(shapes)

        self._executable = Executable(ports, engine, specialise, lambda: graph)

    def run(
        self, feeds: Sequence[Value], sizes: Mapping[str, int], profiler: Profiler | None
    ) -> list[Value]:
        given = self._inputs(feeds, sizes)
        if not self._serves(given):
            return run_body(self._body, feeds)
        return self._results(
            feeds, self._executable.run_part(given, profiler) if self._made else ()
        )

    def run_iterations(
        self, iterations: Iterations, sizes: Mapping[str, int], profiler: Profiler | None
    ) -> list[Value] | None:
        assert self._roles is not None
        feeds = iterations.feeds(0, iterations.carried)
        given = self._inputs(feeds, sizes)
        if not self._serves(given):
            return None
        found = self._executable.run_iterations(given, self._roles, iterations, profiler)
        if isinstance(found, str):
            self.why = found
            return None
        self.why = _ENTERED
        made: list[Value] = [None] * len(self._made)
        for (_, index), value in zip(self._roles.carried, found.carried, strict=True):
            made[index] = value
        results = self._results(feeds, made)[iterations.is_counted :]
        return iterations.results(results[: len(iterations.carried)], found.scanned)

    def iteration_body(
        self, node: Node, types: Sequence[ValueType | None], sizes: Mapping[str, int]
    ) -> IterationBody | None:
        """For operands of these types of a Loop or Scan; `None` where a size is not known."""
        assert self._roles is not None
        first, _ = loop_heads(node)
        shapes = []
        for index, place in enumerate(self._given):
            kind = self._body.inputs[place].type if place < first else types[place]
            shape = kind.static_shape if isinstance(kind, TensorType) else None
            if shape is None:
                return None
            shapes.append(shape[1:] if index in self._roles.rows else shape)
        dimensions = [np.empty(sizes[name], np.uint8) for name in self._dimensions]
        names = [port.name for port in self._executable.inputs]
        program = self._executable.prepare(
            dict(zip(names, [*shapes, *(each.shape for each in dimensions)], strict=True))
        )
        return IterationBody(program, self._given, dimensions, self._made, self._roles)

    def _inputs(self, feeds: Sequence[Value], sizes: Mapping[str, int]) -> list[Value]:
        """What the compiled program is given."""
        dimensions = [np.empty(sizes[name], np.uint8) for name in self._dimensions]
        return [*(feeds[place] for place in self._given), *dimensions]

    def _serves(self, given: Sequence[Value]) -> bool:
        """Is there a program for inputs of these shapes, or may there be one?"""
        executable = self._executable
        return executable.compilations < _MOST_COMPILATIONS or executable.serves(given)

    def _results(self, feeds: Sequence[Value], outputs: Iterable[Value]) -> list[Value]:
        """The outputs of the body, given those of the compiled program."""
        made = iter(outputs)
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
