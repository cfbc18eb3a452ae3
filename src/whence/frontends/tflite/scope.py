"""Making nodes while a file is read: the graph under construction, what is known of its values, and
the subgraphs read into it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.frontends.importer import ConstantPool, OperatorOrigin, add_variable
from whence.frontends.naming import UniqueNames, quoted
from whence.frontends.origin_metadata import HistoryEntry
from whence.frontends.tflite.quantisation import quantisation_of
from whence.frontends.tflite.records import (
    ModelRecord,
    OperatorRecord,
    SubgraphRecord,
    TensorRecord,
)
from whence.frontends.tflite.tensors import array_of, declared_type, dtype_of
from whence.frontends.tflite.variables import Key, VariableUse
from whence.graph.graph import Graph
from whence.graph.node import Ref
from whence.ops.definition import Call, TypeQuery
from whence.ops.registry import evaluate
from whence.ops.types.inference import Inference
from whence.provenance import Ledger
from whence.types import DType, TensorType, ValueType

_SMALL = 64
# Subgraphs that are called from several places are read once for each; honest ones a few times.
_MOST_CALLS = 4
_MOST_OPERATORS = 4_000
_MOST_ATTEMPTS = 8
_MOST_COPIES = 16
_MOST_COPIED = 1 << 26
_DEEPEST = 64


@dataclass(slots=True)
class TfliteReading:
    """What all subgraphs of one file share while it is read."""

    model: ModelRecord
    ledger: Ledger
    inference: Inference
    places: Sequence[Sequence[OperatorOrigin]]
    """By subgraph and position."""
    add_operator: Callable[[SubgraphScope, OperatorRecord, OperatorOrigin], None]
    """Maps one operator; mapping one that holds subgraphs comes back here, so it is handed in."""
    history: Mapping[int, HistoryEntry] = field(default_factory=dict)
    """How operators of the first file became part of those of this one, where the file says so."""
    trust_shapes: bool = True
    """False when given input shapes differ from the file's: no other shape is trusted then."""
    used: set[int] = field(default_factory=set)
    """The source operators that have been read as the node of their number."""
    n_read: int = 0
    """The operators in the graph, and in those it holds."""
    n_tried: int = 0
    """The operators that were read, for loops that had to be read again included."""
    n_copied: int = 0
    """Bytes of constants that were stored anew in another arrangement."""
    arrays: dict[tuple[int, int], np.ndarray | None] = field(default_factory=dict)
    initial: dict[Key, np.ndarray] = field(default_factory=dict)
    """What resources are before the first run."""
    names: dict[Key, str] = field(default_factory=dict)
    """What the variables of the graph are called."""
    unique: UniqueNames = field(default_factory=UniqueNames)
    """Those names, no two alike."""
    use: VariableUse = field(init=False)

    def __post_init__(self) -> None:
        self.use = VariableUse(self.model)

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
        """The id of the node that stands for a source operator: its number, once; then 0."""
        if number in self.used:
            return 0
        self.used.add(number)
        return number


@dataclass(frozen=True, slots=True)
class Assignment:
    """The last that a run assigns to a variable, and the operator that does."""

    value: Ref
    name: str
    """The operator's type."""
    place: OperatorOrigin
    claims: bool
    """Is it all that the operator does, so that it bears the operator's number?"""


class GraphScope:
    """A graph under construction. Small integers that follow from shapes are worked out on the way:
    shapes that a file computes are then known.
    """

    def __init__(self, reading: TfliteReading, graph: Graph, *, is_nested: bool = False) -> None:
        self.reading = reading
        self.graph = graph
        self.is_nested = is_nested
        """Is this a graph that an operator holds?"""
        self.present: dict[Key, Ref] = {}
        """The present value of each variable."""
        self.assigned: dict[Key, Assignment] = {}
        """What the main graph assigns to each, so far."""
        self._known: dict[Ref, np.ndarray] = {}
        self.constants = ConstantPool(graph)

    def variable(self, key: Key) -> Ref | None:
        """The present value of a variable; `None` when it has none."""
        found = self.present.get(key)
        if found is not None:
            return found
        if isinstance(key, tuple):
            found = self._make_variable(key, *self._tensor_state(*key))
        elif key in self.reading.initial:
            value = self.reading.initial[key]
            found = (
                self._make_variable(key, key.removeprefix("/"), value)
                if self.reading.use.is_assigned(key)
                else self.constants.add(value, key.removeprefix("/"))
            )
        if found is not None:
            self.present[key] = found
        return found

    def declare(self, key: Key) -> None:
        """Make the variable of a resource that no operator has read."""
        if key not in self.reading.names and key in self.reading.initial:
            assert isinstance(key, str)
            self._make_variable(key, key.removeprefix("/"), self.reading.initial[key])

    def _tensor_state(self, subgraph: int, index: int) -> tuple[str, np.ndarray]:
        tensor = self.reading.model.subgraphs[subgraph].tensors[index]
        stored = self.reading.array(subgraph, index)
        return tensor.name or f"state_{index}", zero_state(tensor) if stored is None else stored

    def _make_variable(self, key: Key, name: str, value: np.ndarray) -> Ref:
        if self.is_nested:
            raise UnsupportedError(f"variable {quoted(name)} is used where its value is not known")
        unique = self.reading.names[key] = self.reading.unique.take(name or "variable")
        return add_variable(self.graph, unique, value)

    def value_of(self, ref: Ref) -> np.ndarray | None:
        """The value, if it is a constant or follows from shapes."""
        node = self.graph.get(ref.node)
        if node is not None and node.is_const:
            return node.value
        return self._known.get(ref)

    def learn(self, ref: Ref, value: np.ndarray) -> None:
        self._known[ref] = value

    def rename(self, old: int, new: int) -> None:
        """A node got another id before it entered the graph."""
        if old == new:
            return
        for ref in [ref for ref in self._known if ref.node == old]:
            self._known[Ref(new, ref.index)] = self._known.pop(ref)
        for key, ref in self.present.items():
            if ref.node == old:
                self.present[key] = Ref(new, ref.index)
        for key, each in self.assigned.items():
            if each.value.node == old:
                self.assigned[key] = replace(each, value=Ref(new, each.value.index))

    def read(self, index: int, arguments: Sequence[Ref], path: tuple[int, ...] = ()) -> list[Ref]:
        """Read a subgraph's operators into this graph with the given inputs; its outputs."""
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


