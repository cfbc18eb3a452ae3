"""Bad files: one line that names what is wrong and where, and never another kind of exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from tests.frontends.onnx.models import model, node
from whence.errors import ModelError, UnsupportedError, WhenceError
from whence.frontends.onnx.reader import read_onnx

F32, BOOL = TensorProto.FLOAT, TensorProto.BOOL
X = np.zeros((2, 3), np.float32)


def plain() -> ModelProto:
    return model(
        [node("Relu", ["x"], ["a"], name="first"), node("Neg", ["a"], ["y"], name="second")],
        {"x": X},
        ["y"],
    )


def changed(change: Callable[[ModelProto], Any]) -> ModelProto:
    proto = plain()
    change(proto)
    return proto


def nodes(*given: Any, **more: Any) -> ModelProto:
    return model(given, {"x": X, "c": (BOOL, [])}, ["y"], **more)


def body(*given: Any, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Any:
    def values(names: tuple[str, ...]) -> list[Any]:
        return [helper.make_tensor_value_info(name, F32, None) for name in names]

    return helper.make_graph(given, "body", values(inputs), values(outputs))


RELU = node("Relu", ["x"], ["t"])
SELF = helper.make_function(
    "f", "F", ["a"], ["r"], [node("F", ["a"], ["r"], domain="f")], [helper.make_opsetid("f", 1)]
)
PING = helper.make_function(
    "f",
    "Ping",
    ["a"],
    ["r"],
    [node("Pong", ["a"], ["r"], domain="f")],
    [helper.make_opsetid("f", 1)],
)
PONG = helper.make_function(
    "f",
    "Pong",
    ["a"],
    ["r"],
    [node("Ping", ["a"], ["r"], domain="f")],
    [helper.make_opsetid("f", 1)],
)
HOLLOW = helper.make_function(
    "f", "F", ["a"], ["r"], [node("Relu", ["a"], ["other"])], [helper.make_opsetid("", 17)]
)


def bomb(level: int) -> Any:
    """A function that calls the next one nine times."""
    calls = [node(f"B{level + 1}", ["a"], [f"v{k}"], domain="f") for k in range(9)]
    return helper.make_function(
        "f", f"B{level}", ["a"], ["r"], [*calls, node("Relu", ["a"], ["r"])], []
    )


BOMB = [bomb(level) for level in range(12)]
BAD: list[tuple[str, ModelProto, type[WhenceError], str]] = [
    ("no graph", ModelProto(ir_version=8), ModelError, "holds no graph"),
    (
        "cycle",
        nodes(
            node("Add", ["x", "b"], ["a"], name="p"),
            node("Neg", ["a"], ["b"], name="q"),
            node("Abs", ["b"], ["y"]),
        ),
        ModelError,
        "'[pq]' .*cycle",
    ),
    ("self", nodes(node("Add", ["x", "y"], ["y"], name="p")), ModelError, "operator 'p' .*cycle"),
    (
        "unknown value",
        nodes(node("Relu", ["nowhere"], ["y"], name="p")),
        ModelError,
        "operator 'p' .*reads 'nowhere', which nothing before it makes",
    ),
    (
        "unknown output",
        nodes(node("Relu", ["x"], ["a"])),
        ModelError,
        "output 'y' is made by nothing",
    ),
    (
        "made twice",
        nodes(node("Relu", ["x"], ["y"], name="p"), node("Neg", ["x"], ["y"], name="q")),
        ModelError,
        "'q' .*makes 'y', which operator 'p'",
    ),
    (
        "input made",
        nodes(node("Relu", ["x"], ["x"], name="p"), node("Neg", ["x"], ["y"])),
        ModelError,
        "makes 'x', which an input or initializer",
    ),
    (
        "two inputs",
        changed(lambda p: p.graph.input.append(p.graph.input[0])),
        ModelError,
        "two inputs named 'x'",
    ),
    (
        "no type",
        changed(lambda p: p.graph.input[0].ClearField("type")),
        ModelError,
        "input 'x' has no type",
    ),
    (
        "unnamed input",
        changed(lambda p: p.graph.input.add(name="", type=p.graph.input[0].type)),
        ModelError,
        "has no name",
    ),
    (
        "unnamed constant",
        changed(lambda p: p.graph.initializer.add(data_type=1, dims=[0])),
        ModelError,
        "has no name",
    ),
    (
        "unknown operator",
        nodes(node("Frobnicate", ["x"], ["y"], name="p")),
        UnsupportedError,
        "'p' is a 'Frobnicate' of the default domain",
    ),
    (
        "unknown domain",
        nodes(node("Conv", ["x"], ["y"], name="p", domain="my\ndomain")),
        UnsupportedError,
        r"'Conv' of domain 'my\\ndomain'",
    ),
    (
        "no operator",
        nodes(node("", ["x"], ["y"], name="p")),
        ModelError,
        "operator 'p' does not say its type",
    ),
    (
        "old opset",
        nodes(node("Relu", ["x"], ["y"]), opset=0),
        UnsupportedError,
        "opset 0; whence reads 1 to 28",
    ),
    ("new opset", nodes(node("Relu", ["x"], ["y"]), opset=99), UnsupportedError, "opset 99"),
    (
        "large tensor",
        changed(
            lambda p: p.graph.initializer.add(
                name="w", data_type=1, dims=[50000, 50000], raw_data=b""
            )
        ),
        ModelError,
        "tensor 'w'",
    ),
    (
        "large constant",
        nodes(
            node("Constant", [], ["y"], value=TensorProto(name="k", data_type=1, dims=[1 << 33]))
        ),
        ModelError,
        "tensor 'k'",
    ),
    (
        "two values",
        nodes(node("Constant", [], ["y"], name="p", value_int=1, value_float=2.0)),
        ModelError,
        "'p' .*states 2 values",
    ),
    ("no value", nodes(node("Constant", [], ["y"], name="p")), ModelError, "'p' .*states 0 values"),
    (
        "odd value",
        nodes(node("Constant", [], ["y"], name="p", other=1)),
        ModelError,
        "'other' does not hold a constant",
    ),
    (
        "missing input",
        nodes(node("Softmax", [], ["y"], name="p"), opset=9),
        ModelError,
        "'p' .*lacks its input 0",
    ),
    (
        "attribute kind",
        nodes(node("Softmax", ["x"], ["y"], name="p", axis="one"), opset=9),
        ModelError,
        "'p' .*attribute axis must be an integer",
    ),
    (
        "attribute list",
        nodes(node("Squeeze", ["x"], ["y"], name="p", axes=[0.5]), opset=9),
        ModelError,
        "'p' .*attribute axes must be a list of integers",
    ),
    (
        "kindless",
        changed(lambda p: p.graph.node[0].attribute.add(name="k")),
        ModelError,
        "operator 'first' .*'k' does not say",
    ),
    (
        "too few inputs",
        nodes(node("Add", ["x"], ["y"], name="p")),
        ModelError,
        "'p' .*has 1 input; it takes 2",
    ),
    (
        "too many inputs",
        nodes(node("Relu", ["x", "x"], ["y"], name="p")),
        ModelError,
        "'p' .*has 2 inputs; it takes 1",
    ),
    (
        "no inputs",
        nodes(node("Concat", [], ["y"], name="p", axis=0)),
        ModelError,
        "'p' .*has 0 inputs; it takes 1 or more",
    ),
    (
        "middle input",
        nodes(node("Where", ["c", "", "x"], ["y"], name="p")),
        ModelError,
        "'p' .*lacks its input 1",
    ),
    (
        "too many outputs",
        nodes(node("Relu", ["x"], ["y", "z"], name="p")),
        ModelError,
        "'p' .*has 2 outputs; it makes 1",
    ),
    (
        "kind of attribute",
        nodes(node("Concat", ["x"], ["y"], name="p", axis="0")),
        ModelError,
        "'p' .*'axis' is of the wrong kind",
    ),
    (
        "no attribute",
        nodes(node("Concat", ["x"], ["y"], name="p")),
        ModelError,
        "'p' .*lacks its attribute 'axis'",
    ),
    (
        "our own names",
        nodes(node("Output", ["x"], ["y"], name="p")),
        UnsupportedError,
        "'p' is a 'Output' of the default domain",
    ),
    (
        "our own operators",
        nodes(node("FusedConv", ["x", "x"], ["y"], name="p")),
        UnsupportedError,
        "'p' is a 'FusedConv'",
    ),
    (
        "wild axis",
        nodes(
            node("LayerNormalization", ["x", "x"], ["y", "m", "d"], name="p", axis=(1 << 63) - 1)
        ),
        ModelError,
        "'p' .*'axis' is 9223372036854775807",
    ),
    (
        "wild count",
        nodes(
            node("GatherND", ["x", "i"], ["y"], name="p", batch_dims=-9),
            constants={"i": np.zeros((1, 1), int)},
        ),
        ModelError,
        "'p' .*-9",
    ),
    (
        "contradiction",
        nodes(node("MatMul", ["x", "x"], ["y"], name="p")),
        ModelError,
        "operator 'p' .*MatMul",
    ),
    (
        "graph holder",
        nodes(node("Relu", ["x"], ["y"], name="p", body=body())),
        UnsupportedError,
        "'p' .*holds graphs",
    ),
    (
        "graph holder of lines",
        nodes(node("Re\nlu", ["x"], ["y"], name="p", body=body())),
        UnsupportedError,
        r"'p' \(Re\\nlu\): .*holds graphs",
    ),
    (
        "one branch",
        nodes(node("If", ["c"], ["y"], name="p", then_branch=body(RELU, outputs=("t",)))),
        ModelError,
        "lacks its graph 'else_branch'",
    ),
    *(
        (
            f"{op} without a graph",
            nodes(node(op, ["c"], ["y"], name="p")),
            ModelError,
            "lacks its graph",
        )
        for op in ("If", "Loop", "Scan", "SequenceMap")
    ),
    (
        "search without a graph",
        nodes(node("GreedySearch", ["c"], ["y"], name="p", domain="com.microsoft")),
        ModelError,
        "lacks its graph 'decoder'",
    ),
    (
        "branch operands",
        nodes(
            node(
                "If",
                ["c", "c"],
                ["y"],
                name="p",
                then_branch=body(RELU, outputs=("t",)),
                else_branch=body(RELU, outputs=("t",)),
            )
        ),
        ModelError,
        "'p' .*has 2 inputs; it takes a condition",
    ),
    (
        "branch counts",
        nodes(
            node(
                "If",
                ["c"],
                ["y"],
                name="p",
                then_branch=body(RELU, outputs=("t",)),
                else_branch=body(),
            )
        ),
        ModelError,
        "'p' .*1 and 0 outputs",
    ),
    (
        "branch reads",
        nodes(
            node(
                "If",
                ["c"],
                ["y"],
                name="p",
                then_branch=body(node("Neg", ["gone"], ["t"]), outputs=("t",)),
                else_branch=body(),
            )
        ),
        ModelError,
        "'p' .*its graph reads 'gone'",
    ),
    (
        "loop inputs",
        nodes(node("Loop", ["", "c", "x"], ["y"], name="p", body=body(inputs=("i",)))),
        ModelError,
        "'p' .*1 inputs where 3",
    ),
    (
        "scan inputs",
        nodes(node("Scan", ["x"], ["y"], name="p", body=body(inputs=("i",)), num_scan_inputs=2)),
        ModelError,
        "'p' .*scans 2",
    ),
    (
        "recursion",
        nodes(node("F", ["x"], ["y"], domain="f"), functions=[SELF]),
        ModelError,
        "function 'F' of domain 'f' calls itself",
    ),
    (
        "mutual recursion",
        nodes(node("Ping", ["x"], ["y"], domain="f"), functions=[PING, PONG]),
        ModelError,
        "calls itself",
    ),
    (
        "function output",
        nodes(node("F", ["x"], ["y"], domain="f", name="p"), functions=[HOLLOW]),
        ModelError,
        "'p' .*does not make its output 'r'",
    ),
    (
        "function arity",
        nodes(node("F", ["x", "x"], ["y"], domain="f", name="p"), functions=[HOLLOW]),
        ModelError,
        "'p' .*more inputs or outputs",
    ),
    (
        "function bomb",
        nodes(node("B0", ["x"], ["y"], domain="f"), functions=BOMB),
        ModelError,
        "more than 2000000 operators",
    ),
    (
        "element type",
        changed(lambda p: setattr(p.graph.input[0].type.tensor_type, "elem_type", 77)),
        UnsupportedError,
        "element type 77",
    ),
]


@pytest.mark.parametrize(
    ("proto", "kind", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_a_bad_model_is_one_line(proto: ModelProto, kind: type[WhenceError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        read_onnx(proto)
    assert "\n" not in str(caught.value)


def test_an_attribute_that_the_operator_does_not_have_is_left_out() -> None:
    file = nodes(node("Softmax", ["x"], ["y"], name="p", axes=1))
    with pytest.warns(
        RuntimeWarning, match="'p' .*has no attribute 'axes'; it has axis; it is left"
    ):
        graph = read_onnx(file)
    assert graph[1].attrs == {}
