"""Convolutions move to the channel-blocked layout, and take everything between them along.

1. conv(x, w, b, z) = from_blocked(blocked_conv(to_blocked(x), w, b, to_blocked(z))); a first layer
   of few channels reads its input as it is
2. convolutions in groups of few channels work on several groups at once, with zeros between them;
   transposed ones make each phase of the result as channels of its own
3. f(from_blocked(x)) = from_blocked(f'(x)) for operators that treat each channel by itself:
   elementwise ones, pools, reductions and moves over space, and concatenations and splits at
   multiples of a block
4. to_blocked(from_blocked(x)) = x
5. from_blocked(x) = reshape(x) where there is one pixel and every block is full, and likewise
   to_blocked

An operator between convolutions is reached after all that it reads, so one walk over the list moves
whole networks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Edit, Graph, Node, NodeFlag, Ref, Rewriter
from whence.graph.search import producer_of
from whence.ops.attributes import get_int
from whence.ops.definition import OpClass
from whence.ops.registry import operators
from whence.ops.tensor.shape import size_array
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.layout.blocked_op import (
    HAVE_BLOCKED_FORMS,
    BlockedInput,
    BlockedLayout,
    Form,
    Input,
    Layouts,
    Spread,
    StepOutput,
    blocked_form,
    one_step,
    spatial_attrs,
    static_float,
)
from whence.passes.layout.blocked_transpose import transposed_form
from whence.passes.simplify.remove_dead_nodes import remove_unread
from whence.provenance import EdgeKind, Reason
from whence.types import same_shape

_OTHER_LAYOUTS = operators(Trait.BLOCKED) | operators(Trait.CHANNELS_LAST)
_CONVOLUTIONS = operators(Trait.CONVOLUTION) - _OTHER_LAYOUTS
_TRANSPOSED = operators(Trait.TRANSPOSED_CONVOLUTION) - _OTHER_LAYOUTS
# A convolution with fewer results than this leaves most of a vector empty; it is not worth a
# conversion.
_FEW_CHANNELS = 8
# So few groups may all be joined, however few channels of them are left over.
_FEW_GROUPS = 8
_CANCELLED = "to_blocked(from_blocked(x)) = x"


@dataclass(frozen=True, slots=True)
class BlockChannels(RulePass):
    """Moves convolutions with constant weights and known shapes to tensors in blocks of `block`
    channels.
    """

    block: int = 16

    name = "block_channels"
    summary = "compute convolutions, and what lies between them, in channel-blocked layout"
    classes = OpClass.CONV
    anchors = _CONVOLUTIONS | _TRANSPOSED | HAVE_BLOCKED_FORMS | {"ToBlocked"}

    def run(self, rewriter: Rewriter) -> None:
        RulePass.run(self, rewriter)
        for node in rewriter.graph:
            if node.op in operators(Trait.RELAYOUT):
                _see_as_reshape(node, rewriter)

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if NodeFlag.NO_LAYOUT_CHANGE in node.flags:
            return
        if node.op == "ToBlocked":
            _cancel(node, rewriter)
            return
        graph = rewriter.graph
        layouts = _layouts(graph, node, self.block)
        # 1. conv(x, w, b, z) = from_blocked(blocked_conv(to_blocked(x), w, b, to_blocked(z)))
        if node.op in _CONVOLUTIONS:
            rule = "conv(x) = from_blocked(blocked_conv(to_blocked(x)))"
            form = self._convolution(graph, node, layouts)
        # 2. transposed convolutions make each phase of the result as channels
        elif node.op in _TRANSPOSED:
            rule = "conv_transpose(x) = shuffle(blocked_conv(x))"
            form = transposed_form(graph, node, layouts, self.block)
        # 3. f(from_blocked(x)) = from_blocked(f'(x))
        else:
            rule = f"{node.op}(from_blocked(x)) = from_blocked({node.op}(x))"
            form = blocked_form(graph, node, layouts, self.block) if layouts else None
        if form is not None:
            self._replace(node, rewriter, form, rule)

    def _convolution(self, graph: Graph, node: Node, layouts: Layouts) -> Form | None:
        source, weights = node.first_input, node.operand("W")
        bias, addend = node.operand("B"), node.operand("Z")
        x, y, w = (static_float(graph, ref) for ref in (source, node.ref(), weights))
        if (
            x is None
            or y is None
            or w is None
            or len(x) not in {3, 4}
            or graph.const_value(weights) is None
        ):
            return None
        if bias is not None and (
            graph.const_value(bias) is None or static_float(graph, bias) is None
        ):
            return None
        if addend is not None and not same_shape(static_float(graph, addend), y):
            return None
        groups = get_int(node.attrs, "group", 1)
        joined = self._joined_groups(groups, x[1], y[1])
        if joined is None or (y[1] < _FEW_CHANNELS and source not in layouts):
            return None
        plain = x[1] < self.block and groups == joined and source not in layouts
        attrs = spatial_attrs(node, x[2:], w[2:]) | {"group": groups // joined}
        attrs |= {"block": self.block, "channels_in": x[1], "channels_out": y[1]} | (
            {"plain_input": 1} if plain else {}
        )
        if not plain and x[1] // groups * joined > self.block:
            # Kernels leave out blocks of channels that are zeros for all of a panel's outputs.
            attrs |= {"joined": joined} if joined > 1 else {}
        taken_weights: Input = weights
        if len(w) == 3 or joined > 1:
            value = np.asarray(graph.const_value(weights))
            taken_weights = _join_groups(
                value.reshape(*w[:2], *(1,) * (4 - len(w)), *w[2:]), groups, joined
            )
        taken: Input = (
            (source if len(x) == 4 else Spread(source)) if plain else BlockedInput(source)
        )
        taken_addend = None if addend is None else BlockedInput(addend)
        inputs = (taken, taken_weights, bias, taken_addend)
        return one_step("BlockedConv", inputs, attrs, BlockedLayout(y[1], len(y)))

    def _joined_groups(self, groups: int, taken: int, made: int) -> int | None:
        """How many groups together are whole blocks of channels, all of them if need be; `None`
        when that would be mostly zeros.
        """
        if groups == 1 or groups == taken == made:
            return 1
        for count in range(1, min(groups, self.block) + 1):
            if groups % count == 0 and not any(
                channels // groups * count % self.block for channels in (taken, made)
            ):
                return count
        return groups if groups <= _FEW_GROUPS else None

    def _replace(self, node: Node, rewriter: Rewriter, form: Form, rule: str) -> None:
        steps, layouts = form
        edit = rewriter.edit(node, rule=rule)
        made: list[Node] = []
        for number, step in enumerate(steps):
            inputs = [self._input(edit, node, given, made) for given in step.inputs]
            outputs = max(len(layouts), 1) if number == len(steps) - 1 else 1
            made.append(
                edit.node(
                    step.op,
                    inputs,
                    step.attrs,
                    n_outputs=outputs,
                    kind=EdgeKind.LOWER if len(steps) == 1 else EdgeKind.SPLIT,
                )
            )
        for index, (channels, rank) in enumerate(layouts):
            attrs = {"channels": channels} | ({"rank": rank} if rank != 4 else {})
            edit.replace(
                node.ref(index),
                edit.node(
                    "FromBlocked",
                    [made[-1].ref(index)],
                    attrs,
                    node.outputs[index],
                    kind=EdgeKind.INSERT,
                ).ref(),
            )
        if not layouts:
            edit.replace(node, made[-1])
        edit.apply()
        remove_unread(
            rewriter, node.inputs, reason=Reason.CANCELLED, rule=_CANCELLED, into=made[0].id
        )

    def _input(self, edit: Edit, node: Node, given: Input, made: list[Node]) -> Ref | None:
        match given:
            case np.ndarray():
                return edit.const(given)
            case StepOutput(step):
                return made[step].ref()
            case BlockedInput(ref):
                return self._blocked_ref(edit, node, ref)
            case Spread(ref):
                return _spread(edit, ref, node.op in _CONVOLUTIONS | _TRANSPOSED)
        return given

    def _blocked_ref(self, edit: Edit, node: Node, ref: Ref) -> Ref:
        """The blocked form of a plain value: what it was converted from, what it is converted to
        already, or a new conversion.
        """
        graph = edit.graph
        before = producer_of(graph, ref, "FromBlocked")
        if before is not None and _block_of(graph, before.first_input) == self.block:
            return before.first_input
        for user in graph.consumers(graph[ref.node]):
            if (
                user.op == "ToBlocked"
                and user.inputs[0] == ref
                and user.attrs.get("block") == self.block
                and graph.precedes(user, node)
            ):
                return user.ref()
        return edit.node("ToBlocked", [ref], {"block": self.block}, kind=EdgeKind.INSERT).ref()


# 2. convolutions in groups of few channels work on several groups at once
def _join_groups(weights: np.ndarray, groups: int, count: int) -> np.ndarray:
    """Grouped OIHW weights for `count` groups at a time: each output channel has zeros for the
    inputs of the other groups.
    """
    out, depth, *kernel = weights.shape
    if count == 1:
        return weights
    blocks = weights.reshape(groups // count, count, out // groups, depth, *kernel)
    joined = np.zeros((groups // count, count, out // groups, count, depth, *kernel), weights.dtype)
    for each in range(count):
        joined[:, each, :, each] = blocks[:, each]
    return joined.reshape(out, count * depth, *kernel)


def _layouts(graph: Graph, node: Node, block: int) -> Layouts:
    """Which inputs of the node have blocked twins."""
    found: dict[Ref, BlockedLayout] = {}
    for ref in node.inputs:
        before = producer_of(graph, ref, "FromBlocked")
        if ref is not None and before is not None and _block_of(graph, before.inputs[0]) == block:
            found[ref] = BlockedLayout(
                get_int(before.attrs, "channels", 0), get_int(before.attrs, "rank", 4)
            )
    return found


def _block_of(graph: Graph, ref: Ref | None) -> int | None:
    shape = static_float(graph, ref)
    return None if shape is None else shape[4]


def _spread(edit: Edit, ref: Ref, for_convolution: bool) -> Ref:
    """A plain value seen with one row, if it has none, and with one place to a block, unless a
    convolution reads it plain.
    """
    shape = static_float(edit.graph, ref)
    assert shape is not None
    four = (*shape[:2], *(1,) * (4 - len(shape)), *shape[2:])
    wanted = size_array(four if for_convolution else (*four, 1))
    return edit.node("Reshape", [ref, edit.const(wanted)], kind=EdgeKind.INSERT).ref()


# 4. to_blocked(from_blocked(x)) = x
def _cancel(node: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    before = producer_of(graph, node.inputs[0], "FromBlocked")
    if before is not None and graph.type_of(before.first_input) == node.type:
        source = before.first_input
        rewriter.bypass(node, source, reason=Reason.CANCELLED, rule=_CANCELLED, undone=[before])


# 5. from_blocked(x) = reshape(x) where there is one pixel and every block is full
def _see_as_reshape(node: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    plain = node.ref() if node.op == "FromBlocked" else node.inputs[0]
    blocked = node.inputs[0] if node.op == "FromBlocked" else node.ref()
    before, after = static_float(graph, plain), static_float(graph, blocked)
    if before is None or after is None or before[1] % after[4] or set(before[2:]) != {1}:
        return
    target = before if node.op == "FromBlocked" else after
    edit = rewriter.edit(node, rule=f"{node.op} of one pixel = Reshape")
    made = edit.node("Reshape", [node.inputs[0], edit.sizes(target)], types=node.outputs)
    edit.finish(node, made)
