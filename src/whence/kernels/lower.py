"""From fused operators to kernels: which family lowers a group, and what happens to one that no
family covers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whence.errors import UnsupportedError
from whence.fusion import FusedGraph, FuseEntry
from whence.fusion.patterns import is_inlined
from whence.graph import Graph, Node, Ref
from whence.kernels.attention import lower_attention
from whence.kernels.cache import lower_append
from whence.kernels.choice import NO_CHOICES, Choices, chosen, lower_choice
from whence.kernels.conv.algorithm import lower_blocked_conv
from whence.kernels.conv.general import CONV_GENERAL_OPS, lower_conv_general
from whence.kernels.conv.pool import POOL_OPS, lower_pool
from whence.kernels.counted import lower_distinct, lower_places
from whence.kernels.detection import lower_detection
from whence.kernels.group import RULES, Group
from whence.kernels.integer.conv import lower_integer_conv
from whence.kernels.integer.product import lower_integer_gemm
from whence.kernels.ir import Kernel
from whence.kernels.loops.nest import lower_loopnest
from whence.kernels.loops.reduce import REDUCTIONS, lower_reduce
from whence.kernels.loops.rows import ROW_OPS, lower_rows
from whence.kernels.loops.scatter import SCATTER_OPS, lower_scatter
from whence.kernels.loops.select import ARG_OPS, RUNNING_OPS, lower_arg, lower_running
from whence.kernels.product.bf16x2 import lower_product
from whence.kernels.product.gemm import GEMM_OPS
from whence.kernels.product.packed import lower_packed
from whence.kernels.recurrent import RECURRENT_OPS, lower_recurrent
from whence.kernels.rules.quantise import lower_dynamic_quantise
from whence.kernels.tile import Tile
from whence.kernels.topk import lower_topk
from whence.ops.definition import Pattern
from whence.ops.neural.grouped_attention import APPEND
from whence.ops.quantised import blockwise
from whence.ops.registry import REGISTRY, operators
from whence.ops.tensor.counted import DISTINCT, PLACES, PREFIX, ROWS
from whence.ops.traits import Trait
from whence.types import DType, TensorType

# They change how a tensor is read, not a byte of it: their output is their input.
VIEWS = operators(Trait.VIEW)

# A compiler takes more than twice as long for a function twice as long. Our own grouping stays far
# below; NNVM's has no limit.
_MOST_MEMBERS = 512

_Family = Callable[[Group, Node, Tile], Kernel]
FAMILIES: Mapping[str, _Family] = {
    **dict.fromkeys(GEMM_OPS, lower_product),
    blockwise.MATMUL: lower_packed,
    "BlockedConv": lower_blocked_conv,
    **dict.fromkeys(CONV_GENERAL_OPS, lower_conv_general),
    **dict.fromkeys(POOL_OPS, lower_pool),
    "IntegerConv": lower_integer_conv,
    "MatMulInteger": lower_integer_gemm,
    "Attention": lower_attention,
    APPEND: lower_append,
    **dict.fromkeys(RECURRENT_OPS, lower_recurrent),
    "DynamicQuantizeLinear": lambda group, anchor, _: lower_dynamic_quantise(group, anchor),
    **dict.fromkeys(REDUCTIONS, lambda group, anchor, _: lower_reduce(group, anchor)),
    **dict.fromkeys(ROW_OPS, lambda group, anchor, _: lower_rows(group, anchor)),
    **dict.fromkeys(SCATTER_OPS, lambda group, anchor, _: lower_scatter(group, anchor)),
    **dict.fromkeys(ARG_OPS, lambda group, anchor, _: lower_arg(group, anchor)),
    "TopK": lambda group, anchor, _: lower_topk(group, anchor),
    DISTINCT: lambda group, anchor, _: lower_distinct(group, anchor),
    PLACES: lambda group, anchor, _: lower_places(group, anchor),
    "DetectionPostProcess": lambda group, anchor, _: lower_detection(group, anchor),
    **dict.fromkeys(RUNNING_OPS, lambda group, anchor, _: lower_running(group, anchor)),
}

_CLOSED = RECURRENT_OPS | {blockwise.MATMUL, APPEND, "DetectionPostProcess"}
"""The operators whose kernels are for numbers; those of other families serve any sizes."""
_ONLY_SIZES = (PREFIX, ROWS)
"""What these make is a size."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do at run time."""

    name: str
    entry: int
    """The id of the fused operator it belongs to."""
    members: tuple[Node, ...]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    kernel: Kernel | None
    """`None`: a view when `is_view`, else the reference implementation."""
    is_view: bool = False
    why_reference: str = ""


def lower(fused: FusedGraph, tile: Tile, choices: Choices = NO_CHOICES) -> list[Step]:
    """The steps of a fused graph, in order. A group that cannot be one kernel becomes a step for
    each member.

    Where `choices` has none for a problem, the cost model chooses.
    """
    return [step for entry in fused for step in _lower_entry(fused.graph, entry, tile, choices)]


