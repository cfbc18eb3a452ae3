"""Products of matrices whose batch was numbered through, only to be counted by axes again.

PyTorch's decompositions write every product of more than two axes as one over a single batch:
reshape to three axes, bmm, reshape back. Some exporters do the same with a whole attention.

    reshape(matmul(a, b)) = matmul(reshape(a), reshape(b)), where the reshape divides the batch
    alone

What is found between that reshape and the product, and between the product and reshapes that
numbered its operands through, works on the last two axes or on single elements, and takes the
divided batch as well: a transpose of the last two axes, a softmax along the last, elementwise
functions. Applied only where no reshape is added that was not there: values that lead to the
product either were divided like that before, or are constant.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from whence.extent import is_symbolic
from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.ops.attributes import get_int
from whence.ops.definition import Attr, OpClass
from whence.ops.registry import lookup, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.layout.axes import last_two_swapped, perm_of
from whence.passes.operands import is_float
from whence.passes.origins import consts_with_origin
from whence.passes.pattern import same_dim, shape_of
from whence.provenance import Reason
from whence.types import Dim, Shape

_RESHAPES = operators(Trait.RESHAPE)
_MAX_NODES = 16
"""Between a reshape and those before its product; the products and sums of one attention."""


@dataclass(frozen=True, slots=True)
class SplitProductBatch(RulePass):
    """Divide the batch of a product before it instead of after."""

    name = "split_product_batch"
    summary = "divide the batch of a product before it instead of after"
    classes = OpClass.MATMUL
    anchors = _RESHAPES

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph, value = rewriter.graph, node.first_input
        before, after = shape_of(graph, value), shape_of(graph, node.ref())
        if (
            before is None
            or after is None
            or len(before) != 3
            or len(after) < 4
            or not is_float(graph, value)
            or not all(map(same_dim, before[1:], after[-2:]))
        ):
            return
        region = _Region(graph, before[0], after[:-2])
        if (
            not region.add(value, node)
            or not region.cancels
            or all(each.op != "MatMul" for each in region.nodes.values())
        ):
            return
        edit = rewriter.edit(
            *consts_with_origin(graph, [*region.constants]),
            *region.cancels.values(),
            *reversed(region.nodes.values()),
            node,
            rule="reshape(matmul(a, b)) = matmul(reshape(a), reshape(b))",
        )
        result = region.build(edit, value, {})
        edit.replace(node.ref(), result)
        for each in (*region.cancels.values(), node):
            edit.tombstone(each, Reason.CANCELLED, into=result.node)
        edit.apply()


@dataclass(slots=True)
class _Region:
    """What makes a value of three axes, up to the reshapes that made three of more."""

    graph: Graph
    batch: Dim
    lead: Shape
    """What the batch is divided into."""
    nodes: dict[int, Node] = field(default_factory=dict)
    """From the result towards the operands."""
    cancels: dict[Ref, Node] = field(default_factory=dict)
    """Reshapes that numbered the batch through, by what they make."""
    constants: dict[Ref, np.ndarray] = field(default_factory=dict)
    """With the divided batch."""

    def add(self, ref: Ref, user: Node) -> bool:
        """Can `ref`, which has the batch, be had with the divided one instead?"""
        graph, node, shape = self.graph, self.graph.producer(ref), shape_of(self.graph, ref)
        if node.id in self.nodes or ref in self.cancels or ref in self.constants:
            return True
        assert shape is not None
        wanted = (*self.lead, *shape[1:])
        if node.op in _RESHAPES:
            source = shape_of(graph, node.inputs[0])
            if source is None or len(source) != len(wanted):
                return False
            self.cancels[ref] = node
            return all(map(same_dim, source, wanted))
        value = graph.const_value(ref)
        if value is not None:
            sizes = [dim for dim in wanted if isinstance(dim, int) and not is_symbolic(dim)]
            if len(sizes) < len(wanted):
                return False
            self.constants[ref] = value.reshape(sizes)
            return True
        if len(self.nodes) == _MAX_NODES or set(node._uses) != {user.id} or len(node.outputs) != 1:
            return False
        operands = self._operands(node)
        if not operands:
            return False
        self.nodes[node.id] = node
        return all(self.add(each, node) for each in operands)

    def _operands(self, node: Node) -> list[Ref]:
        """Those that have the batch too, if the node does not care how it is divided."""
        if node.op == "Transpose":
            takes = perm_of(self.graph, node) == last_two_swapped(3)
        elif node.op == "Softmax":
            takes = get_int(node.attrs, "axis", -1) in {-1, 2}
        else:
            takes = node.op == "MatMul" or lookup(node.op).by_element
        found = []
        for ref in node.inputs if takes else ():
            shape = shape_of(self.graph, ref)
            if ref is None or shape is None or len(shape) > 3:
                return []
            if len(shape) == 3 and same_dim(shape[0], self.batch):
                found.append(ref)
            elif not _broadcasts(node, shape):
                return []
        return found

    def build(self, edit: Edit, ref: Ref, made: dict[Ref, Ref]) -> Ref:
        """`ref` with the divided batch, if it has the batch."""
        if ref in made:
            return made[ref]
        if ref in self.cancels:
            source = self.cancels[ref].first_input
            made[ref] = source
        elif ref in self.constants:
            made[ref] = edit.const(self.constants[ref])
        elif ref.node in self.nodes:
            node = self.nodes[ref.node]
            inputs = [
                None if each is None else self.build(edit, each, made) for each in node.inputs
            ]
            constants = [each for each in node.inputs if each in self.constants]
            of = (*consts_with_origin(self.graph, constants), node)
            new = edit.node(node.op, inputs, self._attrs(node), of=of, name=node.name)
            made[ref] = new.ref()
        else:
            made[ref] = ref
        return made[ref]

    def _attrs(self, node: Node) -> dict[str, Attr]:
        attrs = dict(node.attrs)
        if node.op == "Transpose":
            attrs["perm"] = last_two_swapped(len(self.lead) + 2)
        elif node.op == "Softmax":
            attrs["axis"] = -1
        return attrs


def _broadcasts(node: Node, shape: Shape) -> bool:
    """Is such an operand the same for the whole batch, however many axes it has?"""
    if len(shape) == 3:
        return same_dim(shape[0], 1)
    return len(shape) == 2 or node.op != "MatMul"
