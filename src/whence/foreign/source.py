"""The operators of the user's file as other engines' kernels are attributed to them: who feeds
whom, which names stand for which operator, which are computed at load time.

Made from the graph as whence reads it, so ids, names and modules are those of whence's own profile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from whence.attribution.cost_model import is_contraction
from whence.attribution.source_costs import source_kinds
from whence.errors import UnsupportedError
from whence.graph import Graph, Node
from whence.ops.definition import OpClass
from whence.ops.operand import OperandKind
from whence.ops.registry import REGISTRY, classes_of
from whence.passes.manager import run_passes
from whence.passes.shapes.fold_shapes import FoldShapes
from whence.passes.simplify.merge_duplicates import MergeDuplicates
from whence.passes.simplify.remove_no_ops import RemoveNoOps
from whence.provenance import Reason
from whence.types import TensorType

SHAPE_READERS = frozenset({"Shape", "Size"})
"""They read how large a tensor is, nothing of what is in it: their operand is no data edge."""
NO_OPS = frozenset({"Identity", "Dropout"})
"""At run time they hand on what they are given: whoever reads them reads their operand."""
_LARGEST_SHAPE_VALUE = 64
_WINDOW = ("kernel_shape", "strides", "group", "dilations")
Attribute = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SourceOperator:
    """One operator of the file."""

    id: int
    name: str
    op: str
    """Its type, without the domain."""
    outputs: tuple[str, ...]
    feeds_from: tuple[int, ...]
    """The operators that make its inputs, those that are computed at load time left out. What does
    nothing is looked through.
    """
    is_constant: bool
    """Computed from constants alone: engines do that when they load the model."""
    is_heavy: bool
    """A convolution, matrix product or recurrent cell: one that a kernel is made for."""
    is_shape: bool
    """It makes but a few whole numbers, such as sizes."""
    is_known_from_sizes: bool
    """It depends on constants and on the sizes of tensors alone: engines may compute it as soon as
    they know those.
    """
    window: Mapping[str, Attribute]
    """Kernel, strides, groups and dilations, as far as the file states them."""
    holder: int | None = None
    """The operator with the nested graph that it stands in."""
    stands_for: int | None = None
    """Of an operator that does nothing: the one that makes what it hands on."""
    is_bidirectional: bool = False
    """A recurrent layer over its input and over the reverse, which may be two kernels."""
    inputs_read: int = 0
    """How many inputs of the model it reads, which no operator makes."""


class SourceGraph:
    """All operators by id, and the ways to find one."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.operators = {each.id: each for each in _operators(graph)}
        self.live = frozenset(each.id for each in self.operators.values() if not each.is_constant)
        made: dict[str, list[int]] = defaultdict(list)
        for each in self.operators.values():
            # What an operator that does nothing hands on is its operand, under another name.
            for name in filter(None, each.outputs):
                made[name].append(each.stands_for or each.id)
        self._made: Mapping[str, Sequence[int]] = made
        # A nested graph may reuse a name of the outer one; the outer one is listed first.
        self.by_output = {name: makers[0] for name, makers in made.items()}
        self.by_name = {each.name: each.id for each in self.operators.values()}
        found: dict[int, list[int]] = defaultdict(list)
        for number in sorted(self.live):
            for maker in self.operators[number].feeds_from:
                found[maker].append(number)
        self._readers: Mapping[int, Sequence[int]] = found

    def __getitem__(self, number: int) -> SourceOperator:
        return self.operators[number]

    def __len__(self) -> int:
        return len(self.operators)

    def readers(self, number: int) -> Sequence[int]:
        """The operators that use what this one makes."""
        return self._readers.get(number, ())

    def maker(self, tensor: str, named: int | None) -> int | None:
        """The operator that makes the tensor of this name: of several nested graphs that have one,
        the operator that the node is named after.
        """
        makers = self._made.get(tensor, ())
        return named if named in makers else self.by_output.get(tensor)

    def running(self, names: Iterable[str]) -> tuple[int, ...]:
        """The operators of these names, each once, without those computed at load time."""
        found = dict.fromkeys(self.by_name[name] for name in names if name in self.by_name)
        return tuple(number for number in found if number in self.live)

    def duplicates(self, number: int) -> Collection[int]:
        """The operators that compute the same as this one from the same constants, itself among
        them: an engine may compute them once.
        """
        return self._twins.get(number, (number,))

    @cached_property
    def _twins(self) -> Mapping[int, Sequence[int]]:
        merged = self.graph.copy()
        run_passes(merged, [RemoveNoOps(), MergeDuplicates()])
        # What was read as several nodes is compared by the one that has the operator's number.
        into = {
            stone.node: stone.into
            for stone in merged.ledger.tombstones
            if stone.reason is Reason.CSE and stone.node in self.operators
        }
        found: dict[int, list[int]] = defaultdict(list)
        for number in self.operators:
            found[into.get(number) or number].append(number)
        return {number: each for each in found.values() for number in each}

    @cached_property
    def empty(self) -> frozenset[int]:
        """The operators whose results have no elements, at the sizes that the graph was read with:
        engines leave them out.
        """
        sized = self.graph.copy()
        run_passes(sized, [FoldShapes()])
        made: dict[int, list[bool]] = defaultdict(list)
        nodes = {node.id: node for node in sized}
        makers = [(node.origin, node) for node in nodes.values()]
        # What is known to have none has become a constant, which carries no origin.
        makers += [
            (stone.origin, nodes[stone.into])
            for stone in sized.ledger.tombstones
            if stone.into in nodes
        ]
        for origin, node in makers:
            for number in origin:
                made[number].append(
                    all(
                        isinstance(each, TensorType) and each.elements == 0 for each in node.outputs
                    )
                )
        return frozenset(number for number, each in made.items() if all(each))

    @cached_property
    def results(self) -> frozenset[int]:
        """The operators that make the outputs of the model."""
        graph = self.graph
        made = {
            number
            for output in graph.outputs
            for ref in output.inputs
            if ref is not None
            for number in graph[ref.node].origin
        }
        return frozenset(self.operators[each].stands_for or each for each in made)

    @property
    def heavy(self) -> list[int]:
        return [number for number in sorted(self.live) if self.operators[number].is_heavy]


