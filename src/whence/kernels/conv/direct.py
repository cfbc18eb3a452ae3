"""Convolution on channel-blocked tensors: a register tile of pixels × output channels, the weights
packed in the order in which the tile reads them.

out[n, p, o] = epilogue(Σ_c Σ_kh Σ_kw x[n, c, at(p, kh, kw)] · w[o, c, kh, kw])

A work item is one panel of output channels (as many as a tile is wide) of a chunk of the image. The
panel's weights stay in the second-level cache while the tiles of the chunk pass over them; where
there are more weights than pixels, a panel's chunks follow each other, else a chunk's panels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.errors import UnsupportedError
from whence.extent import same_shape
from whence.graph import Node, Ref
from whence.kernels.conv.direct_program import Conv, Depth
from whence.kernels.conv.epilogue import ACCUMULATOR, CHANNELS, IMAGE, LANE, PIXEL
from whence.kernels.conv.plan import ConvPlan, ConvSizes
from whence.kernels.conv.tiles import ONE_ROW, Field
from whence.kernels.expressions import apply
from whence.kernels.group import Group, Pack, Packed, data_operands
from whence.kernels.index import Var, of, unravel
from whence.kernels.ir import Expr, Fn, Kernel, Store
from whence.kernels.rules.elementwise import activated
from whence.kernels.tile import Tile
from whence.ops.attributes import get_int
from whence.ops.neural.window import make_window
from whence.types import DType


@dataclass(frozen=True, slots=True)
class PackWeights:
    """OIHW weights as the tiles read them: group, panel, then the order of the sum, each time a row
    of a panel's output channels.
    """

    groups: int
    block: int
    lanes: int
    vectors: int
    group_vectors: int

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        out, depth, *kernel = weights.shape
        width, step = self.group_vectors * self.lanes, self.vectors * self.lanes
        packed = np.empty(self.elements(depth) * math.prod(kernel), np.float32)
        whole = depth - depth % self.block
        # Channels in blocks, and behind them those that fill none.
        sections = [(slice(whole), self.block), (slice(whole, depth), depth - whole)]
        begin = 0
        for group in weights.reshape(self.groups, out // self.groups, depth, *kernel):
            for start in range(0, width, step):
                panel, lanes = group[start : start + step], min(step, width - start)
                for channels, block in sections:
                    part = panel[:, channels]
                    end = begin + lanes * math.prod(part.shape[1:])
                    if begin == end:
                        continue
                    # Each element is written once, where it belongs.
                    blocks = part.reshape(len(part), part.shape[1] // block, block, *kernel)
                    rows = packed[begin:end].reshape(-1, *kernel, block, lanes)
                    rows[..., : len(part)] = blocks.transpose(1, 3, 4, 2, 0)
                    rows[..., len(part) :] = 0
                    begin = end
        return packed

    def elements(self, depth: int) -> int:
        return self.groups * self.group_vectors * self.lanes * depth


@dataclass(frozen=True, slots=True)
class PadVector:
    """A vector with zeros behind it."""

    length: int

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        return np.pad(vector.reshape(-1), (0, self.length - vector.size))


def conv_sizes(group: Group, anchor: Node, tile: Tile) -> ConvSizes:
    """What decides how the convolution of a BlockedConv is divided. Raises `UnsupportedError` when
    it is none that this file covers.
    """
    source, weights = data_operands(anchor)
    attrs = anchor.attrs
    block, plain = get_int(attrs, "block", 0), bool(get_int(attrs, "plain_input", 0))
    groups = get_int(attrs, "group", 1)
    taken = get_int(attrs, "channels_in", 0)
    made = get_int(attrs, "channels_out", 0)
    require_floats(group, anchor)
    if block % tile.lanes:
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' has blocks of {block} channels, vectors hold {tile.lanes}"
        )
    if groups > 1 and (plain or taken // groups % block or made // groups % block):
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' has groups of {taken // groups} channels"
        )
    kernel = group.shape(weights)[2:]
    images, _, *spatial = group.shape(source)[:4]
    rows, columns = fields(anchor, tuple(spatial), kernel)
    out_pixels = rows.out * columns.out
    if rows.is_pointwise and columns.is_pointwise:
        # Every pixel by itself: the image is one row.
        rows, columns = ONE_ROW, Field(out_pixels, out_pixels, 1, 1, 1, 0, 0)
    depth, taps = taken // groups, math.prod(kernel)
    group_vectors = -(-(made // groups) // block) * (block // tile.lanes)
    return ConvSizes(
        images=images,
        groups=groups,
        rows=rows,
        columns=columns,
        group_vectors=group_vectors,
        per_block=block // tile.lanes,
        input_bytes=4 * depth * math.prod(spatial),
        weight_bytes=4 * group_vectors * tile.lanes * depth * taps,
        flops=2 * made * depth * taps * out_pixels * images,
        positions=-(-depth // (1 if plain else block)) * taps,
        tile=tile,
        is_open=rows.is_open or columns.is_open,
    )


def reach(anchor: Node, tile: Tile, vectors: int) -> tuple[tuple[int, int], ...]:
    """Where groups were joined, the weights of an output are zeros but for its own group: the
    input channels that panels of so many vectors depend on. Empty: on all.
    """
    attrs = anchor.attrs
    joined, block, groups = (get_int(attrs, name, 1) for name in ("joined", "block", "group"))
    if joined == 1:
        return ()
    taken, made = (get_int(attrs, name, 0) // groups for name in ("channels_in", "channels_out"))
    width = vectors * tile.lanes
    found: list[tuple[int, int]] = []
    for first in range(0, -(-made // block) * block, width):
        last = min(first + width, made)
        begin, end = first // (made // joined), -(-last // (made // joined))
        found.append((begin * (taken // joined), end * (taken // joined)))
    return tuple(found)


def share_reached(anchor: Node, tile: Tile) -> float:
    """How much of the sums of a convolution is not left out."""
    block, groups = get_int(anchor.attrs, "block", 1), get_int(anchor.attrs, "group", 1)
    channels = get_int(anchor.attrs, "channels_in", 0) // groups
    found = reach(anchor, tile, max(block // tile.lanes, 1))
    return sum(last - first for first, last in found) / (len(found) * channels) if found else 1.0


def lower_conv(group: Group, anchor: Node, tile: Tile, plan: ConvPlan | None = None) -> Kernel:
    """A kernel for a group whose anchor is a BlockedConv with constant weights, divided as planned
    or else as the cost model would.
    """
    sizes = conv_sizes(group, anchor, tile)
    plan = sizes.plan() if plan is None else plan
    source, weights = data_operands(anchor)
    block, x_shape = get_int(anchor.attrs, "block", 0), group.shape(source)
    step = 1 if get_int(anchor.attrs, "plain_input", 0) else block
    plane = x_shape[2] * x_shape[3] * step
    per_group = get_int(anchor.attrs, "channels_in", 0) // sizes.groups
    packing = PackWeights(sizes.groups, step, tile.lanes, plan.vectors, sizes.group_vectors)
    micro = Conv(
        images=sizes.images,
        groups=sizes.groups,
        rows=sizes.rows,
        columns=sizes.columns,
        cover=sizes.cover(plan.pixels),
        source=input_buffer(group, anchor, source),
        image_stride=math.prod(x_shape[1:]),
        group_stride=per_group // step * plane,
        row_stride=x_shape[3] * step,
        pixel_stride=step,
        depths=_depths(per_group, plane, step),
        weights=input_buffer(group, anchor, weights),
        lanes=tile.lanes,
        vectors=plan.vectors,
        group_vectors=sizes.group_vectors,
        block=block,
        chunk=plan.chunk,
        panels_outside=plan.panels_outside,
        ahead=sizes.estimated().ahead(plan),
        outputs=epilogue(group, anchor),
        reach=reach(anchor, tile, plan.vectors),
    )
    elements = packing.elements(per_group * math.prod(group.shape(weights)[2:]))
    packed = packed_weights(group, anchor, packing, elements)
    return group.kernel(micro.tasks, micro, packed=packed)


def fields(
    anchor: Node, spatial: tuple[int, ...], kernel: tuple[int, ...], ceil_mode: bool = False
) -> list[Field]:
    """The spatial axes of a convolution or pool."""
    window = make_window(anchor.op, anchor.attrs, spatial, kernel)
    if 0 in window.output:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' makes an empty tensor")
    axes = (spatial, window.output, window.kernel, window.strides, window.dilations, window.begins)
    ends: Sequence[int | None] = [None] * len(spatial) if ceil_mode else window.ends
    return [Field(*axis) for axis in zip(*axes, ends, strict=True)]


def require_floats(group: Group, anchor: Node) -> None:
    for ref in anchor.inputs:
        if ref is not None and group.dtype(ref) is not DType.F32:
            raise UnsupportedError(f"{anchor.op} '{anchor.name}' works on {group.dtype(ref)}")


def input_buffer(group: Group, anchor: Node, ref: Ref) -> str:
    """The buffer an anchor reads `ref` from."""
    if ref not in group.inputs:
        raise UnsupportedError(
            f"group '{group.name}' computes what '{anchor.name}' reads many times"
        )
    return group.input_name(ref)


def _depths(channels: int, plane: int, block: int) -> tuple[Depth, ...]:
    """Whole blocks, then the channels of the last one: what lies behind them is never read."""
    whole, rest = divmod(channels, block)
    found = [Depth(whole, plane, block, 0)] if whole else []
    return (*found, Depth(1, plane, rest, whole * plane)) if rest else tuple(found)


def packed_weights(group: Group, anchor: Node, packing: Pack, elements: int) -> dict[Ref, Packed]:
    """The anchor's weights packed, and its bias filled up to whole blocks."""
    _, blocks, *_, block = group.shape(anchor.ref())
    forms = (Packed(packing, elements), Packed(PadVector(blocks * block), blocks * block))
    found = {}
    for ref, form in zip((anchor.operand("W"), anchor.operand("B")), forms, strict=True):
        if ref is None or ref not in group.inputs:
            continue
        if group.graph.const_value(ref) is None:
            raise UnsupportedError(f"{anchor.op} '{anchor.name}' has weights that are not constant")
        require_sole_reader(group, anchor, ref)
        found[ref] = form
    return found


