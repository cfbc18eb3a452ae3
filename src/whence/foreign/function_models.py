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

Each has a twin with something that takes an instruction in the function's place, `SIMPLE`: an
absolute value, a Relu where engines fuse it, or nothing in place of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper, save

from whence.calibration.nominal import SIMPLE

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
LIMITS: Mapping[str, str] = {"Clip": "Clip", "LeakyRelu": "LeakyRelu", "HardSigmoid": "HardSigmoid"}
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
# A Relu and the limits behind it would become one kernel.
_BASE_ALONE, _BASE_BEHIND = "Abs", "Relu"
# All that a model touches fits the second level of any cache.
_ROWS, _COLUMNS = 64, 256
_ALONE_ROWS, _REPEATS = 128, 2
_BATCHED = (1, _ROWS, _COLUMNS)
_LOWEST, _HIGHEST = 0.25, 2.0
_NARROW, _LAYERS = 16, 4
_SIDE = 8
_LARGE_ROWS, _LARGE_COLUMNS, _LARGE_LAYERS = 1024, 1024, 1
# What is large of a convolution are its rows: engines apply functions row by row.
_CHANNELS, _SUM_SIDE, _LARGE_SIDE = 64, 16, 128
# Of several large sums, each finds memory in another state.
_SUM_LAYERS = 3
_RESIDUAL_LAYER = {
    "first": (_NARROW, _CHANNELS),
    "inner": (_CHANNELS, _NARROW),
    "wide": (_NARROW, _CHANNELS),
    "same": (_CHANNELS, _CHANNELS),
    "last": (_CHANNELS, _NARROW),
}
"""By convolution: from how many channels it leads to how many."""
_BIASES = ("bias", "large_bias", "activated_bias", "large_activated_bias")
_RESIDUALS = ("sum", "large_sum", "kept_sum", "large_kept_sum")
ELEMENTS = {
    "alone": _ALONE_ROWS * _COLUMNS * _REPEATS,
    "product": _ROWS * _COLUMNS * _LAYERS,
    "convolution": _SIDE * _SIDE * _COLUMNS * _LAYERS,
    "bias": _ROWS * _COLUMNS * _LAYERS,
    "norm": _ROWS * _COLUMNS * _LAYERS,
    "large_product": _LARGE_ROWS * _LARGE_COLUMNS * _LARGE_LAYERS,
    "large_convolution": _LARGE_SIDE**2 * _CHANNELS * _LARGE_LAYERS,
    "large_bias": _LARGE_ROWS * _LARGE_COLUMNS * _LARGE_LAYERS,
    "activated_bias": _ROWS * _COLUMNS * _LAYERS,
    "large_activated_bias": _LARGE_ROWS * _LARGE_COLUMNS * _LARGE_LAYERS,
    "sum": _SUM_SIDE**2 * _CHANNELS * _SUM_LAYERS,
    "kept_sum": _SUM_SIDE**2 * _CHANNELS * _SUM_LAYERS,
    "large_sum": _LARGE_SIDE**2 * _CHANNELS * _SUM_LAYERS,
    "large_kept_sum": _LARGE_SIDE**2 * _CHANNELS * _SUM_LAYERS,
}
"""How many elements the function has, by kind of model."""
_OPSET, _IR = 20, 9


def write_function_models(folder: Path) -> None:
    """Files `KIND/NAME.onnx`, and inputs for them in `inputs.npz`."""
    rng = np.random.default_rng(0)
    inputs: dict[str, np.ndarray] = {
        "alone": rng.uniform(_LOWEST, _HIGHEST, (_ALONE_ROWS, _COLUMNS)),
        "product": rng.standard_normal((_ROWS, _NARROW)),
        "convolution": rng.standard_normal((1, _NARROW, _SIDE, _SIDE)),
        "norm": rng.standard_normal(_BATCHED),
        "side": rng.standard_normal(_BATCHED),
        "large_product": rng.standard_normal((_LARGE_ROWS, _NARROW)),
        "large_convolution": rng.standard_normal((1, _NARROW, _LARGE_SIDE, _LARGE_SIDE)),
    }
    for kind in _BIASES:
        inputs[kind] = inputs["large_product" if "large" in kind else "product"]
    for kind in _RESIDUALS:
        side = _LARGE_SIDE if "large" in kind else _SUM_SIDE
        inputs[kind] = rng.standard_normal((1, _NARROW, side, side))
    given = {name: value.astype(np.float32) for name, value in inputs.items()}
    np.savez(folder / "inputs.npz", **given)  # type: ignore[arg-type]
    limits = {"lowest": np.float32(_LOWEST), "highest": np.float32(_HIGHEST)}
    scale = np.linspace(0.5, 1.5, _COLUMNS, dtype=np.float32)
    for name, op in {SIMPLE: _BASE_ALONE, **FUNCTIONS}.items():
        nodes, weights = [], {**limits, "scale": scale}
        for number in range(_REPEATS):
            x = f"x{number}" if number else "alone"
            more = ["scale"] if op == "LayerNormalization" else []
            nodes += [
                helper.make_node(op, [x, *more], [f"y{number}"]),
                helper.make_node("Clip", [f"y{number}", *limits], [f"x{number + 1}"]),
            ]
        _save(folder / f"alone/{name}.onnx", nodes, given["alone"], weights)
    for family in FAMILIES:
        weights = {**_products(rng, "large" in family, "convolution" in family), **limits}
        for name, op in {SIMPLE: _BASE_BEHIND, **ACTIVATIONS, **LIMITS}.items():
            nodes = _layers(op, "Conv" if "convolution" in family else "Gemm", family)
            _save(folder / f"{family}/{name}.onnx", nodes, given[family], weights)
    for name, summed in ((SIMPLE, False), ("Add", True)):
        for kind in _BIASES:
            make = _activated_biases if "activated" in kind else _biases
            both = _products(rng, "large" in kind, convolution=False)
            _save(folder / f"{kind}/{name}.onnx", make(kind, summed=summed), given[kind], both)
        for kind in _RESIDUALS:
            nodes = _residuals(kind, summed=summed)
            _save(folder / f"{kind}/{name}.onnx", nodes, given[kind], _convolutions(rng))
        weights = {"scale": scale, "offset": scale}
        _save(folder / f"norm/{name}.onnx", _norms(summed=summed), given["norm"], weights)