def check_first_generation(graph: Graph) -> None:
    """Refuse a file that carries the operators of an earlier one: names that an engine keeps are
    those of this file, not theirs.
    """
    if any(len(source.positions or (0,)) != 1 for source in graph.ledger.sources):
        raise UnsupportedError(
            "the model was made from another one, whose operators it lists as its sources; other"
            " engines know only the names of this file: profile the original model"
        )


def _operators(graph: Graph) -> list[SourceOperator]:
    kinds = source_kinds(graph)
    nodes: dict[int, list[tuple[Graph, Node]]] = defaultdict(list)
    holders: dict[int, int] = {}
    constant: set[int] = set()
    """Nodes, of any nested graph, that depend on constants alone."""
    outside = _captured(graph)
    for nested in graph.nested():
        for node in nested:
            for number in node.origin:
                nodes[number].append((nested, node))
            for body in node.bodies.values():
                for inner in body:
                    for number in inner.origin - node.origin:
                        holders[number] = min(node.origin, default=0)
            if node.is_const or _follows(node, constant):
                constant.add(node.id)
    makers = {
        source.id: {
            maker: None
            for nested, node in nodes[source.id]
            if node.op not in SHAPE_READERS
            for maker in _makers(nested, node, outside)
            if maker != source.id
        }
        for source in graph.ledger.sources
    }
    same = {
        source.id: next(iter(makers[source.id]))
        for source in graph.ledger.sources
        if (source.op in NO_OPS or kinds[source.id] <= NO_OPS) and len(makers[source.id]) == 1
    }
    sized = _known_from_sizes(graph, constant)
    found = []
    for source in graph.ledger.sources:
        own = nodes[source.id]
        found.append(
            SourceOperator(
                source.id,
                source.name,
                source.op.rpartition("::")[2],
                source.outputs,
                tuple(
                    dict.fromkeys(
                        maker
                        for maker in (_behind_no_ops(each, same) for each in makers[source.id])
                        if not all(node.id in constant for _, node in nodes[maker])
                    )
                ),
                all(node.id in constant for _, node in own),
                any(map(is_contraction, kinds[source.id])),
                bool(own) and all(_is_size(node) for _, node in own),
                bool(own) and all(node.id in sized for _, node in own),
                dict(stated for _, node in own for stated in window_of(node.attrs).items()),
                holders.get(source.id) or None,
                _behind_no_ops(source.id, same) if source.id in same else None,
                any(node.attrs.get("direction") == "bidirectional" for _, node in own),
                _inputs_read(graph, own),
            )
        )
    return found


