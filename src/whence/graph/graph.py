"""The graph: nodes in one ordered list, each input referring to an earlier node, consumers indexed
exactly.

Inputs, constants and outputs are nodes like any other. An `Output` has one input and no outputs, so
whatever rewires consumers rewires graph outputs too, without a special case.

Nested graphs (the bodies of `If`, `Loop`, `Scan`) are closed: a value used from outside is an extra
input of the node that holds the body, and an extra `Input` at the end of each body's inputs. So
liveness and rewiring need not look inside.

State is part of the graph: a `Variable` is a value that outlives a run, an `Assign` gives it the
value that the next run begins with (`graph/state.py`). Both stand in the outermost graph only.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whence.errors import GraphError
from whence.graph.copying import copy_graph
from whence.graph.interpreter import Observer, run
from whence.graph.node import Node, Ref
from whence.graph.node_list import NodeList, no_node
from whence.graph.state import BOUNDARY, State
from whence.ops.definition import Attr, OpClass, TypeQuery, Value
from whence.ops.registry import classes_of
from whence.ops.types.inference import Inference
from whence.provenance import Ledger
from whence.types import TensorType, ValueType

SIGNATURE = tuple(sorted(BOUNDARY - {"Const"}))
"""What a caller gives and gets: nodes that have an order of their own."""


class Graph(NodeList):
    """An ordered, indexed graph. Lookups by id are O(1), by consumer O(uses), insertion and removal
    O(1) amortised.

        >>> graph = whence.load("model.onnx")
        >>> [node.op for node in graph if node.op not in ("Const", "Input", "Output")]
        ['Conv', 'BatchNormalization', 'Relu', 'GlobalAveragePool', 'Flatten', 'Gemm']
    """

    def __init__(
        self, name: str = "", ledger: Ledger | None = None, inference: Inference | None = None
    ) -> None:
        super().__init__()
        self.name = name
        self.ledger = ledger if ledger is not None else Ledger()
        self.inference = inference if inference is not None else Inference()
        self.metadata: dict[str, str] = {}
        """Text about the whole model that travels with it: producer, domain, properties of the
        file.
        """
        self.dimensions: dict[str, int] = {}
        """The sizes of dimensions that the file names and the caller of its reader fixed."""
        self.files: dict[Path, os.stat_result] = {}
        """Files besides the model's own that its constants were read from, by the names that the
        model has for them, and what the system said of each just before.
        """
        self.claims: dict[int, tuple[ValueType | None, ...]] = {}
        """What the file declares of outputs whose types do not follow from their inputs yet, by
        node. Nothing relies on it: it is compared with what is found out later.
        """
        self.listed_inputs: tuple[tuple[str, ValueType], ...] = ()
        """The inputs that the file lists, in its order, where some of them are constants here: they
        have a default, and a caller may override it.
        """
        self.op_counts: dict[str, int] = {}
        self._nodes: dict[int, Node] = {}
        self._signature: dict[str, dict[int, None]] = {op: {} for op in SIGNATURE}
        """The ids of the nodes of these operators, in the order of the model's signature."""
        self._holders: dict[int, None] = {}

    # ---- looking ----

    def __repr__(self) -> str:
        takes = ", ".join(f"{node.name}: {node.type}" for node in self.inputs)
        gives = ", ".join(node.name for node in self.outputs)
        return f"<Graph {self.name!r}: ({takes}) → ({gives}), {len(self)} nodes>"

    def _repr_html_(self) -> str:
        from whence.graph.as_html import line, table

        counts = sorted(self.op_counts.items(), key=lambda each: (-each[1], each[0]))
        return line(repr(self)) + table(
            ("operator", "nodes"), [(op, str(count)) for op, count in counts]
        )

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and node.graph is self

    def __getitem__(self, node_id: int) -> Node:
        try:
            return self._nodes[node_id]
        except KeyError:
            raise GraphError(f"graph {self.name!r} has no node %{node_id}") from None

    def get(self, node_id: int) -> Node | None:
        """The node with this id, or `None`."""
        return self._nodes.get(node_id)

    @property
    def inputs(self) -> list[Node]:
        """The `Input` nodes, in the order of the model's signature.

        Example:

            >>> [f"{node.name}: {node.type}" for node in whence.load("model.onnx").inputs]
            ['x: f32[1,3,32,32]']
        """
        return self._signature_nodes("Input")

    @property
    def outputs(self) -> list[Node]:
        """The `Output` nodes, in the order of the model's signature.

        Example:

            >>> [node.name for node in whence.load("model.onnx").outputs]
            ['y']
        """
        return self._signature_nodes("Output")

    @property
    def output_types(self) -> list[ValueType]:
        """The types of its results, in the order of its outputs."""
        return [self.type_of(node.first_input) for node in self.outputs]

    @property
    def variables(self) -> list[Node]:
        """The `Variable` nodes: values that outlive a run, each with a name of its own."""
        return self._signature_nodes("Variable")

    @property
    def assigns(self) -> list[Node]:
        """The `Assign` nodes: at most one for each variable."""
        return self._signature_nodes("Assign")

    def variable(self, name: str) -> Node:
        """The variable that is called so."""
        for node in self.variables:
            if node.name == name:
                return node
        raise GraphError(f"graph {self.name!r} has no variable {name!r}")

    @property
    def results(self) -> list[Node]:
        """What a run is for: the outputs, then the new values of variables. Each reads one
        value.
        """
        return [*self.outputs, *self.assigns]

    def producer(self, ref: Ref) -> Node:
        """The node that makes a value."""
        try:
            return self[ref.node]
        except AttributeError:
            raise _no_ref(ref) from None

    def type_of(self, ref: Ref) -> ValueType:
        """The type of a value."""
        try:
            return self[ref.node].outputs[ref.index]
        except (AttributeError, IndexError):
            raise _no_ref(ref) from None

    def tensor_type(self, ref: Ref | None) -> TensorType | None:
        """The type of a value that is a tensor; `None` for others, and for no value."""
        kind = None if ref is None else self.type_of(ref)
        return kind if isinstance(kind, TensorType) else None

    def nbytes(self, ref: Ref) -> int:
        """The bytes of a value; 0 when that is not known, or it is no tensor."""
        kind = self.tensor_type(ref)
        return 0 if kind is None else kind.nbytes or 0

    def consumers(self, node: Node) -> list[Node]:
        """The distinct nodes with an input connected to any output of `node`, in list order."""
        try:
            found = [self._nodes[node_id] for node_id in node._uses]
        except AttributeError:
            raise no_node(node) from None
        if len(found) > 1:
            found.sort(key=_order)
        return found

    def uses(self, ref: Ref) -> list[tuple[Node, int]]:
        """Every (consumer, input index) connected to exactly this output, in list order."""
        return [
            (consumer, index)
            for consumer in self.consumers(self.producer(ref))
            for index, source in enumerate(consumer.inputs)
            if source == ref
        ]

    def use_count(self, node: Node) -> int:
        """How many inputs are connected to any output of `node`."""
        try:
            return sum(node._uses.values())
        except AttributeError:
            raise no_node(node) from None

    def const_value(self, ref: Ref | None) -> Any | None:
        """The array behind `ref` when it is a constant with data, else `None`."""
        if ref is None:
            return None
        node = self[ref.node]
        return node.value if node.is_const else None

    def known_value(self, ref: Ref | None) -> Any | None:
        """What inference may know of a value: the array of a constant with data, or the numbers and
        expressions of a `DimensionValue`, as an array of objects.
        """
        return None if ref is None else self[ref.node].known_value

    def query(self, node: Node) -> TypeQuery:
        """What inference may know of a node of this graph."""
        return self.query_for(node.op, node.inputs, node.attrs, len(node.outputs))

    def query_for(
        self, op: str, inputs: Sequence[Ref | None], attrs: Mapping[str, Attr], n_outputs: int
    ) -> TypeQuery:
        """What inference may know of an operator applied to values of this graph."""
        types: list[ValueType | None] = []
        values: list[Value | None] = []
        for ref in inputs:
            if ref is None:
                types.append(None)
                values.append(None)
            else:
                node = self[ref.node]
                types.append(node.outputs[ref.index])
                values.append(node.known_value)
        return TypeQuery(op, attrs, tuple(types), tuple(values), n_outputs)

    @property
    def op_classes(self) -> OpClass:
        """The union of the class flags of all operators present."""
        present = OpClass.NONE
        for op in self.op_counts:
            present |= classes_of(op)
        return present

    def nested(self) -> Iterator[Graph]:
        """This graph and every graph nested in it, outermost first. A graph may be changed before
        the next is asked for.
        """
        yield self
        for node in sorted((self._nodes[node_id] for node_id in self._holders), key=_order):
            for body in node.bodies.values():
                yield from body.nested()

    def run(
        self,
        inputs: Mapping[str, Value] | Value,
        observe: Observer | None = None,
        state: State | None = None,
    ) -> list[Value]:
        """The outputs for these inputs, computed by the operators' reference implementations.

        `state` has the value of each variable by name, and gets the new ones when the run is done
        (`whence.graph.state.initial_state` makes one); without it, variables have their initial
        values, as in the first run of a model.

            >>> (y,) = whence.load("open.onnx").run({"x": np.ones((2, 4), np.float32)})
            >>> y.tolist()
            [[-1.0, -1.0, -1.0, -1.0], [-1.0, -1.0, -1.0, -1.0]]
        """
        return run(self, inputs, observe, state)

    def copy(self) -> Graph:
        """An independent graph with the same nodes, ids and history."""
        return copy_graph(self)

    # ---- changing; passes go through `whence.graph.edit`, which also keeps the ledger ----

    def new_id(self) -> int:
        """An id that nothing has yet."""
        return self.ledger.new_id()

    def append(self, node: Node) -> Node:
        """Put a new node at the end of the list."""
        self._check_insertable(node)
        self._check_fits(node, node.inputs, None)
        self._link(node, self._last, None)
        self._register(node)
        return node

    def _adopt(self, node: Node) -> None:
        """Append a copy of another graph's node: the ledger that was copied with it counts it
        already.
        """
        self._link(node, self._last, None)
        self._register(node, counted=True)

    def prepend(self, node: Node) -> Node:
        """Put a new node at the front of the list, where any node may refer to it."""
        self._check_insertable(node)
        self._check_fits(node, node.inputs, self._first)
        self._link(node, None, self._first)
        self._register(node)
        return node

    def insert_before(self, anchor: Node, node: Node) -> Node:
        """Put a new node in front of `anchor`, which stands in this graph."""
        self._check_insertable(node)
        self._check_member(anchor)
        self._check_fits(node, node.inputs, anchor)
        self._link(node, anchor._prev, anchor)
        self._register(node)
        return node

    def remove(self, node: Node) -> None:
        """Take a node out. Its outputs must have no consumers left; what became of it is the
        caller's to record.
        """
        self._check_member(node)
        if node._uses:
            few = ", ".join(f"%{user}" for user in itertools.islice(node._uses, 5))
            raise GraphError(
                f"{node!r} still has {len(node._uses)} consumers:"
                f" {few}{', ...' if len(node._uses) > 5 else ''}"
            )
        self._unlink(node)

    def clear(self) -> None:
        """Take every node out, and out of the graphs they hold: of a graph that came to nothing, of
        which the ledger then knows no more than before.
        """
        for graph in reversed(list(self.nested())):
            for node in reversed(graph):
                graph.remove(node)

    def set_input(self, node: Node, index: int, ref: Ref | None) -> None:
        """Connect input `index` of a node of this graph to another output of an earlier node.
        Inputs that it skips are absent.
        """
        self._check_member(node)
        skipped = (None,) * (index - len(node.inputs))
        self.set_inputs(node, (*node.inputs[:index], *skipped, ref, *node.inputs[index + 1 :]))

    def set_inputs(self, node: Node, inputs: Sequence[Ref | None]) -> None:
        """Connect all inputs of a node of this graph anew, or raise and change nothing."""
        self._check_member(node)
        self._check_fits(node, inputs, node)
        self._drop_uses(node, node.inputs)
        node.inputs = tuple(inputs)
        self._add_uses(node, node.inputs)

    def set_attrs(self, node: Node, attrs: Mapping[str, Any]) -> None:
        """Replace all attributes of a node."""
        self._check_member(node)
        node.attrs = attrs

    def set_types(self, node: Node, outputs: Sequence[ValueType]) -> None:
        """Replace the types of what a node makes."""
        node.outputs = tuple(outputs)

    def move_to_front(self, node: Node) -> None:
        """Move a node without inputs to the front of the list."""
        self._check_member(node)
        if any(ref is not None for ref in node.inputs):
            raise GraphError(f"{node!r} reads other nodes and cannot stand before them")
        self._relink(node, None, self._first)

    def move_before(self, node: Node, anchor: Node) -> None:
        """Move a node in front of `anchor`, which must stand after all it reads and before, or at,
        the first that reads it.
        """
        self._check_member(node)
        self._check_member(anchor)
        self._check_fits(node, node.inputs, anchor)
        if self.precedes(node, anchor):
            for user_id in node._uses:
                if self.precedes(self._nodes[user_id], anchor):
                    raise GraphError(
                        f"{node!r} would stand after {self._nodes[user_id]!r}, which reads it"
                    )
        self._relink(node, anchor._prev, anchor)

    # ---- the list and the indexes ----

    def _signature_nodes(self, op: str) -> list[Node]:
        return [self._nodes[node_id] for node_id in self._signature[op]]

    def _check_insertable(self, node: Node) -> None:
        if not isinstance(node, Node):
            raise no_node(node)
        if node.graph is not None:
            raise GraphError(f"{node!r} is in a graph already")
        if node.id == 0:
            raise GraphError("node id cannot be 0")
        if node.id in self._nodes:
            raise GraphError(f"node id {node.id} is taken by {self._nodes[node.id]!r}")

    def _check_member(self, node: Node) -> None:
        if not isinstance(node, Node):
            raise no_node(node)
        if node.graph is not self:
            raise GraphError(f"{node!r} is not in graph {self.name!r}")

    def _check_fits(self, node: Node, inputs: Sequence[Ref | None], place: Node | None) -> None:
        """Raise unless all of `inputs` exist before `place`, or anywhere when it is `None`."""
        nodes = self._nodes
        for ref in inputs:
            if ref is None:
                continue
            producer = nodes.get(ref.node) or self[ref.node]
            if not 0 <= ref.index < len(producer.outputs):
                raise GraphError(
                    f"{node!r} reads output {ref.index} of {producer!r}, which has"
                    f" {len(producer.outputs)}"
                )
            if place is not None and not self.precedes(producer, place):
                raise GraphError(f"{node!r} reads {producer!r}, which does not stand before it")

    def _register(self, node: Node, *, counted: bool = False) -> None:
        node.graph = self
        self._nodes[node.id] = node
        op = node.op
        self.op_counts[op] = self.op_counts.get(op, 0) + 1
        if op in self._signature:
            self._signature[op][node.id] = None
        if node.bodies:
            self._holders[node.id] = None
        self._add_uses(node, node.inputs)
        if not counted:
            self.ledger.node_added(node.origin)

    def _unlink(self, node: Node) -> None:
        self._detach_links(node)
        del self._nodes[node.id]
        if self.op_counts[node.op] == 1:
            del self.op_counts[node.op]
        else:
            self.op_counts[node.op] -= 1
        if node.op in SIGNATURE:
            del self._signature[node.op][node.id]
        self._holders.pop(node.id, None)
        self._drop_uses(node, node.inputs)
        node.graph = None
        self.ledger.node_removed(node.origin)

    def _add_uses(self, node: Node, refs: Iterable[Ref | None]) -> None:
        nodes = self._nodes
        for ref in refs:
            if ref is not None:
                uses = nodes[ref.node]._uses
                uses[node.id] = uses.get(node.id, 0) + 1

    def _drop_uses(self, node: Node, refs: Iterable[Ref | None]) -> None:
        nodes = self._nodes
        for ref in refs:
            if ref is not None:
                uses = nodes[ref.node]._uses
                if uses[node.id] == 1:
                    del uses[node.id]
                else:
                    uses[node.id] -= 1


def _no_ref(found: object) -> GraphError:
    if isinstance(found, Ref):
        return GraphError(f"{found} does not exist: the node has fewer outputs")
    return GraphError(f"a reference to an output of a node is wanted, not {type(found).__name__}")


def _order(node: Node) -> int:
    return node._order
