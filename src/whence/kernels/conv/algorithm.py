"""Which way to convolve on channel-blocked tensors: the cheapest, by what each way says it
takes.
"""

from __future__ import annotations

from whence.extent import is_symbolic
from whence.graph import Node
from whence.kernels.conv.bf16x2 import Bf16x2ConvPlan, cheapest_bf16x2_conv, lower_bf16x2_conv
from whence.kernels.conv.depthwise import is_depthwise, lower_depthwise
from whence.kernels.conv.direct import lower_conv, share_reached
from whence.kernels.conv.winograd import WinogradPlan, cheapest_winograd, lower_winograd
from whence.kernels.group import Group
from whence.kernels.ir import Kernel
from whence.kernels.tile import Tile

# Whoever else runs on a core shares its matrix units and its nearest cache: products by matrix
# units then take up to three times as long, those by vectors less than twice.
_CAUTION = 1.5
# Where joined groups leave so much of the sums out, the direct way, which does leave it out, is
# best.
_LITTLE = 0.5


def plan_algorithm(group: Group, anchor: Node, tile: Tile) -> Bf16x2ConvPlan | WinogradPlan | None:
    """How to convolve with cheaper or fewer products; `None`: directly, with vectors."""
    if share_reached(anchor, tile) <= _LITTLE:
        return None
    # Convolutions by matrix units lay out the input of fixed sizes.
    is_open = any(map(is_symbolic, group.shape(anchor.ref())))
    split = None if is_open else cheapest_bf16x2_conv(group, anchor, tile)
    transformed = cheapest_winograd(group, anchor, tile)
    if split is None:
        return None if transformed is None else transformed[1]
    if transformed is None or _CAUTION * split[0] < transformed[0]:
        return split[1]
    return transformed[1]


def lower_blocked_conv(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a group whose anchor is a BlockedConv of whatever kind."""
    if is_depthwise(anchor):
        return lower_depthwise(group, anchor, tile)
    plan = plan_algorithm(group, anchor, tile)
    if plan is None:
        return lower_conv(group, anchor, tile)
    if isinstance(plan, WinogradPlan):
        return lower_winograd(group, anchor, tile, plan)
    return lower_bf16x2_conv(group, anchor, tile, plan)
