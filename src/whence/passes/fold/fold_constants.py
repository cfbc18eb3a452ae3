"""Operators on constants are evaluated now, not in every run.

1. A node all of whose inputs are constants becomes the constants it computes.
2. A constant that a nested graph captures becomes a constant of that graph, where rule 1 applies
   again.
3. What has no elements is a constant, whatever it would be computed from.

What is left alone, and why:
- operators that draw random numbers, or hold nested graphs;
- QuantizeLinear and DequantizeLinear: folding them would turn quantised weights back into large
  ones. With `dequantise`, those that integer arithmetic left are folded after all: what reads them
  computes with real numbers, and would make these anew in every run;
- results that are large and much larger than what they are made from (Expand, Tile, Range, ...): a
  file of a kilobyte may ask for gigabytes. What computes its elements (a table of positions
  gathered from a short one, a mask from the numbers of windows) is folded up to `max_grown_bytes`
  of a graph; what only repeats them is cheaper to repeat where it is read. ConstantOfShape is
  folded up to a budget of its own, because models without trained weights make theirs with it;
- operators on much text: its size is not that of its tensors, and a chain of StringConcat doubles it
  with every operator;
- work that fails: it fails at run time too, with a message that names the operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whence.errors import WhenceError
from whence.graph import Graph, Node, Rewriter
from whence.graph.change import Change, contradict
from whence.graph.iterations import captures
from whence.graph.node import Creation
from whence.graph.state import BOUNDARY
from whence.ops.cost import cost
from whence.ops.definition import Call, OpClass, Pattern, Value
from whence.ops.limits import MAX_FOLDED_TEXT
from whence.ops.registry import REGISTRY, classes_of, evaluate, operators
from whence.ops.traits import Trait
from whence.passes.base import Pass
from whence.passes.control.captures import capture_input, drop_captures
from whence.passes.shapes.propagate_types import TypeRefresher
from whence.passes.simplify.remove_dead_nodes import remove_unread
from whence.provenance import EdgeKind, Reason
from whence.types import DType, TensorType, ValueType

_KEPT = BOUNDARY | operators(Trait.CODES) | {"DimensionValue"}
# Their results may be of any size whatever the size of their inputs, so an unknown size is a reason
# not to try.
_GROWING = operators(Trait.GROWS)
_SMALL = 64 << 10
_MEDIUM = 1 << 20
# Reading outside an axis is an error even where nothing is read of it.
_CHECKING = operators(Trait.CHECKS_INDICES)
_NUMBERS = frozenset({int})
_FOLD = "an operator on constants is a constant"
_EMPTY = "what has no elements is a constant"
_CAPTURE = "a captured constant is a constant of the nested graph"


@dataclass(frozen=True, slots=True)
class FoldConstants(Pass):
    name = "fold_constants"
    summary = "evaluate operators on constants"

    max_bytes: int = 64 << 20
    """Larger results are not folded, unless they take the place of a constant at least as large."""
    max_fill_bytes: int = 1 << 30
    """How much memory all folded ConstantOfShape of a graph may take together."""
    max_grown_bytes: int = 16 << 20
    """How much memory results may take together that are much larger than their operands."""
    max_flops: int = 1 << 32
    """Longer computations are left to the run, which has the faster kernels."""
    dequantise: bool = False
    """Fold DequantizeLinear too."""

    def run(self, rewriter: Rewriter) -> None:
        folder = ConstantFolder(rewriter, self)
        for node in rewriter.graph:
            folder.visit(node)


class ConstantFolder:
    """Folding during one walk in list order. Types follow as constants appear, so later nodes are
    judged by what is known by then.
    """

    def __init__(self, rewriter: Rewriter, options: FoldConstants) -> None:
        self.graph = rewriter.graph
        self.types = TypeRefresher(rewriter.graph)
        self._rewriter = rewriter
        self._options = options
        self._fill_bytes_left = options.max_fill_bytes
        self._grown_bytes_left = options.max_grown_bytes
        self._foldable: dict[str, bool] = {}
        self._with_elements: dict[int, ValueType] = {}

    def visit(self, node: Node) -> bool:
        """Bring the node's types up to date, then fold it if it can be folded. True when the node
        is gone.
        """
        if self.types.learnt:
            self.types.visit(node)
        if node.bodies:
            self._sink_captures(node)
            return False
        nodes = self.graph._nodes
        for ref in node.inputs:
            if ref is not None and nodes[ref.node].op != "Const":
                return (
                    self._may_be_empty(node)
                    and _is_empty(node)
                    and self._is_foldable(node)
                    and self._fold_empty(node)
                )
        return self._is_foldable(node) and self._fold(node)

    def _may_be_empty(self, node: Node) -> bool:
        """Is there no output that surely has elements? Every walk asks this of every node. Most
        share their types with others; each type is looked at once, and held by its identity.
        """
        for kind in node.outputs:
            if id(kind) in self._with_elements:
                return False
            if _surely_has_elements(kind):
                self._with_elements[id(kind)] = kind
                return False
        return True

    def _is_foldable(self, node: Node) -> bool:
        found = self._foldable.get(node.op)
        if found is None:
            not_folded = _KEPT - {"DequantizeLinear"} if self._options.dequantise else _KEPT
            found = node.op not in not_folded and not (
                OpClass.RANDOM | OpClass.CONTROL
            ) & classes_of(node.op)
            self._foldable[node.op] = found
        return found and not node.bodies and not node.retained

    # f(c) = d, a constant, when c is one
    def _fold(self, node: Node) -> bool:
        graph = self.graph
        inputs = tuple(graph.const_value(ref) for ref in node.inputs)
        used = self._used(node)
        has_data = all(
            ref is None or value is not None for ref, value in zip(node.inputs, inputs, strict=True)
        )
        if not used or not has_data or not self._is_affordable(node, inputs):
            return False
        results = _evaluate(node, inputs)
        if results is None or not all(_fits(results[index], node.outputs[index]) for index in used):
            return False
        self._become(node, {index: _compact(results[index]) for index in used}, _FOLD)
        return True

    # f(x) = [] when f makes no element
    def _fold_empty(self, node: Node) -> bool:
        used = self._used(node)
        if not used:
            return False
        kinds = {index: node.outputs[index] for index in used}
        values = {
            index: np.empty(kind.static_shape or (), kind.dtype.numpy)
            for index, kind in kinds.items()
            if isinstance(kind, TensorType)
        }
        self._become(node, values, _EMPTY)
        return True

    def _used(self, node: Node) -> list[int]:
        """Which of the outputs somebody reads; each reader is looked at once."""
        refs = (ref for user in self.graph.consumers(node) for ref in user.inputs)
        return sorted({ref.index for ref in refs if ref is not None and ref.node == node.id})

    def _become(self, node: Node, values: Mapping[int, np.ndarray], rule: str) -> None:
        """Constants in place of the node's outputs."""
        edit = self._rewriter.edit(rule=rule, folded=[node])
        constants = []
        for index, value in values.items():
            constants.append(
                edit.const(value, name=node.name if index == 0 else f"{node.name}.{index}")
            )
            edit.replace(node.ref(index), constants[-1])
        edit.apply()
        self.types.learnt.update(ref.node for ref in constants)
        remove_unread(
            self._rewriter, node.inputs, reason=Reason.FOLDED, rule=rule, into=constants[0].node
        )

    def _is_affordable(self, node: Node, inputs: tuple[Value, ...]) -> bool:
        sizes = [kind.nbytes if isinstance(kind, TensorType) else None for kind in node.outputs]
        known = [size for size in sizes if size is not None]
        if _characters(inputs) > MAX_FOLDED_TEXT:
            return False
        if len(known) < len(sizes):
            return node.op not in _GROWING
        # One constant read a thousand times is held once.
        size = sum(known)
        held = sum({id(value): value.nbytes for value in inputs if value is not None}.values())
        if node.op == "ConstantOfShape":
            affordable = size <= self._fill_bytes_left
            self._fill_bytes_left -= size if affordable else 0
            return affordable
        if max(size, held) <= _SMALL:
            return True
        if size > _SMALL and size > 4 * held:
            if node.op in _GROWING or size > min(_MEDIUM, self._grown_bytes_left):
                return False
            self._grown_bytes_left -= size
            return True
        return (size <= self._options.max_bytes or size <= self._freed(node)) and self._flops(
            node
        ) <= self._options.max_flops

    def _freed(self, node: Node) -> int:
        """Bytes of the constants that only `node` reads: they leave with it."""
        producers = {ref.node: self.graph[ref.node] for ref in node.inputs if ref is not None}
        return sum(
            each.value.nbytes
            for each in producers.values()
            if each.value is not None and len(each._uses) == 1
        )

    def _flops(self, node: Node) -> int:
        found = cost(self.graph.query(node), node.outputs)
        return 0 if found is None else found.flops

    # f(x, c) = f'(x) with c inside f'
    def _sink_captures(self, node: Node) -> None:
        """Constants among the captures move into the nested graphs. Outer constants are shared, not
        copied.
        """
        count = captures(node)
        formal = len(node.inputs) - count
        sunk = {}
        for position, ref in enumerate(node.inputs[formal:]):
            producer = self.graph[ref.node] if ref is not None else None
            if producer is None or producer.value is None:
                continue
            entries = [capture_input(body, count, position) for body in node.bodies.values()]
            if not any(contradict(entry.type, producer.type) for entry in entries):
                sunk[position] = producer
        if not sunk:
            return
        for body in node.bodies.values():
            for position, producer in sunk.items():
                made = capture_input(body, count, position)
                _sink(body, made, producer, self._rewriter.pass_name)
        drop_captures(node, sunk)
        self._rewriter.rules[_CAPTURE] += len(sunk)
        refs = [producer.ref() for producer in sunk.values()]
        remove_unread(self._rewriter, refs, reason=Reason.FOLDED, rule=_CAPTURE, into=node.id)


