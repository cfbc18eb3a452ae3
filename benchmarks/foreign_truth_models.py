"""Models for `benchmarks.foreign_truth`, with operators that engines fuse and that are a good
part of the kernel they end up in.

An operator can be left out where one of its operands has the type of its result; that operand, the
first, then stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 20
_IR = 9


@dataclass
class Chain:
    """A model in the making. Operators have names, tensors are called after them."""

    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def weight(self, name: str, *shape: int) -> str:
        fan = max(1, int(np.prod(shape[1:])))
        return self.constant(name, self.rng.standard_normal(shape) / fan**0.5)

    def constant(self, name: str, value: Any, kind: Any = np.float32) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def op(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}.out"], name=name, **attributes))
        return f"{name}.out"

    def conv(self, name: str, x: str, into: int, out: int) -> str:
        return self.op("Conv", name, x, self.weight(f"{name}.weight", out, into, 1, 1))

    def gemm(self, name: str, x: str, into: int, out: int) -> str:
        weight = self.weight(f"{name}.weight", into, out)
        return self.op("Gemm", name, x, weight, self.weight(f"{name}.bias", out))

    def pooled(self, x: str) -> str:
        """A small result: a large one would take longer to hand out than to compute."""
        return self.op("GlobalAveragePool", "pool", x)

    def quantised(self, name: str, x: str, scale: float) -> str:
        """Rounded to codes of 8 bits and back."""
        by = self.constant(f"{name}.scale", scale)
        zero = self.constant(f"{name}.zero", 128, np.uint8)
        codes = self.op("QuantizeLinear", f"{name}.quantize", x, by, zero)
        return self.op("DequantizeLinear", f"{name}.dequantize", codes, by, zero)

    def model(self, *outputs: str) -> onnx.ModelProto:
        ports = [helper.make_tensor_value_info(x, TensorProto.FLOAT, None) for x in outputs]
        graph = helper.make_graph(self.nodes, "truth", self.inputs, ports, self.constants)
        opsets = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR)


def _residual() -> onnx.ModelProto:
    """Narrow convolutions, so that a sum and an activation behind them show."""
    chain = Chain()
    x = chain.conv("stem", chain.input("x", 1, 16, 128, 128), 16, 32)
    y = chain.op("Add", "sum", chain.conv("middle", x, 32, 32), x)
    y = chain.conv("reduce", chain.op("Relu", "relu", y), 32, 16)
    y = chain.op("Sigmoid", "gate", chain.conv("widen", y, 16, 64))
    return chain.model(chain.pooled(chain.conv("last", y, 64, 8)))


def _bottleneck() -> onnx.ModelProto:
    """What is added to the result of a convolution is needed by nobody else then."""
    chain = Chain()
    x = chain.conv("stem", chain.input("x", 1, 16, 128, 128), 16, 64)
    y = chain.conv("widen", chain.conv("reduce", x, 64, 16), 16, 64)
    y = chain.op("Relu", "relu", chain.op("Add", "sum", y, x))
    return chain.model(chain.pooled(chain.conv("last", y, 64, 8)))


def _mobile() -> onnx.ModelProto:
    """A depthwise convolution with a normalisation and a limit behind it."""
    chain = Chain()
    x = chain.conv("stem", chain.input("x", 1, 8, 128, 128), 8, 64)
    weight = chain.weight("depthwise.weight", 64, 1, 3, 3)
    y = chain.op("Conv", "depthwise", x, weight, group=64, pads=[1] * 4)
    parts = [
        chain.constant(f"norm.{part}", np.linspace(0.5, 1.5, 64))
        for part in ("weight", "bias", "mean", "var")
    ]
    y = chain.op("BatchNormalization", "norm", y, *parts)
    y = chain.op("Clip", "limit", y, chain.constant("low", 0.0), chain.constant("high", 6.0))
    y = chain.op("LeakyRelu", "leaky", chain.conv("project", y, 64, 32), alpha=0.1)
    return chain.model(chain.pooled(chain.conv("last", y, 32, 8)))


def _feed_forward() -> onnx.ModelProto:
    """The second half of a transformer's layer, narrow."""
    chain = Chain()
    x = chain.input("x", 1, 512, 64)
    y = chain.op("MatMul", "up", x, chain.weight("up.weight", 64, 1024))
    y = chain.op("Add", "bias", y, chain.weight("up.bias", 1024))
    hidden = chain.op("Gelu", "gelu", y)
    y = chain.op("MatMul", "down", hidden, chain.weight("down.weight", 1024, 64))
    y = chain.op("MatMul", "wide", y, chain.weight("wide.weight", 64, 1024))
    y = chain.op("Add", "skip", y, hidden)
    scale, offset = chain.weight("norm.weight", 1024), chain.weight("norm.bias", 1024)
    y = chain.op("LayerNormalization", "norm", y, scale, offset, axis=-1)
    return chain.model(chain.op("MatMul", "last", y, chain.weight("last.weight", 1024, 16)))


