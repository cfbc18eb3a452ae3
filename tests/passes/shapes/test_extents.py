"""Models are prepared once for many sizes: every type is an expression over the model's dimensions,
and with numbers put in for those, the graph is what it would have been for the numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pytest

from whence.building.prepare import prepare_graph
from whence.extent import Dimensions
from whence.fusion import GroupLimits, find_groups, fuse
from whence.graph import Check, Graph, check_graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.copying import with_sizes
from whence.graph.operands import why_it_fails
from whence.ops.binding import Port
from whence.ops.open_dimensions import open_dimensions
from whence.passes.manager import CheckLevel
from whence.passes.preferences import Preferences
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.types import DType, TensorType

HIDDEN, HEADS = 16, 4


class Prepared(NamedTuple):
    graph: Graph
    dimensions: Dimensions


def ports(graph: Graph) -> list[Port]:
    return [Port(node.name, node.type) for node in graph.inputs]


def shapes_at(graph: Graph, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    found = {}
    for node in graph.inputs:
        assert isinstance(node.type, TensorType)
        found[node.name] = tuple(
            dim if isinstance(dim, int) else sizes[str(dim)] for dim in node.type.shape or ()
        )
    return found


def prepared(model: Graph, sizes: Mapping[str, int]) -> Prepared:
    dimensions, shapes = open_dimensions(ports(model), shapes_at(model, sizes))
    graph = fix_input_shapes(model.copy(), shapes)
    prepare_graph(graph, Preferences(channel_block=8))
    check_graph(graph, Check.HASH | Check.ORIGIN)
    return Prepared(graph, dimensions)


def guards(dimensions: Dimensions) -> list[str]:
    return [str(guard) for guard in dimensions.guards]


def work(graph: Graph) -> Counter[str]:
    """How often each operator occurs that does something when the model runs."""
    return Counter(node.op for node in graph if not node.is_a("Const", "DimensionValue"))


def random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    found = {}
    for node in graph.inputs:
        assert isinstance(node.type, TensorType)
        shape = node.type.static_shape
        assert shape is not None
        found[node.name] = (
            rng.integers(0, 9, shape)
            if node.type.dtype is DType.I64
            else rng.standard_normal(shape, np.float32)
        )
    return found


# ---- models ----


def ints(build: GraphBuilder, *values: int) -> Symbol:
    return build.const(np.array(values, np.int64))


def weights(build: GraphBuilder, *shape: int) -> Symbol:
    value = np.random.default_rng(sum(shape)).standard_normal(shape)
    return build.const((value / 4).astype(np.float32))


def size_of(build: GraphBuilder, x: Symbol, axis: int) -> Symbol:
    """One dimension as a list of one, as exporters write it: shape, gather, unsqueeze."""
    one = build.op("Gather", build.op("Shape", x), build.const(axis), axis=0)
    return build.op("Unsqueeze", one, ints(build, 0))


def normalised(build: GraphBuilder, x: Symbol) -> Symbol:
    ones = build.const(np.ones(HIDDEN, np.float32))
    return build.op("LayerNormalization", x, ones, weights(build, HIDDEN))


def heads(build: GraphBuilder, x: Symbol) -> Symbol:
    """Projected and split into heads, with the shape computed in the graph."""
    y = build.op("Add", build.op("MatMul", x, weights(build, HIDDEN, HIDDEN)), weights(build, 16))
    rest = ints(build, HEADS), ints(build, HIDDEN // HEADS)
    shape = build.op("Concat", size_of(build, x, 0), size_of(build, x, 1), *rest, axis=0)
    return build.op("Transpose", build.op("Reshape", y, shape), perm=(0, 2, 1, 3))


def attention(build: GraphBuilder, x: Symbol, mask: Symbol) -> Symbol:
    q, k, v = heads(build, x), heads(build, x), heads(build, x)
    scores = build.op("MatMul", q, build.op("Transpose", k, perm=(0, 1, 3, 2)))
    scores = build.op("Div", scores, build.const(np.float32(2)))
    scores = build.op("Softmax", build.op("Add", scores, mask), axis=-1)
    y = build.op("Transpose", build.op("MatMul", scores, v), perm=(0, 2, 1, 3))
    shape = build.op(
        "Concat", size_of(build, x, 0), size_of(build, x, 1), ints(build, HIDDEN), axis=0
    )
    y = build.op("MatMul", build.op("Reshape", y, shape), weights(build, HIDDEN, HIDDEN))
    return normalised(build, build.op("Add", x, y))


def encoder() -> Graph:
    """Tokens, positions cut from a table, a mask from an input, two layers."""
    build = GraphBuilder("encoder")
    tokens = build.input("tokens", DType.I64, ["batch", "sequence"])
    given = build.input("mask", DType.I64, ["batch", "sequence"])
    x = build.op("Gather", weights(build, 40, HIDDEN), tokens, axis=0)
    length = size_of(build, tokens, 1)
    positions = build.op(
        "Slice", build.const(np.arange(32)[None]), ints(build, 0), length, ints(build, 1)
    )
    x = build.op("Add", x, build.op("Gather", weights(build, 32, HIDDEN), positions, axis=0))
    seen = build.op("Cast", build.op("Unsqueeze", given, ints(build, 1, 2)), to=int(DType.F32))
    hidden = build.op("Sub", build.const(np.float32(1)), seen)
    mask = build.op("Mul", hidden, build.const(np.float32(-1e4)))
    for _ in range(2):
        x = attention(build, x, mask)
    build.output("y", x)
    return build.finish()


def decoder() -> Graph:
    """A causal mask from ranges, past keys that the new ones are appended to."""
    build = GraphBuilder("decoder")
    x = build.input("x", DType.F32, ["batch", "sequence", HIDDEN])
    size = HIDDEN // HEADS
    past = build.input("past.k", DType.F32, ["batch", HEADS, "past sequence", size])
    q, new = heads(build, x), heads(build, x)
    keys = build.op("Concat", past, new, axis=2)
    scores = build.op("MatMul", q, build.op("Transpose", keys, perm=(0, 1, 3, 2)))
    zero, one = build.const(np.int64(0)), build.const(np.int64(1))
    before = build.op("Gather", build.op("Shape", past), build.const(2), axis=0)
    count = build.op("Gather", build.op("Shape", x), build.const(1), axis=0)
    total = build.op("Add", before, count)
    rows = build.op("Unsqueeze", build.op("Range", before, total, one), ints(build, 1))
    columns = build.op("Unsqueeze", build.op("Range", zero, total, one), ints(build, 0))
    hidden = build.op("Less", rows, columns)
    low = build.const(np.float32(-1e4))
    scores = build.op("Where", hidden, low, scores)
    y = build.op("MatMul", build.op("Softmax", scores, axis=-1), keys)
    shape = build.op("Concat", size_of(build, x, 0), ints(build, -1, HIDDEN), axis=0)
    y = build.op("Reshape", build.op("Transpose", y, perm=(0, 2, 1, 3)), shape)
    build.output("y", y)
    build.output("present.k", keys)
    return build.finish()


def pyramid() -> Graph:
    """Convolutions that halve the image, a resize back to the larger one, and all pixels in a
    row.
    """
    build = GraphBuilder("pyramid")
    x = build.input("image", DType.F32, ["batch", 3, "height", "width"])
    x = build.op("Relu", build.op("Conv", x, weights(build, 8, 3, 3, 3), pads=(1,) * 4))
    y = build.op("Conv", x, weights(build, 8, 8, 3, 3), pads=(1,) * 4, strides=(2, 2))
    y = build.op("MaxPool", build.op("Relu", y), kernel_shape=(2, 2), strides=(2, 2))
    gate = build.op("Sigmoid", build.op("GlobalAveragePool", y))
    y = build.op("Mul", y, gate)
    sizes = build.op(
        "Concat",
        size_of(build, y, 0),
        size_of(build, y, 1),
        size_of(build, x, 2),
        size_of(build, x, 3),
        axis=0,
    )
    large = build.op("Resize", y, None, None, sizes, mode="nearest")
    z = build.op("Concat", x, large, axis=1)
    shape = build.op("Concat", size_of(build, x, 0), ints(build, 16, -1), axis=0)
    build.output("y", build.op("Transpose", build.op("Reshape", z, shape), perm=(0, 2, 1)))
    return build.finish()


def grid() -> Graph:
    """The coordinates of all pixels, in real numbers as detectors have them."""
    build = GraphBuilder("grid")
    x = build.input("image", DType.F32, ["batch", 3, "height", "width"])
    zero, one = build.const(np.float32(0)), build.const(np.float32(1))
    ranges = []
    for axis in (2, 3):
        size = build.op("Gather", build.op("Shape", x), build.const(axis), axis=0)
        ranges.append(build.op("Range", zero, build.op("Cast", size, to=int(DType.F32)), one))
    rows, columns = ranges
    shape = build.op("Concat", build.op("Shape", rows), build.op("Shape", columns), axis=0)
    rows = build.op("Expand", build.op("Unsqueeze", rows, ints(build, 1)), shape)
    columns = build.op("Expand", build.op("Unsqueeze", columns, ints(build, 0)), shape)
    both = [build.op("Unsqueeze", part, ints(build, 0)) for part in (rows, columns)]
    build.output(
        "y",
        build.op(
            "Add",
            build.op("Concat", *both, axis=0),
            build.op("Slice", x, ints(build, 0), ints(build, 2), ints(build, 1)),
        ),
    )
    return build.finish()


def scaled() -> Graph:
    """A size that is multiplied by what is no whole number, which is followed no further."""
    build = GraphBuilder("scaled")
    x = build.input("x", DType.F32, ["batch", "length"])
    size = build.op("Cast", size_of(build, x, 1), to=int(DType.F32))
    part = build.op("Floor", build.op("Mul", size, build.const(np.array([0.3], np.float32))))
    end = build.op("Cast", part, to=int(DType.I64))
    build.output("y", build.op("Relu", build.op("Slice", x, ints(build, 0), end, ints(build, 1))))
    return build.finish()


def row() -> Graph:
    """Only operators that most kernels are made of; the batch is open."""
    build = GraphBuilder("row")
    x = build.input("x", DType.F32, ["batch", HIDDEN])
    y = build.op("Relu", build.op("Gemm", x, weights(build, HIDDEN, 8), weights(build, 8)))
    build.output("y", build.op("Softmax", y, axis=-1))
    return build.finish()


Case = tuple[Callable[[], Graph], dict[str, int], list[dict[str, int]], list[str], dict[str, int]]
"""A model, the sizes it is prepared for, others that it serves, the guards, and the operators that
are left to the run because their results depend on sizes.
"""
CASES: list[Case] = [
    (row, {"batch": 5}, [{"batch": 2}, {"batch": 17}], [], {}),
    (
        encoder,
        {"batch": 3, "sequence": 5},
        [{"batch": 2, "sequence": 9}, {"batch": 4, "sequence": 32}, {"batch": 5, "sequence": 5}],
        ["sequence <= 32"],
        {"Slice": 1, "Gather": 1},
    ),
    (
        decoder,
        {"batch": 2, "sequence": 3, "past sequence": 5},
        [
            {"batch": 3, "sequence": 4, "past sequence": 4},
            {"batch": 2, "sequence": 2, "past sequence": 9},
        ],
        [],
        {"FusedMatMul": 1, "MatMul": 1, "Softmax": 1, "Where": 1, "Less": 1, "Range": 2}
        | {"Unsqueeze": 2},
    ),
    (
        pyramid,
        {"batch": 2, "height": 16, "width": 12},
        [{"batch": 3, "height": 9, "width": 31}, {"batch": 2, "height": 40, "width": 40}],
        ["0 <= ((height - 1)/2) - 1", "0 <= ((width - 1)/2) - 1"],
        {"FromBlocked": 1},
    ),
    (
        grid,
        {"batch": 3, "height": 6, "width": 4},
        [{"batch": 2, "height": 4, "width": 4}],
        [],
        {"Range": 2, "Unsqueeze": 4, "Concat": 1, "Expand": 2},
    ),
    (scaled, {"batch": 3, "length": 10}, [{"batch": 4, "length": 10}], ["length == 10"], {}),
]


def test_passes_are_checked_on_the_sizes_of_the_call() -> None:
    """`WHENCE_CHECK=2` runs the graph after each pass, which asks nothing of the dimensions."""
    model = encoder()
    dimensions, shapes = open_dimensions(
        ports(model), shapes_at(model, {"batch": 3, "sequence": 5})
    )
    graph = fix_input_shapes(model.copy(), shapes)
    prepare_graph(graph, check=CheckLevel.OUTPUTS)
    assert guards(dimensions) == ["sequence <= 32"]


@pytest.mark.parametrize(
    ("make", "first", "others", "wanted", "more"),
    CASES,
    ids=["row", "encoder", "decoder", "pyramid", "grid", "scaled"],
)
def test_one_preparation_serves_other_sizes(
    make: Callable[[], Graph],
    first: dict[str, int],
    others: list[dict[str, int]],
    wanted: list[str],
    more: dict[str, int],
) -> None:
    model = make()
    graph, dimensions = prepared(model, first)
    fuse(graph, find_groups(graph, "dominator", GroupLimits()))
    assert guards(dimensions) == wanted
    assert all(
        isinstance(kind, TensorType) and kind.is_static for node in graph for kind in node.outputs
    )
    assert not any(node.is_a("Shape", "Size") for node in graph)
    names = {label: name for name, label in dimensions.labels.items()}
    for sizes in (first, *others):
        called = {names[label]: size for label, size in sizes.items()}
        assert dimensions.hold(called)
        found = with_sizes(graph, called)
        for node in found:
            assert why_it_fails(found, node) == ""
        # What preparing for these numbers alone gives.
        alone = fix_input_shapes(model.copy(), shapes_at(model, sizes))
        expected = alone.run(random_inputs(alone))
        prepare_graph(alone, Preferences(channel_block=8))
        assert [found.type_of(node.inputs[0] or node.ref()) for node in found.outputs] == [
            alone.type_of(node.inputs[0] or node.ref()) for node in alone.outputs
        ]
        assert work(found) - work(alone) == Counter(more)
        for mine, theirs in zip(found.run(random_inputs(found)), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert guards(dimensions) == wanted
