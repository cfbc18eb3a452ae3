"""Convolutions with three spatial axes become ones with two, for which there are good kernels.

1. A kernel of one row and one column: rows and columns are one axis.
       conv3(x [N,C,D,H,W], w [M,C,K,1,1]) = conv2(x [N,C,D,H·W], w [M,C,K,1])
2. Else slices are images, [N·D,C,H,W], and the slices that a slice of the result is made of are
   channels side by side.
       conv3(x, w)[d] = Σ_k conv2(x[d·s + k·t - p], w[k]) = conv2(concat_k x[d·s + k·t - p],
       concat_k w[k])
3. Where that would take much memory, or channels are in groups, the convolutions of single slices
   are added up, each to the one before it.

Between convolutions the slices stay images: the transposes and reshapes that meet there cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from whence.graph import Graph, Node, NodeFlag, Ref, Rewriter
from whence.graph.maker import Maker
from whence.ops.attributes import get_int
from whence.ops.definition import Attr, OpClass
from whence.ops.neural.window import Window, make_window
from whence.ops.registry import one_of, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.layout.axes import perm_of
from whence.passes.layout.blocked_op import static_float
from whence.passes.layout.cancel_reshapes import CancelReshapes
from whence.passes.layout.cancel_transposes import compose_transposes
from whence.passes.origins import lowering

_CONVOLUTIONS = (
    operators(Trait.CONVOLUTION) - operators(Trait.BLOCKED) - operators(Trait.CHANNELS_LAST)
)
_SLICES_FIRST = (0, 2, 1, 3, 4)
"""Exchanges channels and depth; it is its own inverse."""
# Bytes of slices side by side, beyond which convolutions are added up one by one.
_MUCH_MEMORY = 64 << 20
# What an activation adds to the attributes of a convolution.
_ACTIVATION = "activation"


@dataclass(frozen=True, slots=True)
class FlattenDepth(RulePass):
    name = "flatten_depth"
    summary = "convolutions with three spatial axes become ones with two"
    classes = OpClass.CONV
    anchors = _CONVOLUTIONS | one_of("Transpose", "Reshape")

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        if any(node.op in _CONVOLUTIONS and _geometry(graph, node) for node in graph):
            RulePass.run(self, rewriter)

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if NodeFlag.NO_LAYOUT_CHANGE in node.flags:
            return
        if node.op == "Transpose":
            if perm_of(rewriter.graph, node) == _SLICES_FIRST:
                compose_transposes(node, rewriter)
            return
        if node.op == "Reshape":
            CancelReshapes().visit(node, rewriter)
            return
        found = _geometry(rewriter.graph, node)
        if found is None:
            return
        shape, weights, window = found
        if weights.shape[3:] == (1, 1) and _is_pointwise(window, shape):
            rule = "conv3(x, w [M,C,K,1,1]) = conv2(x [N,C,D,H·W], w)"
            Flattening(node, *found, lowering(rewriter, node, rule)).merge_rows()
        else:
            make = lowering(rewriter, node, "conv3(x, w) = conv2 of slices")
            Flattening(node, *found, make).by_slices()


def _geometry(graph: Graph, node: Node) -> tuple[tuple[int, ...], np.ndarray, Window] | None:
    shape, made = static_float(graph, node.inputs[0]), static_float(graph, node.ref())
    weights = graph.const_value(node.operand("W"))
    if (
        shape is None
        or made is None
        or len(shape) != 5
        or weights is None
        or weights.dtype != np.float32
        or weights.ndim != 5
        or any(ref is not None and static_float(graph, ref) is None for ref in node.inputs[2:])
    ):
        return None
    addend = node.operand("Z")
    if addend is not None and static_float(graph, addend) != made:
        return None
    return shape, weights, make_window(node.op, node.attrs, shape[2:], weights.shape[2:])


def _is_pointwise(window: Window, shape: tuple[int, ...]) -> bool:
    """Does every row and column of the result read the same row and column?"""
    return (
        window.strides[1:] == (1, 1)
        and window.begins[1:] == (0, 0)
        and tuple(window.output[1:]) == shape[3:]
    )


@dataclass(frozen=True, slots=True)
class Flattening:
    """One convolution while it is rewritten."""

    node: Node
    shape: tuple[int, ...]
    weights: np.ndarray
    window: Window
    make: Maker

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.shape[0], self.weights.shape[0], *self.window.output)

    def merge_rows(self) -> None:
        """1. Rows and columns are one axis."""
        window, (batch, channels, depth, height, width) = self.window, self.shape
        attrs = self._attrs((window.kernel[0], 1), (window.strides[0], 1), (window.dilations[0], 1))
        attrs["pads"] = (window.begins[0], 0, window.ends[0], 0)
        source = self.node.inputs[0]
        addend = self.node.operand("Z")
        plain = (batch, self.out_shape[1], self.out_shape[2], height * width)
        result = self._conv(
            self._reshape(source, (batch, channels, depth, height * width)),
            self.weights[..., 0],
            attrs,
            self.node.operand("B"),
            None if addend is None else self._reshape(addend, plain),
        )
        self._finish(self._reshape(result, self.out_shape))

    def by_slices(self) -> None:
        """2 and 3. Slices are images."""
        window, (batch, channels, _, height, width) = self.window, self.shape
        out, taps = self.out_shape[2], window.kernel[0]
        attrs = self._attrs(window.kernel[1:], window.strides[1:], window.dilations[1:])
        attrs["pads"] = (*window.begins[1:], *window.ends[1:])
        padded = self._padded()
        slices = [self._slices(padded, tap) for tap in range(taps)]
        addend = self.node.operand("Z")
        images = (batch * out, channels, height, width)
        total: Ref | None = None
        if addend is not None:
            total = self._reshape(self._transpose(addend), (batch * out, *self._plane()))
        nbytes = 4 * taps * math.prod(images)
        if taps > 1 and get_int(self.node.attrs, "group", 1) == 1 and nbytes <= _MUCH_MEMORY:
            side_by_side = self.make("Concat", *slices, axis=2)
            joined = np.concatenate([self.weights[:, :, tap] for tap in range(taps)], axis=1)
            images = (batch * out, taps * channels, height, width)
            result = self._conv(
                self._reshape(side_by_side, images), joined, attrs, self.node.operand("B"), total
            )
        else:
            middle = {
                name: value for name, value in attrs.items() if not name.startswith(_ACTIVATION)
            }
            for tap, part in enumerate(slices):
                is_last = tap == taps - 1
                total = self._conv(
                    self._reshape(part, images),
                    np.ascontiguousarray(self.weights[:, :, tap]),
                    attrs if is_last else middle,
                    self.node.operand("B") if is_last else None,
                    total,
                )
            assert total is not None
            result = total
        by_slice = self._reshape(result, (batch, out, *self._plane()))
        self._finish(self._transpose(by_slice))

    def _plane(self) -> tuple[int, ...]:
        return (self.out_shape[1], *self.out_shape[3:])

    def _padded(self) -> Ref:
        """The input as [N, slices, C, H, W], with slices of zeros around."""
        source = self._transpose(self.node.inputs[0])
        if not self.window.begins[0] and not self.window.ends[0]:
            return source
        pads = [0] * 10
        pads[1], pads[6] = self.window.begins[0], self.window.ends[0]
        return self.make("Pad", source, self._ints(*pads))

    def _slices(self, padded: Ref, tap: int) -> Ref:
        """The slice that each slice of the result reads at this place of the kernel."""
        wanted, window = self.window.tap_slice(0, tap), self.window
        length = window.begins[0] + self.shape[2] + window.ends[0]
        if (wanted.start, wanted.stop, wanted.step) == (0, length, 1):
            return padded
        ranges = (wanted.start, wanted.stop, 1, wanted.step)
        return self.make("Slice", padded, *(self._ints(value) for value in ranges))

    def _attrs(self, *sizes: tuple[int, ...]) -> dict[str, Attr]:
        attrs = {name: value for name, value in self.node.attrs.items() if name != "auto_pad"}
        names = ("kernel_shape", "strides", "dilations")
        return attrs | dict(zip(names, map(tuple, sizes), strict=True))

    def _conv(
        self,
        data: Ref,
        weights: np.ndarray,
        attrs: dict[str, Attr],
        bias: Ref | None,
        addend: Ref | None,
    ) -> Ref:
        op = "FusedConv" if addend is not None else self.node.op
        return self.make(op, data, weights, bias, addend, **attrs)

    def _ints(self, *values: int) -> Ref:
        return self.make.edit.sizes(values)

    def _reshape(self, data: Ref | None, shape: tuple[int, ...]) -> Ref:
        return self.make("Reshape", data, self._ints(*shape))

    def _transpose(self, data: Ref | None) -> Ref:
        return self.make("Transpose", data, perm=_SLICES_FIRST)

    def _finish(self, result: Ref) -> None:
        self.make.edit.finish(self.node.ref(), result)
