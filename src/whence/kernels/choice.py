"""What can be chosen for a kernel beyond what it computes: which algorithm, which register tile,
which work items.

A choice is a plan of one of the families. The cost model makes one for every problem; another one,
found by timing, may take its place. A problem is what decides which is fastest: the anchor's
operator, its attributes and the shapes of its operands. What it is called, and what is fused behind
it or added to it, is left out, so that a layer finds what was learnt from another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.conv.algorithm import plan_algorithm
from whence.kernels.conv.bf16x2 import Bf16x2ConvPlan, bf16x2_conv_plans, lower_bf16x2_conv
from whence.kernels.conv.depthwise import SlidePlan, depthwise_plans, is_depthwise, lower_depthwise
from whence.kernels.conv.direct import conv_sizes, lower_conv
from whence.kernels.conv.plan import ConvPlan
from whence.kernels.conv.winograd import WinogradPlan, lower_winograd, winograd_plans
from whence.kernels.group import Group
from whence.kernels.ir import Kernel
from whence.kernels.product.bf16x2 import Bf16x2GemmPlan, bf16x2_gemm_plans, lower_bf16x2_gemm
from whence.kernels.product.gemm import GEMM_OPS, GemmPlan, gemm_plans, lower_gemm
from whence.kernels.tile import Tile

Choice = ConvPlan | WinogradPlan | Bf16x2ConvPlan | SlidePlan | GemmPlan | Bf16x2GemmPlan
Choices = Mapping[str, Choice]
"""By problem."""

NO_CHOICES: Choices = {}

_KINDS: Mapping[str, tuple[type[Choice], Callable[[Group, Node, Tile, Any], Kernel]]] = {
    "direct": (ConvPlan, lower_conv),
    "winograd": (WinogradPlan, lower_winograd),
    "bf16x2": (Bf16x2ConvPlan, lower_bf16x2_conv),
    "depthwise": (SlidePlan, lower_depthwise),
    "product": (GemmPlan, lower_gemm),
    "product by bf16x2": (Bf16x2GemmPlan, lower_bf16x2_gemm),
}
_TUNABLE = GEMM_OPS | {"BlockedConv"}
# What is done to each sum, not how it is summed; and what the weights' shape says already.
_LEFT_OUT = frozenset(
    {"activation", "activation_alpha", "activation_beta", "alpha", "beta", "kernel_shape"}
)


def problem_of(group: Group, anchor: Node, tile: Tile) -> str | None:
    """What decides which choice is fastest, in words; `None` for an anchor that leaves no
    choice.
    """
    if anchor.op not in _TUNABLE:
        return None
    operands = [_operand(group, anchor, position) for position in range(2)]
    # Zero is what the others are when they are not given.
    attrs = [
        f"{name}={_plain(value)}"
        for name, value in sorted(anchor.attrs.items())
        if name not in _LEFT_OUT and value != 0
    ]
    machine = (
        f"{tile.rows}x{tile.vectors}x{tile.lanes}"
        f" {tile.cache_bytes}{'' if tile.transforms else ' untransformed'}"
    )
    return "; ".join([anchor.op.removeprefix("Fused"), *operands, *attrs, machine])


def _operand(group: Group, anchor: Node, position: int) -> str:
    ref = anchor.inputs[position]
    assert ref is not None
    sizes = ",".join(map(str, group.shape(ref)))
    return (
        f"{'const ' if group.graph.const_value(ref) is not None else ''}{group.dtype(ref)}[{sizes}]"
    )


def _plain(value: Any) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple | list) else str(value)


def candidates(group: Group, anchor: Node, tile: Tile) -> tuple[Choice, ...]:
    """All that is worth timing, each once, what the cost model takes first. Empty for an anchor
    that leaves no choice, or has no kernel.
    """
    try:
        return tuple(dict.fromkeys(_candidates(group, anchor, tile)))
    except UnsupportedError:
        return ()


def _candidates(group: Group, anchor: Node, tile: Tile) -> Iterator[Choice]:
    if anchor.op in GEMM_OPS:
        yield from bf16x2_gemm_plans(group, anchor, tile)
        yield from gemm_plans(group, anchor, tile)
    elif anchor.op == "BlockedConv" and is_depthwise(anchor):
        yield from depthwise_plans(group, anchor, tile)
    elif anchor.op == "BlockedConv":
        usual = plan_algorithm(group, anchor, tile)
        if usual is not None:
            yield usual
        yield from conv_sizes(group, anchor, tile).plans()
        yield from winograd_plans(group, anchor, tile)
        yield from bf16x2_conv_plans(group, anchor, tile)


def chosen(group: Group, anchor: Node, tile: Tile, choices: Choices) -> Choice | None:
    """What `choices` has for the problem, if that is something that could have been chosen; `None`
    leaves it to the cost model.
    """
    if (
        not choices
        # Where sizes are open, what is fastest for one of them may be slow for others.
        or group.dimensions
        or (problem := problem_of(group, anchor, tile)) is None
        or (found := choices.get(problem)) is None
    ):
        return None
    return found if found in candidates(group, anchor, tile) else None


def lower_choice(group: Group, anchor: Node, tile: Tile, choice: Choice) -> Kernel:
    """The kernel of the group, divided as was chosen."""
    _, lower = _KINDS[kind_of(choice)]
    return lower(group, anchor, tile, choice)


def kind_of(choice: Choice) -> str:
    """The algorithm, in a word."""
    return next(name for name, (kind, _) in _KINDS.items() if isinstance(choice, kind))


def encode_choice(choice: Choice) -> dict[str, Any]:
    """The choice as JSON."""
    return {"kind": kind_of(choice), **asdict(choice)}


def decode_choice(record: Mapping[str, Any]) -> Choice:
    """The choice that was encoded. Raises `ValueError` for anything else."""
    kind, _ = _KINDS.get(str(record.get("kind")), (None, None))
    if kind is None or set(record) != {"kind", *(field.name for field in fields(kind))}:
        raise ValueError(f"{dict(record)} is no choice of a kernel")
    values = {field.name: record[field.name] for field in fields(kind)}
    if any(
        type(value).__name__ != field.type
        for field, value in zip(fields(kind), values.values(), strict=True)
    ):
        raise ValueError(f"{dict(record)} has a value of another type")
    return kind(**values)