def known_results(query: TypeQuery, outputs: Sequence[ValueType]) -> list[np.ndarray] | None:
    """An operator's results, when they are a few integers that follow from shapes."""
    for kind in outputs:
        if not isinstance(kind, TensorType) or not (
            kind.dtype.is_integer or kind.dtype is DType.BOOL
        ):
            return None
        count = kind.elements
        if count is None or count > _SMALL:
            return None
    if query.op == "Shape" and not query.attrs:
        source = query.types[0]
        shape = source.static_shape if isinstance(source, TensorType) else None
        return None if shape is None else [np.array(shape, np.int64)]
    inputs = []
    for known, value in zip(query.types, query.values, strict=True):
        if known is not None and (
            value is None or value.size > _SMALL or value.dtype.kind not in "iub"
        ):
            return None
        inputs.append(value)
    try:
        results = evaluate(Call(query.op, query.attrs, tuple(inputs), len(outputs)))
    except (ModelError, UnsupportedError):
        return None
    found = [result for result in results if isinstance(result, np.ndarray)]
    return found if len(found) == len(outputs) else None


def zero_state(tensor: TensorRecord) -> np.ndarray:
    """State starts at zero: the code that means it."""
    found = quantisation_of(tensor)
    zero = 0 if found is None else int(found.zero_points[0])
    if min(tensor.shape, default=1) < 0 or math.prod(tensor.shape) > 1 << 26:
        raise ModelError(
            f"the state {quoted(tensor.name)} of shape {list(tensor.shape)} is too large"
        )
    # Zeros take no memory until something is written to them.
    dtype = dtype_of(tensor).numpy
    return np.full(tensor.shape, zero, dtype) if zero else np.zeros(tensor.shape, dtype)


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
        reading.n_tried += len(self.record.operators)
        if reading.n_tried > _MOST_ATTEMPTS * limit:
            # One that changes the shape of what it carries is read again, and so is all inside it.
            raise UnsupportedError(
                "loops inside loops change the shapes of what they carry; to find the types out"
                f" takes more than {_MOST_ATTEMPTS * limit} operators"
            )
        for operator, place in zip(self.record.operators, reading.places[self.index], strict=True):
            reading.add_operator(self, operator, place)
        return [self.value(tensor) for tensor in self.record.outputs]

    def tensor(self, index: int) -> TensorRecord:
        return self.record.tensors[index]

    def value(self, index: int) -> Ref:
        """The value of a tensor, in the codes of the file."""
        if (key := self.state_key(index)) is not None:
            found = self.scope.variable(key)
            assert found is not None
            return found
        ref = self._values.get(index)
        if ref is None:
            tensor = self.tensor(index)
            ref = self._values[index] = self.scope.constants.add(
                self._constant(index, tensor), tensor.name
            )
        return ref

    def constant(self, index: int) -> np.ndarray | None:
        """The value of a tensor in the codes of the file, when it is known."""
        if self.state_key(index) is not None:
            return None
        ref = self._values.get(index)
        if ref is not None:
            return self.scope.value_of(ref)
        return self.scope.reading.array(self.index, index)

    def stored_tensor(self, index: int) -> np.ndarray | None:
        """What the file stores for a tensor, if there is such a tensor and it does."""
        if not 0 <= index < len(self.record.tensors):
            return None
        return self.scope.reading.array(self.index, index)

    def is_stored(self, index: int) -> bool:
        ref = self._values.get(index)
        node = None if ref is None else self.scope.graph.get(ref.node)
        if ref is None:
            return self.scope.reading.array(self.index, index) is not None
        return node is not None and node.is_const

    def define(self, index: int, ref: Ref) -> None:
        if index in self._values:
            raise ModelError(f"tensor {quoted(self.tensor(index).name)} is made twice")
        self._values[index] = ref

    def state_key(self, index: int) -> Key | None:
        """The variable that a tensor is, if an operator keeps it from one run to the next."""
        return (self.index, index) if self.scope.reading.use.is_state(self.index, index) else None

    def declared(self, index: int) -> TensorType:
        """What the file says of a tensor, as far as it can be trusted."""
        known = declared_type(self.tensor(index))
        if self.scope.reading.trust_shapes:
            return known
        return TensorType(known.dtype, None if known.shape is None else (None,) * len(known.shape))

    def _constant(self, index: int, tensor: TensorRecord) -> np.ndarray:
        array = self.scope.reading.array(self.index, index)
        if array is not None:
            return array
        if 0 in tensor.shape and min(tensor.shape) >= 0:
            return np.empty(tensor.shape, dtype_of(tensor).numpy)
        if tensor.is_variable and min(tensor.shape, default=1) > 0:
            return zero_state(tensor)
        raise ModelError(f"tensor {quoted(tensor.name)} is read but neither made nor stored")
