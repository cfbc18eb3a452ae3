"""Small models that make other engines fuse, block channels and quantise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Build:
    """A model in the making. Operators have names, tensors are called after them."""

    def __init__(
        self, shape: tuple[int, ...], seed: int = 0, dtype: type[np.floating[Any]] = np.float32
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._dtype = dtype
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._input = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)

    def weight(self, name: str, *shape: int) -> str:
        values = self._rng.standard_normal(shape).astype(np.float32) * 0.1
        return self.constant(name, values.astype(self._dtype))

    def constant(self, name: str, value: np.ndarray | float) -> str:
        array = np.asarray(value, None if isinstance(value, np.ndarray) else np.float32)
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def ops(self, op: str, name: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """An operator with several results."""
        outputs = [f"{name}_out{number}" for number in range(count)]
        self._nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs

    def conv(self, name: str, x: str, out: int, into: int, size: int = 3) -> str:
        weight = self.weight(f"{name}.weight", out, into, size, size)
        return self.op("Conv", name, x, weight, pads=[size // 2] * 4, kernel_shape=[size, size])

    def norm(self, name: str, x: str, channels: int) -> str:
        values = [
            self.constant(f"{name}.{part}", np.full(channels, 1 + n, np.float32))
            for n, part in enumerate(("scale", "bias", "mean", "var"))
        ]
        return self.op("BatchNormalization", name, x, *values)

    def save(self, path: Path, y: str) -> Path:
        output = helper.make_tensor_value_info(
            y, helper.np_dtype_to_tensor_dtype(np.dtype(self._dtype)), None
        )
        graph = helper.make_graph(self._nodes, path.stem, [self._input], [output], self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


def residual(path: Path) -> Path:
    """Convolution, normalisation, sum and activation: two blocks of a residual network."""
    build = Build((1, 16, 8, 8))
    x = build.op("Relu", "stem_relu", build.norm("stem_bn", build.conv("stem", "x", 32, 16), 32))
    for block in ("a", "b"):
        y = build.conv(f"{block}_conv1", x, 32, 32)
        y = build.op("Relu", f"{block}_relu1", build.norm(f"{block}_bn1", y, 32))
        y = build.norm(f"{block}_bn2", build.conv(f"{block}_conv2", y, 32, 32), 32)
        x = build.op("Relu", f"{block}_relu2", build.op("Add", f"{block}_add", y, x))
    return build.save(path, build.op("GlobalAveragePool", "pool", x))


def silu(path: Path) -> Path:
    """Convolutions with x · sigmoid(x) behind them, as in YOLO, and a split between."""
    build = Build((1, 16, 8, 8))
    x = build.conv("conv1", "x", 32, 16)
    x = build.op("Mul", "act1", x, build.op("Sigmoid", "sig1", x))
    x = build.conv("conv2", x, 32, 32)
    x = build.op("Mul", "act2", x, build.op("Sigmoid", "sig2", x))
    x = build.op("Concat", "cat", x, build.op("MaxPool", "pool", x, kernel_shape=[1, 1]), axis=2)
    x = build.conv("conv3", x, 16, 32, 1)
    return build.save(path, x)


def _gelu(build: Build, name: str, x: str) -> str:
    scaled = build.op("Div", f"{name}_div", x, build.constant(f"{name}.root", 2.0**0.5))
    erf = build.op("Erf", f"{name}_erf", scaled)
    plus = build.op("Add", f"{name}_add", erf, build.constant(f"{name}.one", 1.0))
    both = build.op("Mul", f"{name}_mul", x, plus)
    return build.op("Mul", f"{name}_half", both, build.constant(f"{name}.half", 0.5))


def transformer(path: Path) -> Path:
    """A feed-forward block: product, bias, GELU, product, bias, residual, layer normalisation."""
    build = Build((1, 4, 16))
    x = build.op("Relu", "first", "x")
    y = build.op("MatMul", "up", x, build.weight("up.weight", 16, 64))
    y = build.op("Add", "up_bias", y, build.weight("up.bias", 64))
    y = _gelu(build, "gelu", y)
    y = build.op("MatMul", "down", y, build.weight("down.weight", 64, 16))
    y = build.op("Add", "down_bias", y, build.weight("down.bias", 16))
    y = build.op("Add", "skip", y, x)
    scale, bias = build.weight("norm.weight", 16), build.weight("norm.bias", 16)
    y = build.op("LayerNormalization", "norm", y, scale, bias, axis=-1)
    y = build.op("Add", "bias", y, build.weight("bias.bias", 16))
    return build.save(path, build.op("Softmax", "last", _gelu(build, "second", y)))


def gelu_between(path: Path) -> Path:
    """A GELU between two convolutions: ONNX Runtime keeps no name of it."""
    build = Build((1, 16, 8, 8))
    x = _gelu(build, "gelu", build.conv("conv1", "x", 32, 16))
    return build.save(path, build.op("Relu", "relu", build.conv("conv2", x, 32, 32)))


def quantised(path: Path) -> Path:
    """A convolution between QuantizeLinear and DequantizeLinear, and an activation."""
    build = Build((1, 16, 8, 8))
    zero = build.constant("zero", np.array(128, np.uint8))
    scale = build.constant("scale", 0.05)

    def through(name: str, x: str) -> str:
        codes = build.op("QuantizeLinear", f"{name}_q", x, scale, zero)
        return build.op("DequantizeLinear", f"{name}_dq", codes, scale, zero)

    rng = np.random.default_rng(1)
    codes = build.constant("conv.codes", rng.integers(-99, 99, (32, 16, 3, 3)).astype(np.int8))
    none = build.constant("none", np.array(0, np.int8))
    weight = build.op("DequantizeLinear", "weight_dq", codes, build.constant("ws", 0.01), none)
    x = through("in", "x")
    x = through("mid", build.op("Conv", "conv", x, weight, pads=[1] * 4, kernel_shape=[3, 3]))
    x = through("end", build.op("GlobalAveragePool", "pool", x))
    return build.save(path, build.op("Relu", "relu", x))


def condition(path: Path) -> Path:
    """An If whose branches convolve: nodes of nested graphs run within the time of the If."""
    build = Build((1, 16, 8, 8))
    x = build.conv("before", "x", 16, 16)
    total = build.op("ReduceSum", "sum", x, keepdims=0)
    choose = build.op("Greater", "greater", total, build.constant("limit", 0.0))

    def branch(name: str, op: str) -> onnx.GraphProto:
        made = [
            helper.make_node(
                "Conv", [x, f"{name}.weight"], [f"{name}_conv_out"], name=f"{name}_conv",
                kernel_shape=[3, 3], pads=[1] * 4,
            ),
            helper.make_node(op, [f"{name}_conv_out"], [f"{name}_out"], name=f"{name}_{op}"),
        ]  # fmt: skip
        build.weight(f"{name}.weight", 16, 16, 3, 3)
        output = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)
        return helper.make_graph(made, name, [], [output])

    y = build.op(
        "If", "if", choose, then_branch=branch("yes", "Tanh"), else_branch=branch("no", "Sigmoid")
    )
    return build.save(path, build.op("Neg", "after", y))


def half(path: Path) -> Path:
    """Convolutions in float16 behind a Cast: on most CPUs, ONNX Runtime computes them in float32
    and puts Casts of its own around them, of which those that cancel are removed.
    """
    build = Build((1, 16, 8, 8), dtype=np.float16)
    x = build.op("Cast", "narrow", "x", to=TensorProto.FLOAT16)
    y = build.op("Relu", "relu1", build.conv("conv1", x, 32, 16))
    z = build.op("MaxPool", "pool", y, kernel_shape=[1, 1])
    z = build.op("Relu", "relu2", build.conv("conv2", z, 32, 32))
    y = build.conv("conv3", build.op("Add", "add", z, y), 16, 32)
    y = build.op("Concat", "cat", y, x, axis=2)
    y = build.op("Sigmoid", "sigmoid", build.conv("conv4", y, 16, 16))
    return build.save(path, y)


def unnamed(path: Path) -> Path:
    """A network none of whose operators has a name."""
    model = onnx.load(residual(path))
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, path)
    return path


MODELS: dict[str, Callable[[Path], Path]] = {
    each.__name__: each
    for each in (residual, silu, transformer, gelu_between, quantised, condition, half, unnamed)
}


def make(name: str, folder: Path) -> Path:
    return MODELS[name](folder / f"{name}.onnx")
