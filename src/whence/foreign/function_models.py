"""Small models of functions of one element, by which an engine is asked what they cost it.

1. `alone`: the function twice in a row, limited each time to where it is defined. In a longer
   chain that an engine fuses, each would wait for the one before, where cores compute those of the
   next elements meanwhile in the chains that models have: OpenVINO's Exp takes three times as long
   in a chain of eight.
2. `product` and `convolution`: the function behind narrow products or 1×1 convolutions, where
   engines apply it to results before they are stored, often with other code.
3. `large_product` and `large_convolution`: the same with results that no second level of a cache
   holds. What an engine does to results in registers costs as much there; what it goes over them
   once more for costs more.
4. `bias`: a constant added to a product, which may make an engine go over its results once more.
   `activated_bias`: the same where it applies a function to them anyway.
5. `sum`: what was computed before is added to the results of a convolution, which engines do while
   they store them, in its place, as nothing else needs it any more. `kept_sum`: the same where the
   convolution itself reads what is added, so that the engine has to copy it first.
6. `norm`: a sum in front of a layer normalisation, which engines have a kernel for.

Each kind has a twin without the function or the sum. What stands in its place is nothing, as a
function behind a product may make an engine go over its results once more, or compute the product
by other code; or of functions alone an absolute value, which takes an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper, save

FUNCTIONS: Mapping[str, str] = {
    "Div": "Reciprocal",
    "Sqrt": "Sqrt",
    "Exp": "Exp",
    "Log": "Log",
    "Erf": "Erf",
    "Tanh": "Tanh",
    "Sigmoid": "Sigmoid",
    "Softmax": "Softmax",
    "LayerNormalization": "LayerNormalization",
    "Gelu": "Gelu",
    "Softplus": "Softplus",
    "Mish": "Mish",
    "Sin": "Sin",
    "Atan": "Atan",
}
"""By operator of the cost model: the operator that is measured for it."""
ACTIVATIONS: Mapping[str, str] = {
    "Exp": "Elu",
    "Tanh": "Tanh",
    "Sigmoid": "Sigmoid",
    "Gelu": "Gelu",
    "Softplus": "Softplus",
    "Mish": "Mish",
}
"""The same for those that engines apply to the results of products and convolutions."""
LIMITS = ("Relu", "Clip", "LeakyRelu", "HardSigmoid")
"""Those of them that take an instruction or two, which some engines need a pass of its own for."""
SUMS = {
    "bias": "bias Add",
    "large_bias": "large bias Add",
    "activated_bias": "activated bias Add",
    "large_activated_bias": "large activated bias Add",
    "sum": "residual Add",
    "large_sum": "large residual Add",
    "kept_sum": "kept residual Add",
    "large_kept_sum": "large kept residual Add",
    "norm": "norm Add",
}
"""By kind of model: what a sum there is called."""
FAMILIES = ("product", "convolution", "large_product", "large_convolution")
LARGE_BYTES = 1 << 19
"""Results beyond that are large."""
TWIN = "twin"
_SIMPLE = "Abs"
# All that a model touches fits the second level of any cache.
_ROWS, _COLUMNS = 64, 256
_ALONE_ROWS, _REPEATS = 128, 2
_BATCHED = (1, _ROWS, _COLUMNS)
_LOWEST, _HIGHEST = 0.25, 2.0
_NARROW, _LAYERS = 16, 4
_LARGE_ROWS, _LARGE_COLUMNS, _LARGE_LAYERS = 1024, 1024, 1
# What is large of a convolution are its rows: engines apply functions row by row.
_CHANNELS, _SIDE, _LARGE_SIDE = 64, 16, 128
# Of several large results, each finds memory in another state.
_CONV_LAYERS = 3
_CONVOLUTIONS = {
    "first": (_NARROW, _CHANNELS),
    "inner": (_CHANNELS, _NARROW),
    "wide": (_NARROW, _CHANNELS),
    "same": (_CHANNELS, _CHANNELS),
    "last": (_CHANNELS, _NARROW),
}
"""By convolution: from how many channels it leads to how many."""
_BIASES = ("bias", "large_bias", "activated_bias", "large_activated_bias")
_RESIDUALS = ("sum", "large_sum", "kept_sum", "large_kept_sum")
_RESULTS = _ROWS * _COLUMNS * _LAYERS
_LARGE_RESULTS = _LARGE_ROWS * _LARGE_COLUMNS * _LARGE_LAYERS
_PIXELS, _LARGE_PIXELS = (side**2 * _CHANNELS * _CONV_LAYERS for side in (_SIDE, _LARGE_SIDE))
ELEMENTS = {
    "alone": _ALONE_ROWS * _COLUMNS * _REPEATS,
    **dict.fromkeys(("product", "bias", "activated_bias", "norm"), _RESULTS),
    **dict.fromkeys(("large_product", "large_bias", "large_activated_bias"), _LARGE_RESULTS),
    **dict.fromkeys(("convolution", "sum", "kept_sum"), _PIXELS),
    **dict.fromkeys(("large_convolution", "large_sum", "large_kept_sum"), _LARGE_PIXELS),
}
"""How many elements the function has, by kind of model."""
_OPSET, _IR = 20, 9


def write_function_models(folder: Path) -> None:
    """Files `KIND/NAME.onnx`, and inputs for them in `inputs.npz`."""
    rng = np.random.default_rng(0)
    inputs: dict[str, np.ndarray] = {
        "alone": rng.uniform(_LOWEST, _HIGHEST, (_ALONE_ROWS, _COLUMNS)),
        "product": rng.standard_normal((_ROWS, _NARROW)),
        "norm": rng.standard_normal(_BATCHED),
        "side": rng.standard_normal(_BATCHED),
        "large_product": rng.standard_normal((_LARGE_ROWS, _NARROW)),
    }
    for kind in _BIASES:
        inputs[kind] = inputs["large_product" if "large" in kind else "product"]
    for kind in ("convolution", "large_convolution", *_RESIDUALS):
        side = _LARGE_SIDE if "large" in kind else _SIDE
        inputs[kind] = rng.standard_normal((1, _NARROW, side, side))
    given = {name: value.astype(np.float32) for name, value in inputs.items()}
    np.savez(folder / "inputs.npz", **given)  # type: ignore[arg-type]
    limits = {"lowest": np.float32(_LOWEST), "highest": np.float32(_HIGHEST)}
    scale = np.linspace(0.5, 1.5, _COLUMNS, dtype=np.float32)
    for name, op in {TWIN: _SIMPLE, **FUNCTIONS}.items():
        chain, x = _Chain(), "alone"
        more = ["scale"] if op == "LayerNormalization" else []
        for _ in range(_REPEATS):
            x = chain.add("Clip", chain.add(op, x, *more), *limits)
        weights = {**limits, "scale": scale}
        _save(folder / f"alone/{name}.onnx", chain.nodes, given["alone"], weights)
    for family in FAMILIES:
        convolved = "convolution" in family
        products = _convolutions(rng) if convolved else _products(rng, "large" in family)
        functions = {TWIN: "", **ACTIVATIONS, **dict(zip(LIMITS, LIMITS, strict=True))}
        for name, op in functions.items():
            nodes = (_convolved if convolved else _activated)(op, family)
            _save(folder / f"{family}/{name}.onnx", nodes, given[family], {**products, **limits})
    for name, summed in ((TWIN, False), ("Add", True)):
        for kind in _BIASES:
            both, nodes = _products(rng, "large" in kind), _biases(kind, summed=summed)
            _save(folder / f"{kind}/{name}.onnx", nodes, given[kind], both)
        for kind in _RESIDUALS:
            nodes = _residuals(kind, summed=summed)
            _save(folder / f"{kind}/{name}.onnx", nodes, given[kind], _convolutions(rng))
        weights = {"scale": scale, "offset": scale}
        _save(folder / f"norm/{name}.onnx", _norms(summed=summed), given["norm"], weights)


class _Chain:
    """The nodes of a model, each of which makes one tensor."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []

    def add(self, op: str, *inputs: str) -> str:
        output = f"x{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output]))
        return output

    def apply(self, function: Sequence[str], x: str) -> str:
        """A function with its other operands, or nothing."""
        return self.add(function[0], x, *function[1:]) if function else x

    def conv(self, x: str, name: str) -> str:
        return self.add("Conv", x, name, f"{name}_bias")

    def pooled(self, x: str) -> list[NodeProto]:
        """A large result takes as long to hand out as what is measured, now more and now less."""
        self.add("GlobalAveragePool", x)
        return self.nodes