def _products(rng: np.random.Generator, large: bool, convolution: bool) -> dict[str, np.ndarray]:
    """Weights and biases that lead from few columns to many, and back."""
    columns = (_CHANNELS if convolution else _LARGE_COLUMNS) if large else _COLUMNS
    wide = rng.standard_normal((_NARROW, columns)).astype(np.float32) / _NARROW**0.5
    narrow = rng.standard_normal((columns, _NARROW)).astype(np.float32) / columns**0.5
    scale = np.linspace(0.5, 1.5, columns, dtype=np.float32)
    if convolution:
        wide, narrow = wide.T[:, :, None, None], narrow.T[:, :, None, None]
    return {"wide": wide, "narrow": narrow, "wide_bias": scale, "narrow_bias": scale[:_NARROW]}


def _count(kind: str) -> int:
    return _LARGE_LAYERS if kind.startswith("large") else _LAYERS


def _layers(op: str, heavy: str, given: str) -> list[NodeProto]:
    """Wide results with the function behind them, and narrow ones, in turns."""
    nodes = []
    for number in range(_count(given)):
        x, limits = f"x{number}" if number else given, ["lowest", "highest"] * (op == "Clip")
        nodes += [
            helper.make_node(heavy, [x, "wide", "wide_bias"], [f"w{number}"]),
            helper.make_node(op, [f"w{number}", *limits], [f"y{number}"]),
            helper.make_node(heavy, [f"y{number}", "narrow", "narrow_bias"], [f"x{number + 1}"]),
        ]
    return nodes


def _convolutions(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights and biases of 1×1 convolutions between few channels and more: of each its own, as
    OpenVINO fuses no bias that several have.
    """
    found = {}
    for name, (inner, outer) in _RESIDUAL_LAYER.items():
        for number in range(_SUM_LAYERS):
            weight = rng.standard_normal((outer, inner, 1, 1)) / inner**0.5
            found[f"{name}{number}"] = weight.astype(np.float32)
            found[f"{name}{number}_bias"] = np.linspace(0.5, 1.5, outer, dtype=np.float32)
    return found


def _biases(given: str, *, summed: bool) -> list[NodeProto]:
    nodes = []
    for number in range(_count(given)):
        x, y = f"x{number}" if number else given, f"w{number}"
        nodes.append(helper.make_node("MatMul", [x, "wide"], [y]))
        if summed:
            nodes.append(helper.make_node("Add", [y, "wide_bias"], [f"y{number}"]))
            y = f"y{number}"
        nodes.append(helper.make_node("MatMul", [y, "narrow"], [f"x{number + 1}"]))
    return nodes


def _activated_biases(given: str, *, summed: bool) -> list[NodeProto]:
    """By Gemm: some engines fuse no function behind a MatMul without a sum."""
    nodes = []
    for number in range(_count(given)):
        x = f"x{number}" if number else given
        nodes += [
            helper.make_node("Gemm", [x, "wide", *["wide_bias"] * summed], [f"w{number}"]),
            helper.make_node("Relu", [f"w{number}"], [f"y{number}"]),
            helper.make_node("Gemm", [f"y{number}", "narrow"], [f"x{number + 1}"]),
        ]
    return nodes


def _residuals(given: str, *, summed: bool) -> list[NodeProto]:
    """Wide results, others made from them, their sum and a function, as in residual networks;
    narrow results, in turns. Both twins compute both.
    """
    nodes = []

    def conv(x: str, name: str, out: str) -> str:
        nodes.append(helper.make_node("Conv", [x, name, f"{name}_bias"], [out]))
        return out

    x = given
    for number in range(_SUM_LAYERS):
        first = y = conv(x, f"first{number}", f"w{number}")
        if "kept" in given:
            y = conv(y, f"same{number}", f"v{number}")
        else:
            y = conv(y, f"inner{number}", f"n{number}")
            y = conv(y, f"wide{number}", f"v{number}")
        if summed:
            nodes.append(helper.make_node("Add", [y, first], [f"s{number}"]))
            y = f"s{number}"
        nodes.append(helper.make_node("Relu", [y], [f"y{number}"]))
        x = conv(f"y{number}", f"last{number}", f"x{number + 1}")
    # A large result takes as long to hand out as much of this, now more and now less.
    return [*nodes, helper.make_node("GlobalAveragePool", [x], ["pooled"])]


def _norms(*, summed: bool) -> list[NodeProto]:
    nodes = []
    for number in range(_LAYERS):
        x = f"x{number}" if number else "norm"
        if summed:
            nodes.append(helper.make_node("Add", [x, "side"], [f"y{number}"]))
            x = f"y{number}"
        nodes.append(
            helper.make_node("LayerNormalization", [x, "scale", "offset"], [f"x{number + 1}"])
        )
    return nodes


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
