"""Before and after: convolutions in blocks of channels, and what they take along."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
from tests.passes.rewriting import (
    buried,
    carried,
    edges_into,
    is_left_alone,
    only,
    operators,
    rewrite,
)
from whence.graph import Graph, NodeFlag
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.layout.block_channels import BlockChannels
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.pipeline import PREPARE
from whence.provenance import Reason
from whence.types import DType, TensorType


class Net:
    """A small network in the making."""

    def __init__(self, *shape: int) -> None:
        self.build = GraphBuilder("net")
        self.rng = np.random.default_rng(0)
        self.x = self.build.input("x", DType.F32, shape)

    def weights(self, *shape: int) -> Symbol:
        return self.build.const(self.rng.standard_normal(shape).astype(np.float32))

    def conv(
        self, x: Symbol, taken: int, made: int, *kernel: int, op: str = "Conv", **attrs: Any
    ) -> Symbol:
        shape = (
            (taken, made // attrs.get("group", 1))
            if "Transpose" in op
            else (made, taken // attrs.get("group", 1))
        )
        return self.build.op(
            op, x, self.weights(*shape, *(kernel or (1, 1))), self.weights(made), **attrs
        )

    def op(self, op: str, *inputs: Symbol | None, **attrs: Any) -> Symbol:
        return self.build.op(op, *inputs, **attrs)

    def done(self, *outputs: Symbol) -> Graph:
        for number, output in enumerate(outputs):
            self.build.output(f"y{number}", output)
        return self.build.finish()


def between(
    make: Callable[[Net, Symbol], Symbol],
    channels: int = 32,
    made: int | None = None,
    spatial: tuple[int, ...] = (6, 5),
) -> Graph:
    """A network with `make` between two pointwise convolutions."""
    net = Net(1, 16, *spatial)
    kernel = (1,) * len(spatial)
    y = make(net, net.conv(net.x, 16, channels, *kernel))
    return net.done(net.conv(y, made or channels, 16, *kernel))


def moved(graph: Graph) -> list[str]:
    """The operators after the pass, when all conversions but those at both ends are gone."""
    rewrite(graph, BlockChannels())
    found = operators(graph)
    assert found[0] == "ToBlocked"
    assert found[-1] in {"FromBlocked", "Reshape"}
    assert (found[1], found[-2]) == ("BlockedConv", "BlockedConv")
    return found[2:-2]


def test_one_convolution() -> None:
    net = Net(1, 16, 6, 5)
    graph = net.done(net.conv(net.x, 16, 40, 3, 3, pads=(1, 1, 1, 1), strides=(2, 2)))
    rewrite(graph, BlockChannels())
    assert operators(graph) == ["ToBlocked", "BlockedConv", "FromBlocked"]
    conv = only(graph, "BlockedConv")
    assert conv.type == TensorType(DType.F32, (1, 3, 3, 3, 16))
    assert {name: conv.attrs[name] for name in ("block", "channels_in", "channels_out", "pads")} == {
        "block": 16, "channels_in": 16, "channels_out": 40, "pads": (1, 1, 1, 1)
    }  # fmt: skip
    for op, kind in (("ToBlocked", "insert"), ("BlockedConv", "lower"), ("FromBlocked", "insert")):
        assert edges_into(graph, only(graph, op)) == {"Conv_1": kind}
        assert carried(graph, only(graph, op)) == (["Conv_1"], [])


def test_other_blocks() -> None:
    net = Net(1, 16, 6, 5)
    graph = net.done(net.conv(net.x, 16, 40))
    rewrite(graph, BlockChannels(block=8))
    assert only(graph, "BlockedConv").type == TensorType(DType.F32, (1, 5, 6, 5, 8))


def test_conversions_between_convolutions_cancel() -> None:
    net = Net(1, 16, 6, 5)
    y = net.conv(net.conv(net.conv(net.x, 16, 32), 32, 24), 24, 16)
    graph = net.done(y)
    rewrite(graph, BlockChannels())
    assert operators(graph) == [
        "ToBlocked",
        "BlockedConv",
        "BlockedConv",
        "BlockedConv",
        "FromBlocked",
    ]
    assert buried(graph) == {"Conv_1": Reason.CANCELLED, "Conv_2": Reason.CANCELLED}


def test_one_conversion_serves_all() -> None:
    net = Net(1, 16, 6, 5)
    graph = net.done(net.conv(net.x, 16, 16), net.conv(net.x, 16, 16))
    rewrite(graph, BlockChannels())
    assert operators(graph).count("ToBlocked") == 1


def test_first_layer_reads_its_input_plain() -> None:
    net = Net(1, 3, 9, 9)
    graph = net.done(net.conv(net.x, 3, 16, 3, 3))
    rewrite(graph, BlockChannels())
    assert operators(graph) == ["BlockedConv", "FromBlocked"]
    assert only(graph, "BlockedConv").attrs["plain_input"] == 1


def test_residual_and_activation() -> None:
    net = Net(1, 16, 6, 5)
    first = net.conv(net.x, 16, 32)
    w, b = net.weights(32, 32, 3, 3), net.weights(32)
    y = net.op(
        "FusedConv",
        first,
        w,
        b,
        first,
        pads=(1, 1, 1, 1),
        activation="LeakyRelu",
        activation_alpha=0.1,
    )
    graph = net.done(y)
    rewrite(graph, BlockChannels())
    assert operators(graph) == ["ToBlocked", "BlockedConv", "BlockedConv", "FromBlocked"]
    last = [node for node in graph if node.op == "BlockedConv"][-1]
    assert last.inputs[0] == last.inputs[3]
    assert last.attrs["activation"] == "LeakyRelu"


@pytest.mark.parametrize(
    ("attrs", "taken", "made", "group"),
    [
        ({"group": 32}, 32, 32, 32),
        ({"group": 2}, 32, 64, 2),
        ({"group": 8}, 32, 32, 2),
        ({"group": 32}, 32, 64, 2),
        ({"group": 3}, 24, 24, 1),
    ],
    ids=[
        "depthwise",
        "whole blocks",
        "four groups at a time",
        "two results to a channel",
        "few odd groups become one",
    ],
)
def test_groups(attrs: dict[str, Any], taken: int, made: int, group: int) -> None:
    net = Net(2, taken, 6, 5)
    graph = net.done(net.conv(net.x, taken, made, 3, 3, pads=(1, 1, 1, 1), **attrs))
    rewrite(graph, BlockChannels())
    assert only(graph, "BlockedConv").attrs["group"] == group


_TRANSPOSED: list[tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = [
    ((1, 32, 5, 6), 24, (2, 2), {"strides": (2, 2)}),
    ((1, 32, 5, 6), 16, (4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 3, 5, 6), 32, (3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 1)}),
    (
        (1, 16, 5, 6),
        3,
        (3, 2),
        {"strides": (3, 1), "activation": "Relu", "op": "FusedConvTranspose"},
    ),
    ((1, 16, 5, 6), 16, (3, 3), {"dilations": (2, 2), "pads": (2, 2, 2, 2)}),
    ((1, 16, 9), 4, (8,), {"strides": (4,), "pads": (2, 2)}),
    ((1, 16, 9), 32, (5,), {"strides": (3,)}),
]


@pytest.mark.parametrize(("shape", "made", "kernel", "attrs"), _TRANSPOSED)
def test_transposed(
    shape: tuple[int, ...], made: int, kernel: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    net = Net(*shape)
    graph = net.done(net.conv(net.x, shape[1], made, *kernel, **{"op": "ConvTranspose", **attrs}))
    rewrite(graph, BlockChannels())
    assert "BlockedConv" in operators(graph)
    assert not {"ConvTranspose", "FusedConvTranspose"} & set(operators(graph))


def test_one_spatial_axis() -> None:
    assert moved(
        between(
            lambda net, x: net.op("Relu", net.op("MaxPool", x, kernel_shape=(3,), pads=(1, 1))),
            spatial=(20,),
        )
    ) == [
        "BlockedMaxPool",
        "Relu",
    ]


def _per_channel(net: Net, x: Symbol) -> Symbol:
    return net.op("Add", net.op("Mul", x, net.weights(24, 1, 1)), net.weights(1, 24, 1, 1))


def _squeeze_excite(net: Net, x: Symbol) -> Symbol:
    squeezed = net.op("ReduceMean", x, net.build.const(np.array([2, 3])), keepdims=1)
    return net.op("Mul", x, net.op("Sigmoid", net.conv(net.conv(squeezed, 24, 8), 8, 24)))


def _spatial_mask(net: Net, x: Symbol) -> Symbol:
    return net.op("Mul", x, net.op("ReduceMax", x, net.build.const(np.array([1])), keepdims=1))


def _batch_norm(net: Net, x: Symbol) -> Symbol:
    variance = net.build.const(np.abs(net.rng.standard_normal(24)).astype(np.float32))
    return net.op(
        "BatchNormalization",
        x,
        net.weights(24),
        net.weights(24),
        net.weights(24),
        variance,
        epsilon=0.01,
    )


_ALONG: dict[str, tuple[Callable[[Net, Symbol], Symbol], list[str]]] = {
    "unary": (lambda net, x: net.op("Sigmoid", x), ["Sigmoid"]),
    "clip with scalars": (
        lambda net, x: net.op(
            "Clip", x, net.build.const(np.float32(0)), net.build.const(np.float32(6))
        ),
        ["Clip"],
    ),
    "residual": (lambda net, x: net.op("Add", x, net.op("Relu", x)), ["Relu", "Add"]),
    "constants by channel": (_per_channel, ["Mul", "Add"]),
    "constant for every element": (lambda net, x: net.op("Sub", x, net.weights(24, 6, 5)), ["Sub"]),
    "constant over space": (lambda net, x: net.op("Div", x, net.weights(6, 5)), ["Div"]),
    "slopes": (lambda net, x: net.op("PRelu", x, net.weights(24, 1, 1)), ["PRelu"]),
    "squeeze and excite": (
        _squeeze_excite,
        ["ReduceMean", "BlockedConv", "BlockedConv", "Sigmoid", "Mul"],
    ),
    "max pool": (
        lambda net, x: net.op("MaxPool", x, kernel_shape=(3, 3), auto_pad="SAME_UPPER"),
        ["BlockedMaxPool"],
    ),
    "average pool": (
        lambda net, x: net.op("AveragePool", x, kernel_shape=(2, 2)),
        ["BlockedAveragePool"],
    ),
    "global pool": (lambda net, x: net.op("GlobalAveragePool", x), ["ReduceMean"]),
    "pad": (
        lambda net, x: net.op("Pad", x, net.build.const(np.array([0, 0, 1, 2, 0, 0, 3, 0]))),
        ["Pad"],
    ),
    "pad named axes": (
        lambda net, x: net.op(
            "Pad",
            x,
            net.build.const(np.array([2, 1])),
            None,
            net.build.const(np.array([-1])),
            mode="edge",
        ),
        ["Pad"],
    ),
    "slice of space": (
        lambda net, x: net.op(
            "Slice", x, *(net.build.const(np.array(v)) for v in ([1], [-1], [2], [2]))
        ),
        ["Slice"],
    ),
    "resize": (
        lambda net, x: net.op(
            "Resize", x, None, net.build.const(np.array([1, 1, 2, 2], np.float32)), mode="nearest"
        ),
        ["Resize"],
    ),
    "normalisation": (_batch_norm, ["Mul", "Add"]),
}


@pytest.mark.parametrize("name", _ALONG)
def test_taken_along(name: str) -> None:
    make, expected = _ALONG[name]
    assert moved(between(make, 24)) == expected


def test_concat_and_split() -> None:
    def both(net: Net, x: Symbol) -> Symbol:
        parts = net.build.op("Split", x, n_outputs=2, axis=1)
        return net.op("Concat", parts[1], net.op("Relu", parts[0]), net.conv(x, 32, 8), axis=1)

    assert moved(between(both, 32, 40)) == ["Split", "Relu", "BlockedConv", "Concat"]


def test_slice_of_whole_blocks() -> None:
    def front(net: Net, x: Symbol) -> Symbol:
        return net.op("Slice", x, *(net.build.const(np.array(v)) for v in ([16], [100], [1])))

    graph = between(front, 40, 24)
    assert moved(graph) == ["Slice"]
    assert only(graph, "Slice").type == TensorType(DType.F32, (1, 2, 6, 5, 16))


def test_a_mask_over_space_is_spread_over_channels() -> None:
    graph = between(_spatial_mask, 24)
    rewrite(graph, BlockChannels())
    assert operators(graph) == [
        "ToBlocked",
        "BlockedConv",
        "FromBlocked",
        "ReduceMax",
        "Reshape",
        "Mul",
        "BlockedConv",
        "FromBlocked",
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda net, x: net.op("Softmax", x, axis=1),
        lambda net, x: net.op("Concat", x, x, axis=1),
        lambda net, x: net.op("ReduceMean", x, net.build.const(np.array([1])), keepdims=1),
        lambda net, x: net.op("Pad", x, net.build.const(np.array([0, 1, 0, 0, 0, 0, 0, 0]))),
        lambda net, x: net.op("Slice", x, *(net.build.const(np.array(v)) for v in ([1], [9], [1]))),
        lambda net, x: net.op(
            "Add", net.op("Add", x, net.x), net.build.const(np.ones((2, 24, 1, 1), np.float32))
        ),
    ],
    ids=[
        "softmax over channels",
        "concat inside a block",
        "mean of channels",
        "more channels",
        "slice inside a block",
        "another batch",
    ],
)
def test_what_mixes_channels_stays(make: Callable[[Net, Symbol], Symbol]) -> None:
    net = Net(1, 24, 6, 5)
    graph = net.done(make(net, net.conv(net.x, 24, 24)))
    rewrite(graph, BlockChannels())
    assert operators(graph)[:3] in (
        ["ToBlocked", "BlockedConv", "FromBlocked"],
        ["ToBlocked", "BlockedConv", "Add"],
    )
    assert not any(op.startswith("Blocked") for op in operators(graph)[3:])


def test_one_pixel_is_a_reshape() -> None:
    net = Net(1, 16, 6, 5)
    graph = net.done(net.op("Flatten", net.op("GlobalAveragePool", net.conv(net.x, 16, 32))))
    rewrite(graph, BlockChannels())
    assert operators(graph) == ["ToBlocked", "BlockedConv", "ReduceMean", "Reshape", "Flatten"]


def test_what_is_not_known_or_not_worth_it_stays() -> None:
    def one(
        dtype: type = np.float32,
        shape: tuple[Any, ...] = (1, 16, 6, 5),
        made: int = 16,
        constant: bool = True,
    ) -> Graph:
        build = GraphBuilder("one")
        w: np.ndarray = np.ones((made, 16, 1, 1), dtype)
        x = build.input("x", DType.of(w), shape)
        weights = build.const(w) if constant else build.input("w", DType.of(w), w.shape)
        build.output("y", build.op("Conv", x, weights))
        return build.finish()

    assert is_left_alone(one(np.float64), BlockChannels())
    assert is_left_alone(one(shape=("n", 16, 6, 5)), BlockChannels())
    assert is_left_alone(one(constant=False), BlockChannels())
    assert is_left_alone(one(made=2), BlockChannels())
    pinned = one()
    only(pinned, "Conv").flags |= NodeFlag.NO_LAYOUT_CHANGE
    assert is_left_alone(pinned, BlockChannels())


@pytest.mark.parametrize(
    "name", ["light_resnet50", "light_squeezenet", "light_densenet121", "light_inception_v2"]
)
def test_whole_networks_stay_blocked(zoo_model: Callable[[str], Path], name: str) -> None:
    graph = whence.load(zoo_model(name))
    run_passes(graph, PREPARE)
    run_passes(graph, (BlockChannels(),), check=CheckLevel.INVARIANTS)
    found = operators(graph)
    assert not {"Conv", "FusedConv", "ToBlocked", "BatchNormalization"} & set(found)
    # At most the end of the network asks for plain channels.
    assert found.count("FromBlocked") <= 1
    assert sum(bool(node.attrs.get("plain_input")) for node in graph) == 1
