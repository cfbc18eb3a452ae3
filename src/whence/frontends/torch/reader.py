"""Building a graph from a program that PyTorch traced."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.errors import UnsupportedError, WhenceError
from whence.frontends.files import without_collection
from whence.frontends.importer import ConstantPool, add_variable, located
from whence.frontends.origin_metadata import LOAD
from whence.frontends.torch.call import AtenCall, Reading, is_node, meta_of, scalar_dtype
from whence.frontends.torch.operators import MAPPINGS, operator_key
from whence.frontends.torch.sources import Sources, describe
from whence.frontends.torch.tensors import array_of, dtype_of
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.ops.definition import Attr
from whence.ops.types.inference import Inference
from whence.provenance import Ledger, Reason, Tombstone
from whence.types import Dim, TensorType

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph
    from torch.fx import Node as FxNode


class InputKind(enum.Enum):
    GIVEN = enum.auto()
    """Given with every call."""
    CONSTANT = enum.auto()
    """A parameter, a buffer, a constant of the program."""
    STATE = enum.auto()
    """A buffer that the program assigns to."""
    FIXED = enum.auto()
    """A plain value that the program was traced for."""


@dataclass(frozen=True, slots=True)
class TracedInput:
    """One placeholder of the traced graph."""

    kind: InputKind
    name: str
    value: Any = None
    """An array; for a fixed input, a plain value."""


@dataclass(frozen=True, slots=True)
class TracedOutput:
    """One result of the traced graph."""

    name: str
    """Empty for one that is no value."""
    variable: str = ""
    """The state that it assigns to, if it is none of the program's own results."""


@dataclass(frozen=True, slots=True)
class TracedProgram:
    name: str
    graph: FxGraph
    """Decomposed, without effects on its arguments."""
    sources: Sources
    inputs: tuple[TracedInput, ...]
    outputs: tuple[TracedOutput, ...]
    dimensions: dict[str, str]
    """What the user calls the symbols in shapes."""


def read_program(program: TracedProgram) -> Graph:
    """The graph of a traced program, in canonical operators, with every operator of the user's in
    its ledger.
    """
    graph = Graph(program.name, Ledger(program.sources.operators), Inference())
    reading = Reading(graph, program.sources, ConstantPool(graph))
    with without_collection():
        _add_inputs(reading, program)
        results: Sequence[Any] = ()
        for node in program.graph.nodes:
            if node.op == "output":
                results = node.args[0]
            elif node.op == "call_function":
                _add_operator(reading, node)
            elif node.op == "get_attr":
                reading.values[node.name] = _attribute(reading, node)
            elif node.op != "placeholder":
                raise UnsupportedError(f"{describe(node)}: whence reads no nodes of kind {node.op}")
        _add_outputs(reading, program, results)
        _account_for_the_rest(graph, program.sources)
    return graph


def _attribute(reading: Reading, node: FxNode) -> Ref:
    """A tensor that the traced code made itself, and the graph holds."""
    found: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        found = getattr(found, part, None)
    if not hasattr(found, "data_ptr"):
        raise UnsupportedError(
            f"operators that use {node.target!r}: whence reads no graphs inside graphs of PyTorch"
        )
    return reading.constants.add(array_of(found), str(node.target))


def _add_inputs(reading: Reading, program: TracedProgram) -> None:
    graph = reading.graph
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    open_sizes: list[tuple[FxNode, TracedInput]] = []
    for node, given in zip(placeholders, program.inputs, strict=True):
        if given.kind is InputKind.CONSTANT:
            # What nothing reads need not be there.
            if node.users:
                reading.values[node.name] = reading.constants.add(given.value, given.name)
        elif given.kind is InputKind.STATE:
            reading.values[node.name] = add_variable(graph, given.name, given.value)
        elif given.kind is InputKind.FIXED:
            reading.values[node.name] = given.value
        elif hasattr(meta_of(node), "shape"):
            kind = _type_of(meta_of(node), program.dimensions)
            made = Node(graph.new_id(), "Input", (), (kind,), name=given.name)
            reading.values[node.name] = graph.append(made).ref()
        else:
            open_sizes.append((node, given))
    for node, given in open_sizes:
        reading.values[node.name] = _size(reading, placeholders, node, given)


def _size(reading: Reading, tensors: Sequence[FxNode], node: FxNode, given: TracedInput) -> Ref:
    """A number that is given with a call. The size of a tensor that is given too follows from
    that, which kernels can be made for.
    """
    graph, symbol = reading.graph, str(meta_of(node))
    for tensor in tensors:
        ref = reading.values.get(tensor.name)
        dims = [str(dim) for dim in getattr(meta_of(tensor), "shape", ())]
        if isinstance(ref, Ref) and symbol in dims and graph[ref.node].op == "Input":
            axis = dims.index(symbol)
            attrs: dict[str, Attr] = {"start": axis, "end": axis + 1}
            kind = TensorType(dtype_of("int64"), (1,))
            shape = graph.append(Node(graph.new_id(), "Shape", [ref], (kind,), attrs))
            scalar = reading.constants.add(np.array([], np.int64))
            size = TensorType(kind.dtype, ())
            inputs = [shape.ref(), scalar]
            return graph.append(Node(graph.new_id(), "Reshape", inputs, (size,))).ref()
    kind = TensorType(scalar_dtype(meta_of(node)), ())
    return graph.append(Node(graph.new_id(), "Input", (), (kind,), name=given.name)).ref()


def _type_of(meta: Any, names: dict[str, str]) -> TensorType:
    dims: list[Dim] = [
        dim if isinstance(dim, int) else names.get(str(dim), str(dim)) for dim in meta.shape
    ]
    return TensorType(dtype_of(meta.dtype), tuple(dims))


def _add_operator(reading: Reading, node: FxNode) -> None:
    mapper = MAPPINGS.get(operator_key(node.target))
    if mapper is None:
        raise UnsupportedError(f"{describe(node)}: whence has no mapping for this operator")
    call = AtenCall(reading, node)
    try:
        call.finish(mapper(call))
    except WhenceError as error:
        raise located(error, describe(node)) from error


def _add_outputs(reading: Reading, program: TracedProgram, results: Sequence[Any]) -> None:
    graph = reading.graph
    for given, result in zip(program.outputs, results, strict=True):
        if not given.name or not is_node(result):
            continue
        value = reading.values[result.name]
        if isinstance(value, int | float):
            value = reading.constants.add(np.array(value))
        assert isinstance(value, Ref)
        if given.variable:
            attrs: dict[str, Attr] = {"variable": given.variable}
            graph.append(Node(graph.new_id(), "Assign", (value,), (), attrs))
        else:
            graph.append(Node(graph.new_id(), "Output", (value,), (), name=given.name))


def _account_for_the_rest(graph: Graph, sources: Sources) -> None:
    """Operators that no node stands for: those that only pick one of several results, and those
    that PyTorch itself had removed.
    """
    present = set(sources.numbers.values())
    for source in graph.ledger.lost():
        if source.op.endswith("getitem"):
            reason, rule = Reason.ABSORBED, "picks one result of the operator it reads"
        elif source.id in present:
            reason, rule = Reason.FOLDED, "what it says follows from the shapes"
        else:
            reason, rule = Reason.EARLIER, "nothing is left of it in PyTorch's decomposed graph"
        graph.ledger.add_tombstone(Tombstone(0, frozenset((source.id,)), reason, LOAD, rule))
