"""Damaged files: whatever is done to the bytes, reading ends with a graph that holds together or
with a `WhenceError`, soon and in little memory.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.frontends.tflite.making import Model, Quantised
from tests.mutation.damage import limited, mutations
from whence.errors import WhenceError
from whence.frontends.tflite.reader import read_tflite
from whence.graph.check import check_graph
from whence.provenance.luci_tables import EXECUTION_PLAN_TABLE, OP_TABLE, SOURCE_TABLE, TableCodec

SECONDS_FOR_ONE = 10
MEGABYTES_MORE = 600


def small_convolution(*, circle: bool = False) -> bytes:
    model = Model(circle=circle)
    x = model.input((1, 4, 4, 2), np.int8, Quantised(0.1, 3))
    w = model.const(
        np.ones((3, 2, 2, 2), np.int8), quantised=Quantised([0.1, 0.2, 0.3], [0, 0, 0], 0)
    )
    b = model.const(np.ones(3, np.int32), quantised=Quantised([0.01, 0.02, 0.03], [0, 0, 0], 0))
    y = model.op(
        "CONV_2D",
        [x, w, b],
        (1, 3, 3, 3),
        np.int8,
        Quantised(0.2, -1),
        padding=1,
        stride_w=1,
        stride_h=1,
        fused_activation_function=1,
    )
    flat = model.op(
        "RESHAPE",
        [y, model.const([1, 27], np.int32)],
        (1, 27),
        np.int8,
        Quantised(0.2, -1),
        new_shape=[1, 27],
    )
    model.output(model.op("SOFTMAX", [flat], (1, 27), np.int8, Quantised(1 / 256, -128), beta=1.0))
    if circle:
        model.metadata["ONE_source_table"] = SOURCE_TABLE.encode(
            {1: "conv", 2: "reshape", 5: "softmax"}
        )
        model.metadata["ONE_op_table"] = OP_TABLE.encode(
            {0: frozenset({1}), 1: frozenset({2}), 2: frozenset({2, 5})}
        )
        model.metadata["whence.folded"] = b"[[2,[2]]]"
    return model.bytes()


def loop_and_branch() -> bytes:
    model = Model()
    asking, condition = model.subgraph("cond")
    condition.output(
        condition.op(
            "LESS", [condition.input((), np.int32), condition.const(3, np.int32)], (), np.bool_
        )
    )
    repeated, body = model.subgraph("body")
    body.output(body.op("ADD", [body.input((), np.int32), body.const(1, np.int32)], (), np.int32))
    counted = model.op(
        "WHILE",
        [model.input((), np.int32)],
        (),
        np.int32,
        cond_subgraph_index=asking,
        body_subgraph_index=repeated,
    )
    flag = model.input((), np.bool_)
    model.output(
        model.op(
            "IF",
            [flag, counted],
            (),
            np.int32,
            then_subgraph_index=repeated,
            else_subgraph_index=repeated,
        )
    )
    return model.bytes()


def shapes_and_choices() -> bytes:
    model = Model()
    x = model.input((2, 3))
    filled = model.op("FILL", [model.const([2, 3], np.int32), model.const(1.0)], (2, 3))
    both = model.op("CONCATENATION", [x, filled], (4, 3), axis=0)
    chosen = model.op("GATHER", [both, model.const([3, 0], np.int32)], (2, 3), axis=0)
    tiled = model.op("TILE", [chosen, model.const([1, 2], np.int32)], (2, 6))
    hot = model.op(
        "ONE_HOT",
        [model.const([1], np.int32), model.const(4, np.int32), model.const(1.0), model.const(0.0)],
        (1, 4),
        axis=-1,
    )
    padded = model.op("PAD", [tiled, model.const([[0, 1], [1, 0]], np.int32)], (3, 7))
    model.output(
        model.op("MEAN", [padded, model.const([0], np.int32)], (7,), options="ReducerOptions"), hot
    )
    return model.bytes()


def detector() -> bytes:
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in (
            ("max_detections", 2),
            ("num_classes", 2),
            ("max_classes_per_detection", 1),
        ):
            builder.Key(key)
            builder.Int(value)
    model = Model()
    inputs = [
        model.input((1, 3, 4)),
        model.input((1, 3, 3)),
        model.const(np.ones((3, 4), np.float32)),
    ]
    outputs = [model.tensor(shape) for shape in ((1, 2, 4), (1, 2), (1, 2), (1,))]
    model.op(
        "CUSTOM:TFLite_Detection_PostProcess",
        inputs,
        outputs=outputs,
        custom=bytes(builder.Finish()),
    )
    model.output(*outputs)
    return model.bytes()


def recurrent() -> bytes:
    model = Model()
    weights = [model.const(np.ones((2, 2), np.float32)) for _ in range(8)]
    bias = [model.const(np.ones(2, np.float32)) for _ in range(4)]
    states = [model.tensor((1, 2), variable=True) for _ in range(2)]
    inputs = [model.input((1, 3, 2)), *weights, -1, -1, -1, *bias, -1, -1, *states]
    model.output(
        model.op(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            inputs,
            (1, 3, 2),
            fused_activation_function=4,
            cell_clip=1.0,
        )
    )
    return model.bytes()


def sparse_weights() -> bytes:
    model = Model()
    make = model.make
    w = model.tensor((3, 4), data=np.array([1, 2, 3], np.float32).tobytes())
    rows = make("DimensionMetadataT", format=0, denseSize=3)
    columns = make("DimensionMetadataT", format=1)
    for name, numbers in (("arraySegments", [0, 2, 2, 3]), ("arrayIndices", [0, 3, 1])):
        setattr(columns, name, make("Int32VectorT", values=numbers))
        setattr(columns, f"{name}Type", model.number("SparseIndexVector", "Int32Vector"))
    model.made.tensors[w].sparsity = make(
        "SparsityParametersT", traversalOrder=[0, 1], dimMetadata=[rows, columns]
    )
    dense = model.op("DENSIFY", [w], (3, 4))
    model.output(model.op("FULLY_CONNECTED", [model.input((1, 4)), dense, -1], (1, 3)))
    return model.bytes()


MODELS: dict[str, Callable[[], bytes]] = {
    "convolution": small_convolution,
    "convolution in Circle with tables": lambda: small_convolution(circle=True),
    "loop and branch": loop_and_branch,
    "shapes": shapes_and_choices,
    "detector": detector,
    "recurrent": recurrent,
    "sparse": sparse_weights,
}


def outcome(data: bytes) -> str:
    """What reading comes to. Anything but a `WhenceError` goes through to the test."""
    try:
        with limited(SECONDS_FOR_ONE):
            graph = read_tflite(data)
            check_graph(graph)
            assert graph.ledger.lost() == []
    except WhenceError as error:
        return (
            "refused"
            if len(str(error).splitlines()) == 1
            else f"refused in more than one line: {error}"
        )
    return "read"


@pytest.mark.parametrize("name", MODELS)
def test_damaged_files(name):
    data = MODELS[name]()
    assert outcome(data) == "read"
    rng = np.random.default_rng(list(MODELS).index(name))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen: dict[str, int] = {"read": 0, "refused": 0}
    for damaged in mutations(data, 1000, rng):
        seen[outcome(damaged)] += 1
    assert min(seen.values()) > 50, "the damage should be neither always harmless nor always fatal"
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) // 1024 < MEGABYTES_MORE


@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_cut_off_the_beginning(name):
    data = MODELS[name]()
    for length in range(min(len(data), 200)):
        assert outcome(data[:length]) == "refused"


TABLES: list[tuple[TableCodec[Any], dict[int, Any]]] = [
    (SOURCE_TABLE, {1: "conv", 7: "", 9: "a name"}),
    (OP_TABLE, {0: frozenset({1}), 3: frozenset({2, 5}), 4: frozenset({1, 2, 3})}),
    (EXECUTION_PLAN_TABLE, {1: (1, 100), 2: (2, 64, 32), 3: (3,)}),
]


@pytest.mark.parametrize(("table", "entries"), TABLES)
def test_damaged_tables(table, entries):
    data = table.encode(entries)
    rng = np.random.default_rng(len(data))
    refused, accepted = 0, 0
    for damaged in mutations(data, 1500, rng):
        try:
            with limited(SECONDS_FOR_ONE):
                found = table.decode(damaged)
        except WhenceError as error:
            refused += len(str(error).splitlines()) == 1
        else:
            # What was read is what the bytes say: they come out again, unless a note says why not.
            assert found.notes or table.encode(found.entries) == damaged
            accepted += 1
    assert refused + accepted == 1500
    assert refused > 500