def _products(rng: np.random.Generator, large: bool) -> dict[str, np.ndarray]:
    """Weights and biases that lead from few columns to many, and back."""
    columns = _LARGE_COLUMNS if large else _COLUMNS
    wide = rng.standard_normal((_NARROW, columns)).astype(np.float32) / _NARROW**0.5
    narrow = rng.standard_normal((columns, _NARROW)).astype(np.float32) / columns**0.5
    scale = np.linspace(0.5, 1.5, columns, dtype=np.float32)
    return {"wide": wide, "narrow": narrow, "wide_bias": scale, "narrow_bias": scale[:_NARROW]}


def _layers(
    given: str, op: str, wide: Sequence[str], behind: Sequence[str], narrow: Sequence[str]
) -> list[NodeProto]:
    """Products with wide results and with narrow ones, in turns, by their operands; `behind` the
    wide ones is a function, or nothing.
    """
    chain, x = _Chain(), given
    for _ in range(_LARGE_LAYERS if given.startswith("large") else _LAYERS):
        y = chain.apply(behind, chain.add(op, x, *wide))
        x = chain.add(op, y, *narrow)
    return chain.nodes


def _function(op: str) -> list[str]:
    """With its operands."""
    return [op, *["lowest", "highest"] * (op == "Clip")] if op else []


