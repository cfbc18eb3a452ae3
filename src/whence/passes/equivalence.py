"""Does a graph still compute the same? Outputs on random inputs, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from whence.errors import GraphError, WhenceError
from whence.graph import Graph, Node
from whence.graph.copying import at_hand
from whence.graph.state import initial_state
from whence.ops.definition import OpClass, Value
from whence.ops.registry import classes_of
from whence.passes.operands import float_info
from whence.passes.shapes.index_limits import index_limits
from whence.types import DType, OptionalType, TensorType

_SYMBOLIC_SIZE = 2
_MOST_BYTES = 1 << 30
_TOLERANCE = 1e-4
# A rewrite that saves one rounding to half precision moves the result by about the last place.
_HALF_TOLERANCE = 5e-3


class EquivalenceProbe:
    """Random inputs for a graph and the outputs it gave at the start. A graph that cannot run on
    them is not compared.
    """

    def __init__(self, graph: Graph, seed: int = 0) -> None:
        self.inputs: dict[str, Value] = {}
        self.expected: list[Value] = []
        self.tolerance = _HALF_TOLERANCE if computes_in_half(graph) else _TOLERANCE
        graph = at_hand(graph)
        self.why_not = _why_not(graph)
        if self.why_not:
            return
        self.inputs = random_inputs(graph, seed)
        try:
            self.expected = results_of(graph, self.inputs)
        except WhenceError as error:
            self.why_not = str(error)

    @property
    def comparable(self) -> bool:
        return not self.why_not

    def compare(
        self, graph: Graph, pass_name: str, tolerance: float | None = None
    ) -> EquivalenceProbe:
        """Raise `GraphError` naming the pass when an output differs by more than the tolerance,
        relative to its largest magnitude.
        """
        limit = self.tolerance if tolerance is None else tolerance
        for name, was, now in self._was_and_is(graph, pass_name):
            gap = difference(was, now)
            if not gap <= limit:
                raise GraphError(
                    f"pass '{pass_name}' changed {name} by {gap:.3g} of its largest magnitude"
                )
        return self

    def renewed(self, graph: Graph, pass_name: str) -> EquivalenceProbe:
        """A probe of the graph as it is now. It must still run, and give outputs of the same types
        and shapes.
        """
        for name, was, now in self._was_and_is(graph, pass_name):
            before, after = (
                TensorType.of(value) if isinstance(value, np.ndarray) else type(value)
                for value in (was, now)
            )
            if before != after:
                raise GraphError(f"pass '{pass_name}' made {name} a {after}, it was a {before}")
        return EquivalenceProbe(graph) if self.comparable else self

    def _was_and_is(self, graph: Graph, pass_name: str) -> Iterable[tuple[str, Value, Value]]:
        """Every output by name, as it was at the start and as it is now; none where they are not
        compared.
        """
        if not self.comparable:
            return ()
        try:
            results = results_of(at_hand(graph), self.inputs)
        except WhenceError as error:
            raise GraphError(
                f"pass '{pass_name}' left a graph that does not run any more: {error}"
            ) from error
        if len(results) != len(self.expected):
            raise GraphError(
                f"pass '{pass_name}' left {len(results)} outputs, there were {len(self.expected)}"
            )
        return zip(_names(graph), self.expected, results, strict=True)


def results_of(graph: Graph, inputs: Mapping[str, Value]) -> list[Value]:
    """The outputs; of a graph with state those of two runs that follow each other, and the state
    after them.
    """
    if not graph.variables:
        return graph.run(inputs)
    state = initial_state(graph)
    first, second = (graph.run(inputs, state=state) for _ in range(2))
    return [*first, *second, *(state[node.name] for node in graph.variables)]


def _names(graph: Graph) -> list[str]:
    """What messages call the results above."""
    outputs = [f"output {node.name!r}" for node in graph.outputs]
    if not graph.variables:
        return outputs
    again = [f"{name} of a second run" for name in outputs]
    return [*outputs, *again, *(f"variable {node.name!r}" for node in graph.variables)]


def _why_not(graph: Graph) -> str:
    """Why running the graph on random inputs would prove nothing, or the empty string."""
    if draws_random_numbers(graph):
        return "the model draws random numbers"
    sizes = [node.type.nbytes or 0 for node in graph.inputs if isinstance(node.type, TensorType)]
    return f"its inputs take {sum(sizes) / 1e9:.1f} GB" if sum(sizes) > _MOST_BYTES else ""


def draws_random_numbers(graph: Graph) -> bool:
    """Would two runs differ?"""
    return any(
        _draws(nested, node)
        for nested in graph.nested()
        if OpClass.RANDOM & nested.op_classes
        for node in nested
    )


def _draws(graph: Graph, node: Node) -> bool:
    if OpClass.RANDOM not in classes_of(node.op):
        return False
    if node.op != "Dropout":
        return True
    # Dropout only draws in training.
    training = node.operand("training_mode")
    value = graph.const_value(training)
    return training is not None and (value is None or bool(value.reshape(-1)[0]))


def computes_in_half(graph: Graph) -> bool:
    """Is any value in half precision, or rounded to it?"""
    half = (DType.F16, DType.BF16)
    nodes = (node for nested in graph.nested() for node in nested)
    return any(
        node.op == "RoundTo"
        or any(isinstance(kind, TensorType) and kind.dtype in half for kind in node.outputs)
        for node in nodes
    )


def difference(expected: Value, actual: Value) -> float:
    """The largest difference relative to the largest magnitude expected; infinite when types,
    shapes or non-finite values differ.

    Integers are compared exactly: the result is the largest difference itself. An index off by one
    among thousands is wrong.
    """
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(expected) != len(actual):
            return float("inf")
        return max(
            (difference(was, now) for was, now in zip(expected, actual, strict=True)), default=0.0
        )
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or expected.keys() != actual.keys():
            return float("inf")
        return difference(
            np.asarray(list(expected.values())), np.asarray([actual[key] for key in expected])
        )
    if expected is None:
        return 0.0 if actual is None else float("inf")
    was, now = np.asarray(expected), np.asarray(actual)
    if was.shape != now.shape or was.dtype != now.dtype:
        return float("inf")
    if was.size == 0:
        return 0.0
    if was.dtype.kind not in "fiuc" and DType.of(was) in (DType.STRING, DType.BOOL):
        return 0.0 if bool(np.all(was == now)) else float("inf")
    wide = np.complex128 if was.dtype.kind == "c" else np.float64
    left, right = was.astype(wide), now.astype(wide)
    finite = np.isfinite(left)
    if not np.array_equal(finite, np.isfinite(right)) or not np.array_equal(
        left[~finite], right[~finite], equal_nan=True
    ):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(left[finite]).max())
    gap = float(np.abs(left[finite] - right[finite]).max())
    if was.dtype.kind in "iu":
        return gap
    # Below the smallest normal number a type has no relative precision left to compare.
    tiny = float(float_info(was.dtype).tiny) if was.dtype.kind != "c" else 0.0
    return gap / max(scale, tiny) if scale > 0 else gap


def random_inputs(graph: Graph, seed: int = 0) -> dict[str, Value]:
    """Plausible inputs: normal floats, small non-negative integers, symbolic dimensions of one
    size; indices that lead into the axis they are for.
    """
    rng, limits = np.random.default_rng(seed), index_limits(graph)
    values = {node.name: _random(node.type, rng) for node in graph.inputs}
    for node in graph.inputs:
        if node.id in limits:
            values[node.name] = as_indices(values[node.name], limits[node.id])
    return values


def as_indices(value: Value, limit: int) -> Value:
    """Made-up numbers as indices into an axis of that length."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
        return value
    return (np.abs(value).astype(np.int64) % min(limit, 2)).astype(value.dtype)


def _random(kind: object, rng: np.random.Generator) -> Value:
    if isinstance(kind, OptionalType):
        return None
    if not isinstance(kind, TensorType):
        return []
    shape = tuple(dim if isinstance(dim, int) else _SYMBOLIC_SIZE for dim in kind.shape or ())
    if kind.dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if kind.dtype is DType.STRING:
        return np.full(shape, "text", dtype=object)
    if kind.dtype.is_integer:
        return rng.integers(0, 2, shape).astype(kind.dtype.numpy)
    return rng.standard_normal(shape).astype(kind.dtype.numpy)