def _lower_entry(graph: Graph, entry: FuseEntry, tile: Tile, choices: Choices) -> Sequence[Step]:
    if (
        all(node.op in VIEWS for node in entry.members)
        and len(entry.outputs) == 1
        and _is_static(entry.members)
    ):
        source = next(ref for ref in entry.members[0].inputs if ref is not None)
        return [
            Step(entry.name, entry.id, entry.members, (source,), entry.outputs, None, is_view=True)
        ]
    if len(entry.members) <= _MOST_MEMBERS:
        group = Group(graph, entry.name, entry.members, entry.inputs, entry.outputs)
        try:
            return [_kernel_step(entry, group, entry.anchor, tile, choices)]
        except UnsupportedError as error:
            if len(entry.members) == 1:
                return [reference_step(entry.id, entry.members[0], str(error))]
    return [_lower_member(graph, entry, node, tile, choices) for node in entry.members]


def _kernel_step(
    entry: FuseEntry, group: Group, anchor: Node, tile: Tile, choices: Choices
) -> Step:
    kernel = lower_group(group, anchor, tile, choices)
    return Step(group.name, entry.id, group.members, group.inputs, group.outputs, kernel)


def _lower_member(graph: Graph, entry: FuseEntry, node: Node, tile: Tile, choices: Choices) -> Step:
    """One member of a group that could not stay together."""
    outputs = tuple(node.ref(index) for index in range(len(node.outputs)))
    if node.op in VIEWS and _is_static((node,)):
        source = node.first_input
        return Step(node.op, entry.id, (node,), (source,), outputs, None, is_view=True)
    # What follows from the dimensions of a call is part of the code, here as in a group.
    inputs = tuple(
        dict.fromkeys(
            ref
            for index, ref in enumerate(node.inputs)
            if ref is not None and (graph[ref.node].is_const or not is_inlined(graph, node, index))
        )
    )
    name = f"op_{node.op.lower().replace('::', '_').replace('.', '_')}"
    try:
        group = Group(graph, name, (node,), inputs, outputs)
        return _kernel_step(entry, group, node, tile, choices)
    except UnsupportedError as error:
        return reference_step(entry.id, node, str(error))


def reference_step(
    entry: int, node: Node, why: str, outputs: tuple[Ref, ...] | None = None
) -> Step:
    """The operator by its reference implementation; `outputs` are what it makes, if not its own."""
    inputs = tuple(dict.fromkeys(ref for ref in node.inputs if ref is not None))
    if outputs is None:
        outputs = tuple(map(node.ref, range(len(node.outputs))))
    return Step(f"reference_{node.op}", entry, (node,), inputs, outputs, None, why_reference=why)


def lower_group(group: Group, anchor: Node, tile: Tile, choices: Choices = NO_CHOICES) -> Kernel:
    """One kernel for the group. Raises `UnsupportedError` when no family covers it."""
    if anchor.op == "Continuation":
        raise UnsupportedError("what is behind a size that only a run knows is compiled in the run")
    for node in group.members:
        # Before its shape is looked at: no shape would help.
        if node.op not in RULES and node.op not in FAMILIES and node.op not in _ONLY_SIZES:
            raise UnsupportedError(f"{node.op} has no native kernel")
    if not _is_static(group.members):
        raise UnsupportedError(f"'{anchor.name}' has a shape that is known only at run time")
    if _has_empty(group):
        raise UnsupportedError(f"'{anchor.name}' reads or makes a tensor without elements")
    dimensions = group.dimensions
    if dimensions and anchor.op in _CLOSED:
        group = replace(group, is_closed=True)
    kernel = _lowered(group, anchor, tile, choices)
    return replace(kernel, dimensions=dimensions) if dimensions else kernel


def _lowered(group: Group, anchor: Node, tile: Tile, choices: Choices) -> Kernel:
    choice = chosen(group, anchor, tile, choices)
    if choice is not None:
        return lower_choice(group, anchor, tile, choice)
    family = FAMILIES.get(anchor.op)
    if family is not None:
        return family(group, anchor, tile)
    for node in group.members:
        if node.op not in RULES:
            raise UnsupportedError(f"{node.op} has no native kernel")
    return lower_loopnest(group)


def _has_empty(group: Group) -> bool:
    """Is a tensor of the group without elements? Index arithmetic divides by dimensions, and there
    is nothing to be quick about. A concatenation may have empty parts, which it never reads, and
    element by element nothing is divided.
    """
    if all(REGISTRY[node.op].pattern <= Pattern.BROADCAST for node in group.members):
        return False
    made = [kind for node in group.members for kind in node.outputs]
    read = [] if group.members[0].op == "Concat" and len(group.members) == 1 else group.inputs
    kinds = [*made, *(group.graph.type_of(ref) for ref in read)]
    return any(isinstance(kind, TensorType) and kind.elements == 0 for kind in kinds)


def _is_static(nodes: Sequence[Node]) -> bool:
    return all(
        isinstance(kind, TensorType) and kind.is_static and kind.dtype is not DType.UNDEFINED
        for node in nodes
        for kind in node.outputs
    )