def _activated(op: str, given: str) -> list[NodeProto]:
    biased = ["wide", "wide_bias"], _function(op), ["narrow", "narrow_bias"]
    return _layers(given, "Gemm", *biased)


def _convolved(op: str, given: str) -> list[NodeProto]:
    """The same of convolutions."""
    chain, x = _Chain(), given
    for number in range(_CONV_LAYERS):
        y = chain.apply(_function(op), chain.conv(x, f"first{number}"))
        x = chain.conv(y, f"last{number}")
    return chain.pooled(x)


def _convolutions(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights and biases of 1×1 convolutions between few channels and more: of each its own, as
    OpenVINO fuses no bias that several have.
    """
    found = {}
    for name, (inner, outer) in _CONVOLUTIONS.items():
        for number in range(_CONV_LAYERS):
            weight = rng.standard_normal((outer, inner, 1, 1)) / inner**0.5
            found[f"{name}{number}"] = weight.astype(np.float32)
            found[f"{name}{number}_bias"] = np.linspace(0.5, 1.5, outer, dtype=np.float32)
    return found


def _biases(given: str, *, summed: bool) -> list[NodeProto]:
    if "activated" in given:
        # By Gemm: some engines fuse no function behind a MatMul without a sum.
        wide = ["wide", *["wide_bias"] * summed]
        return _layers(given, "Gemm", wide, _function("Relu"), ["narrow"])
    return _layers(given, "MatMul", ["wide"], ["Add", "wide_bias"] * summed, ["narrow"])


def _residuals(given: str, *, summed: bool) -> list[NodeProto]:
    """Wide results, others made from them, their sum and a function, as in residual networks;
    narrow results, in turns. Both twins compute both.
    """
    chain, x = _Chain(), given
    for number in range(_CONV_LAYERS):
        first = chain.conv(x, f"first{number}")
        if "kept" in given:
            second = chain.conv(first, f"same{number}")
        else:
            second = chain.conv(chain.conv(first, f"inner{number}"), f"wide{number}")
        if summed:
            second = chain.add("Add", second, first)
        x = chain.conv(chain.add("Relu", second), f"last{number}")
    return chain.pooled(x)


def _norms(*, summed: bool) -> list[NodeProto]:
    chain, x = _Chain(), "norm"
    for _ in range(_LAYERS):
        if summed:
            x = chain.add("Add", x, "side")
        x = chain.add("LayerNormalization", x, "scale", "offset")
    return chain.nodes


def _save(
    path: Path, nodes: Sequence[NodeProto], given: np.ndarray, weights: Mapping[str, Any]
) -> None:
    path.parent.mkdir(exist_ok=True)
    read = {name for node in nodes for name in node.input}
    initializers = [
        numpy_helper.from_array(np.ascontiguousarray(value), name)
        for name, value in weights.items()
        if name in read
    ]
    kind = path.parent.name
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, given.shape)
        for name in (kind, "side")
        if name in read
    ]
    shape = given.shape if nodes[-1].op_type != "GlobalAveragePool" else (1, _NARROW, 1, 1)
    result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, shape)
    graph = helper.make_graph(list(nodes), kind, ports, [result], initializers)
    opsets = [helper.make_opsetid("", _OPSET)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=_IR), path)
