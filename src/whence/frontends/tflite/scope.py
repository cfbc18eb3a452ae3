"""Making nodes while a file is read: the graph under construction, what is known of its values, and
the subgraphs read into it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.frontends.carried import Passage
from whence.frontends.naming import quoted
from whence.frontends.tflite.quantisation import quantisation_of
from whence.frontends.tflite.records import (
    ModelRecord,
    OperatorRecord,
    SubgraphRecord,
    TensorRecord,
)
from whence.frontends.tflite.tensors import array_of, declared_type, dtype_of
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.ops.definition import Attr, Call, TypeQuery
from whence.ops.inference import Inference
from whence.ops.registry import evaluate
from whence.provenance import NO_ORIGIN, Ledger, Origin
from whence.types import DType, TensorType, ValueType

_SMALL = 64
# Subgraphs that are called from several places are read once for each; honest ones a few times.
_MOST_CALLS = 4
_MOST_OPERATORS = 4_000
_MOST_COPIES = 16
_MOST_COPIED = 1 << 26
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Place:
    """One operator of the file as the ledger knows it."""

    name: str
    number: int
    """Its number among the source operators; 0 when it stems from several, or from operators of an
    earlier file.
    """
    origin: Origin
    folded: Origin = NO_ORIGIN
    """The part of the origin that left no run-time work in the operator, where the file says so."""


@dataclass(slots=True)
class Reading:
    """What all subgraphs of one file share while it is read."""

    model: ModelRecord
    ledger: Ledger
    inference: Inference
    places: Sequence[Sequence[Place]]
    """By subgraph and position."""
    add_operator: Callable[[SubgraphScope, OperatorRecord, Place], None]
    """Maps one operator; mapping one that holds subgraphs comes back here, so it is handed in."""
    history: Mapping[int, Passage] = field(default_factory=dict)
    """How operators of the first file became part of those of this one, where the file says so."""
    trust_shapes: bool = True
    """False when given input shapes differ from the file's, so that its statements about other
    shapes are void too.
    """
    used: set[int] = field(default_factory=set)
    """The source operators that have been read as the node of their number."""
    n_read: int = 0
    n_copied: int = 0
    """Bytes of constants that were stored anew in another arrangement."""
    arrays: dict[tuple[int, int], np.ndarray | None] = field(default_factory=dict)

    def array(self, subgraph: int, tensor: int) -> np.ndarray | None:
        """The constant that a tensor is, decoded once."""
        key = (subgraph, tensor)
        if key not in self.arrays:
            self.arrays[key] = array_of(self.model, self.model.subgraphs[subgraph].tensors[tensor])
        return self.arrays[key]

    def copied(self, n_bytes: int) -> None:
        """Note a copy of stored data. A thousand tensors may share one buffer; a copy for each is
        more than the file has bytes for.
        """
        self.n_copied += n_bytes
        limit = max(
            _MOST_COPIED, _MOST_COPIES * sum(buffer.nbytes for buffer in self.model.buffers)
        )
        if self.n_copied > limit:
            raise UnsupportedError(
                "its operators share stored data so often that a copy for each takes more than"
                f" {limit} bytes"
            )

    def claim(self, number: int) -> int:
        """The id for the node that stands for a source operator: its number, the first time it is
        read; else 0.
        """
        if number in self.used:
            return 0
        self.used.add(number)
        return number


class GraphScope:
    """A graph under construction. Small integers that follow from shapes are worked out on the way:
    shapes that a file computes are then known.
    """

    def __init__(self, reading: Reading, graph: Graph) -> None:
        self.reading = reading
        self.graph = graph
        self.variables: dict[str, Ref] = {}
        """The present value of each resource variable, by name."""
        self._known: dict[Ref, np.ndarray] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Ref] = {}

    def const(self, array: np.ndarray, name: str = "") -> Ref:
        """A constant; small unnamed ones are shared."""
        small = not name and array.nbytes <= _SMALL and array.dtype != np.object_
        key = (str(array.dtype), array.shape, array.tobytes()) if small else None
        if key is not None and key in self._shared:
            return self._shared[key]
        ref = self.graph.prepend(
            Node(self.graph.new_id(), "Const", (), (TensorType.of(array),), value=array, name=name)
        ).ref()
        if key is not None:
            self._shared[key] = ref
        return ref

    def value_of(self, ref: Ref) -> np.ndarray | None:
        """The value, if it is a constant or follows from shapes."""
        node = self.graph.get(ref.node)
        if node is not None and node.is_const:
            return node.value
        return self._known.get(ref)

    def learn(self, ref: Ref, value: np.ndarray) -> None:
        self._known[ref] = value

    def infer(
        self,
        op: str,
        attrs: Mapping[str, Attr],
        types: Sequence[ValueType | None],
        values: Sequence[np.ndarray | None],
        count: int,
    ) -> tuple[ValueType, ...]:
        return self.reading.inference.infer(
            TypeQuery(op, attrs, tuple(types), tuple(values), count)
        )

    def rename(self, old: int, new: int) -> None:
        """A node got another id before it entered the graph."""
        for ref in [ref for ref in self._known if ref.node == old] if old != new else ():
            self._known[Ref(new, ref.index)] = self._known.pop(ref)

    def read(self, index: int, arguments: Sequence[Ref], path: tuple[int, ...] = ()) -> list[Ref]:
        """Read a subgraph's operators into this graph, with the given values as its inputs; its
        outputs.
        """
        subgraphs = self.reading.model.subgraphs
        if not 0 <= index < len(subgraphs):
            raise ModelError(f"subgraph {index} does not exist; there are {len(subgraphs)}")
        if index in path:
            raise UnsupportedError(f"subgraph {index} calls itself")
        if len(path) >= _DEEPEST:
            raise UnsupportedError(f"subgraphs call each other {len(path)} deep")
        subgraph = subgraphs[index]
        if len(arguments) != len(subgraph.inputs):
            raise ModelError(
                f"subgraph {index} has {len(subgraph.inputs)} inputs, {len(arguments)} are given"
            )
        return SubgraphScope(self, index, subgraph, (*path, index)).run(arguments)


def known_results(
    op: str,
    attrs: Mapping[str, Attr],
    types: Sequence[ValueType | None],
    values: Sequence[np.ndarray | None],
    outputs: Sequence[ValueType],
) -> list[np.ndarray] | None:
    """The results of one operator, when they are a few integers that follow from shapes and other
    such integers.
    """
    for kind in outputs:
        if not isinstance(kind, TensorType) or not (
            kind.dtype.is_integer or kind.dtype is DType.BOOL
        ):
            return None
        count = kind.elements
        if count is None or count > _SMALL:
            return None
    if op == "Shape" and not attrs:
        source = types[0]
        shape = source.static_shape if isinstance(source, TensorType) else None
        return None if shape is None else [np.array(shape, np.int64)]
    inputs = []
    for known, value in zip(types, values, strict=True):
        if known is not None and (
            value is None or value.size > _SMALL or value.dtype.kind not in "iub"
        ):
            return None
        inputs.append(value)
    try:
        results = evaluate(Call(op, attrs, tuple(inputs), len(outputs)))
    except (ModelError, UnsupportedError):
        return None
    found = [result for result in results if isinstance(result, np.ndarray)]
    return found if len(found) == len(outputs) else None


class SubgraphScope:
    """One subgraph being read into a graph: which value each of its tensors is."""

    def __init__(
        self, scope: GraphScope, index: int, record: SubgraphRecord, path: tuple[int, ...]
    ) -> None:
        self.scope = scope
        self.index = index
        self.record = record
        self.path = path
        self._values: dict[int, Ref] = {}

    def run(self, arguments: Sequence[Ref]) -> list[Ref]:
        reading = self.scope.reading
        for tensor, ref in zip(self.record.inputs, arguments, strict=True):
            self._values[tensor] = ref
        reading.n_read += len(self.record.operators)
        limit = max(
            _MOST_OPERATORS,
            _MOST_CALLS * sum(len(each.operators) for each in reading.model.subgraphs),
        )
        if reading.n_read > limit:
            raise UnsupportedError(
                f"its subgraphs call each other so often that they hold more than {limit} operators"
            )
        for operator, place in zip(self.record.operators, reading.places[self.index], strict=True):
            reading.add_operator(self, operator, place)
        return [self.value(tensor) for tensor in self.record.outputs]

    def tensor(self, index: int) -> TensorRecord:
        return self.record.tensors[index]

    def value(self, index: int) -> Ref:
        """The value of a tensor, in the codes of the file."""
        ref = self._values.get(index)
        if ref is None:
            tensor = self.tensor(index)
            ref = self._values[index] = self.scope.const(self._constant(index, tensor), tensor.name)
        return ref

    def constant(self, index: int) -> np.ndarray | None:
        """The value of a tensor in the codes of the file, when it is known."""
        ref = self._values.get(index)
        return (
            self.scope.value_of(ref)
            if ref is not None
            else self.scope.reading.array(self.index, index)
        )

    def is_stored(self, index: int) -> bool:
        ref = self._values.get(index)
        node = None if ref is None else self.scope.graph.get(ref.node)
        return (
            self.scope.reading.array(self.index, index) is not None
            if ref is None
            else node is not None and node.is_const
        )

    def define(self, index: int, ref: Ref) -> None:
        if index in self._values:
            raise ModelError(f"tensor {quoted(self.tensor(index).name)} is made twice")
        self._values[index] = ref

    def assign(self, index: int, ref: Ref) -> None:
        """Give a variable tensor its new value."""
        self._values[index] = ref

    def declared(self, index: int) -> TensorType:
        """What the file says of a tensor, as far as it can be trusted."""
        known = declared_type(self.tensor(index))
        return (
            known
            if self.scope.reading.trust_shapes
            else TensorType(
                known.dtype, None if known.shape is None else (None,) * len(known.shape)
            )
        )

    def _constant(self, index: int, tensor: TensorRecord) -> np.ndarray:
        array = self.scope.reading.array(self.index, index)
        if array is not None:
            return array
        if 0 in tensor.shape and min(tensor.shape) >= 0:
            return np.empty(tensor.shape, dtype_of(tensor).numpy)
        if tensor.is_variable and min(tensor.shape, default=1) > 0:
            # State starts at zero: the code that means it.
            found = quantisation_of(tensor)
            zero = 0 if found is None else int(found.zero_points[0])
            if math.prod(tensor.shape) > 1 << 26:
                raise ModelError(
                    f"the state {quoted(tensor.name)} of shape {list(tensor.shape)} is too large"
                )
            # Zeros take no memory until something is written to them.
            return (
                np.full(tensor.shape, zero, dtype_of(tensor).numpy)
                if zero
                else np.zeros(tensor.shape, dtype_of(tensor).numpy)
            )
        raise ModelError(f"tensor {quoted(tensor.name)} is read but neither made nor stored")