def _gates() -> onnx.ModelProto:
    """Products over few columns, with functions behind them."""
    chain = Chain()
    y = chain.op("Tanh", "tanh", chain.gemm("first", chain.input("x", 512, 32), 32, 1024))
    y = chain.gemm("second", y, 1024, 32)
    y = chain.op("Sigmoid", "sigmoid", chain.gemm("third", y, 32, 1024))
    return chain.model(chain.gemm("last", y, 1024, 16))


def _elementwise() -> onnx.ModelProto:
    """A chain of functions of one element."""
    chain = Chain()
    x, side = chain.input("x", 1, 64, 64, 64), chain.input("side", 1, 64, 64, 64)
    # Who reads an input cannot compute in its place: that is not to be one that is left out, nor
    # the one behind it.
    y = chain.op("Mul", "scale", chain.op("Abs", "first", x), side)
    y = chain.op("Tanh", "tanh", y)
    y = chain.op("Add", "offset", y, side)
    y = chain.op("Exp", "exp", y)
    y = chain.op("Sqrt", "root", y)
    return chain.model(chain.pooled(y))


def _attention() -> onnx.ModelProto:
    """Scores, scaled and masked, and what they weigh."""
    chain = Chain()
    query, key = chain.input("query", 4, 256, 16), chain.input("key", 4, 16, 256)
    y = chain.op("MatMul", "scores", query, key)
    y = chain.op("Mul", "scale", y, chain.constant("root", 0.25))
    y = chain.op("Add", "mask", y, chain.input("hidden", 1, 256, 256))
    y = chain.op("Softmax", "softmax", y, axis=-1)
    y = chain.op("MatMul", "mix", y, chain.input("value", 4, 256, 16))
    return chain.model(y)


def _quantised() -> onnx.ModelProto:
    """Convolutions on codes of 8 bits."""
    chain = Chain()
    x = chain.quantised("x", chain.input("given", 1, 32, 64, 64), 0.03)
    y = x
    for name in ("first", "second"):
        codes = chain.constant(
            f"{name}.codes", chain.rng.integers(-100, 100, (32, 32, 3, 3)), np.int8
        )
        by, zero = (
            chain.constant(f"{name}.scale", 0.001),
            chain.constant(f"{name}.zero", 0, np.int8),
        )
        weight = chain.op("DequantizeLinear", f"{name}.weight", codes, by, zero)
        y = chain.op("Conv", name, y, weight, pads=[1] * 4)
        y = chain.op("Relu", f"{name}_relu", y)
        y = chain.quantised(f"{name}_result", y, 0.03)
    y = chain.op("Add", "sum", y, x)
    y = chain.quantised("result", y, 0.03)
    return chain.model(chain.pooled(y))


@dataclass(frozen=True)
class Case:
    build: Callable[[], onnx.ModelProto]
    left_out: tuple[str, ...]
    """Operators that are left out, one after the other."""


def without(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model without the operator of that name: its first operand is in its place. It takes the
    same inputs, used or not, as some engines copy what they are given.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    (position,) = [at for at, node in enumerate(made.graph.node) if node.name == name]
    stand_in, output = made.graph.node[position].input[0], made.graph.node[position].output[0]
    del made.graph.node[position]
    for node in made.graph.node:
        for at, value in enumerate(node.input):
            if value == output:
                node.input[at] = stand_in
    for port in made.graph.output:
        if port.name == output:
            port.name = stand_in
    used = {value for node in made.graph.node for value in node.input}
    constants = made.graph.initializer
    for at in reversed([at for at, each in enumerate(constants) if each.name not in used]):
        del constants[at]
    return made


def nothing(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with the same inputs, and constants as outputs: a call of it is all that a call of
    the model is besides its kernels.
    """
    chain = Chain(list(model.graph.input))
    ports = onnx.shape_inference.infer_shapes(model).graph.output
    for port in ports:
        shape = [each.dim_value for each in port.type.tensor_type.shape.dim]
        value = chain.constant(f"{port.name}.value", np.zeros(shape))
        chain.nodes.append(helper.make_node("Identity", [value], [port.name]))
    graph = helper.make_graph(chain.nodes, "nothing", chain.inputs, ports, chain.constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=_IR)


CASES: Mapping[str, Case] = {
    "residual": Case(_residual, ("sum", "relu", "gate")),
    "bottleneck": Case(_bottleneck, ("sum", "relu")),
    "mobile": Case(_mobile, ("norm", "limit", "leaky")),
    "feed_forward": Case(_feed_forward, ("bias", "gelu", "skip", "norm")),
    "gates": Case(_gates, ("tanh", "sigmoid")),
    "elementwise": Case(_elementwise, ("scale", "tanh", "offset", "exp", "root")),
    "attention": Case(_attention, ("scale", "mask", "softmax")),
    "quantised": Case(_quantised, ("first_relu", "second_relu")),
}