def require_sole_reader(group: Group, anchor: Node, weights: Ref) -> None:
    """What is packed for the anchor is of no use to other members."""
    if any(other is not anchor and weights in other.inputs for other in group.members):
        raise UnsupportedError(
            f"group '{group.name}' reads the weights of '{anchor.name}' elsewhere too"
        )


def epilogue(group: Group, anchor: Node) -> tuple[Store, ...]:
    """What the group stores for each element of the anchor's sum: bias, addend, activation, and the
    operators fused behind it.
    """
    out_shape = group.shape(anchor.ref())
    images, blocks, height, width, block = out_shape
    place = of(Var(CHANNELS, blocks)) * block + of(Var(LANE, block))
    flat = (
        (of(Var(IMAGE, images)) * blocks + of(Var(CHANNELS, blocks))) * (height * width)
        + of(Var(PIXEL, height * width))
    ) * block + of(Var(LANE, block))
    elements = group.elements()
    total: Expr = ACCUMULATOR
    bias, addend = anchor.operand("B"), anchor.operand("Z")
    if bias is not None:
        total = apply(Fn.ADD, total, elements.value(bias, (place,)))
    if addend is not None:
        total = apply(Fn.ADD, total, elements.broadcast(addend, unravel(flat, out_shape)))
    if any(not same_shape(group.shape(ref), out_shape) for ref in group.outputs):
        raise UnsupportedError(
            f"group '{group.name}' changes the shape of what '{anchor.name}' makes"
        )
    return group.stores(anchor, activated(anchor, total), flat)