def _sink(body: Graph, entry: Node, producer: Node, pass_name: str) -> None:
    assert producer.value is not None
    creation = (
        Creation(((producer.id, EdgeKind.COPY),), pass_name, _CAPTURE) if producer.origin else None
    )
    constant = Node(
        body.new_id(),
        "Const",
        (),
        producer.outputs,
        name=producer.name,
        origin=producer.origin,
        value=producer.value,
        creation=creation,
    )
    Change(
        body, pass_name, _CAPTURE, consts=[constant], redirects={entry.ref(): constant.ref()}
    ).apply()


def _is_empty(node: Node) -> bool:
    """Is nothing computed, because every output is a tensor without elements?"""
    if REGISTRY[node.op].pattern > Pattern.INJECTIVE or node.op in _CHECKING:
        return False
    return all(
        isinstance(kind, TensorType)
        and kind.is_static
        and kind.elements == 0
        and kind.dtype is not DType.UNDEFINED
        # NumPy has no array whose other axes are larger than any memory.
        and kind.dtype.numpy.itemsize * math.prod(filter(None, kind.static_shape or ()))
        <= np.iinfo(np.intp).max
        for kind in node.outputs
    )


def _surely_has_elements(kind: ValueType) -> bool:
    """Is it a tensor whose sizes are numbers, none of them 0? Expressions are not asked, which
    would leave a guard.
    """
    shape = kind.shape if isinstance(kind, TensorType) else None
    return shape is not None and _NUMBERS.issuperset(map(type, shape)) and 0 not in shape


def _evaluate(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
    try:
        return evaluate(Call(node.op, node.attrs, inputs, len(node.outputs)))
    except (WhenceError, RuntimeError, AttributeError):
        return None


def _characters(inputs: tuple[Value, ...]) -> int:
    """How much text there is: its size is not that of the array."""
    return sum(
        len(item)
        for value in inputs
        if isinstance(value, np.ndarray) and value.dtype == np.object_
        for item in value.reshape(-1).tolist()
        if isinstance(item, str | bytes)
    )


def _fits(value: Value, declared: ValueType) -> bool:
    """Is it a tensor, and of the type the graph declares?"""
    return isinstance(value, np.ndarray) and not contradict(declared, TensorType.of(value))


def _compact(value: np.ndarray) -> np.ndarray:
    """The same tensor in memory of its own order: a transposed view is slow to read, again and
    again.
    """
    return value if value.flags.c_contiguous else np.ascontiguousarray(value)