def _behind_no_ops(number: int, same: Mapping[int, int]) -> int:
    while number in same:
        number = same[number]
    return number


def _captured(graph: Graph) -> dict[int, tuple[Graph, int]]:
    """By an input of a nested graph that stands for a value from outside: its graph and node."""
    found = {}
    for nested in graph.nested():
        for node in nested:
            for body in node.bodies.values():
                inputs = body.inputs
                # Captured values are the last inputs of both, see `Graph`.
                for inner, ref in zip(reversed(inputs), reversed(node.inputs), strict=False):
                    if ref is not None:
                        found[inner.id] = (nested, ref.node)
    return found


def _makers(graph: Graph, node: Node, outside: Mapping[int, tuple[Graph, int]]) -> dict[int, None]:
    found: dict[int, None] = {}
    for position, ref in enumerate(node.inputs):
        if ref is None or _reads_type(node.op, position):
            continue
        home, maker = graph, graph[ref.node]
        while maker.op == "Input" and maker.id in outside:
            home, number = outside[maker.id]
            maker = home[number]
        found.update(dict.fromkeys(sorted(maker.origin)))
    return found


def _inputs_read(graph: Graph, nodes: Sequence[tuple[Graph, Node]]) -> int:
    """Of the whole model: those of a nested graph stand for other values."""
    read = {
        ref.node
        for nested, node in nodes
        if nested is graph
        for ref in node.inputs
        if ref is not None and nested[ref.node].op == "Input"
    }
    return len(read)


def _reads_type(op: str, position: int) -> bool:
    """Is only the element type of that operand read? That is no data edge."""
    definition = REGISTRY.get(op)
    return definition is not None and definition.operands.kind(position) is OperandKind.TYPE


def _follows(node: Node, known: Collection[int]) -> bool:
    """Can it be computed from what is known?"""
    return (
        bool(node.inputs)
        and not node.bodies
        and node.op not in {"Output", "Variable", "Assign"}
        and not classes_of(node.op) & OpClass.RANDOM
        and all(ref is None or ref.node in known for ref in node.inputs)
    )


def _known_from_sizes(graph: Graph, constant: set[int]) -> set[int]:
    found = set(constant)
    for nested in graph.nested():
        for node in nested:
            if node.op in SHAPE_READERS or _follows(node, found):
                found.add(node.id)
    return found


def _is_size(node: Node) -> bool:
    """Does it make but a few whole numbers?"""
    return all(
        isinstance(kind, TensorType)
        and kind.dtype.is_integer
        and kind.elements is not None
        and kind.elements <= _LARGEST_SHAPE_VALUE
        for kind in node.outputs
    )


def window_of(attributes: Mapping[str, object]) -> dict[str, Attribute]:
    """Kernel, strides, groups and dilations, as far as they are stated as whole numbers."""
    found: dict[str, Attribute] = {}
    for name in _WINDOW:
        value = attributes.get(name)
        if isinstance(value, int):
            found[name] = value
        elif isinstance(value, list | tuple) and all(isinstance(each, int) for each in value):
            found[name] = tuple(value)
    return found


def reached(start: Iterable[int], beside: Callable[[int], Iterable[int]]) -> Iterator[int]:
    """Numbers and those beside them, those beside these, and so on, each once."""
    waiting = list(start)
    seen = set(waiting)
    while waiting:
        each = waiting.pop()
        yield each
        fresh = set(beside(each)) - seen
        waiting += sorted(fresh)
        seen |= fresh
