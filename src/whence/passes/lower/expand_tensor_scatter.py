"""TensorScatter becomes a ScatterElements, which has a kernel and can change a cache where it lies.

place[b, i] = write_indices[b] + i, modulo the length where the mode is circular
present = scatter(past, place, update) along the axis
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.extent import is_symbolic
from whence.graph import Node, Rewriter
from whence.ops.attributes import get_int, get_str
from whence.ops.registry import one_of
from whence.passes.base import RulePass
from whence.passes.origins import lowering
from whence.passes.pattern import static_shape_of
from whence.types import DType

_RULE = "an update at one place for each batch item = a scatter of its rows"


@dataclass(frozen=True, slots=True)
class ExpandTensorScatter(RulePass):
    name = "expand_tensor_scatter"
    summary = "TensorScatter becomes ScatterElements"
    anchors = one_of("TensorScatter")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        past, update = node.operand("past_cache"), node.operand("update")
        cache, shape = static_shape_of(graph, past), static_shape_of(graph, update)
        if cache is None or shape is None:
            return
        rank = len(shape)
        axis = get_int(node.attrs, "axis", -2) % rank
        length = cache[axis]
        if is_symbolic(shape[axis]) or is_symbolic(length):
            return
        make = lowering(rewriter, node, _RULE)
        edit = make.edit
        along = [shape[axis] if at == axis else 1 for at in range(rank)]
        places = edit.const(np.arange(shape[axis], dtype=np.int64).reshape(along))
        first = node.operand("write_indices")
        if first is not None:
            batches = edit.sizes([shape[0], *[1] * (rank - 1)])
            starts = make.cast(make("Reshape", first, batches), DType.I64)
            places = make("Add", places, starts)
        end = edit.const(np.array(length, np.int64))
        if get_str(node.attrs, "mode", "linear") == "circular":
            places = make("Mod", places, end)
        elif first is not None:
            # A scatter would count a negative place from the end; here there is none before 0.
            places = make("Where", make("Less", starts, np.int64(0)), end, places)
        whole = make("Expand", places, edit.sizes(list(shape)))
        made = make("ScatterElements", past, whole, update, axis=axis)
        edit.finish(node.ref(), made)
