"""Operators with weights in codes go out as they came: the same operator, options and tensors, and
the same results from LiteRT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import whence
from tests.frontends.tflite.making import Model, Quantised, read
from tests.frontends.tflite.runtimes import convert, operators
from tests.frontends.tflite.stateful import quantised_svdf
from tests.frontends.tflite.test_recurrent import BATCH, TANH, TIME, UNITS, WIDTH, real
from tests.frontends.tflite.test_state import litert
from whence.errors import UnsupportedError
from whence.frontends.tflite.records import read_records
from whence.graph import Node
from whence.passes.control.inline_calls import InlineCalls
from whence.passes.manager import run_passes
from whence.types import TensorType

ABSENT = -1


def weights(model: Model, *shape: int) -> int:
    codes = np.random.default_rng(sum(shape)).integers(-127, 128, shape).astype(np.int8)
    return model.const(codes, quantised=Quantised(0.0061))


def lstm(**options: Any) -> Model:
    model = Model()
    x = model.input((BATCH, TIME, WIDTH))
    inputs = [x, *(weights(model, UNITS, WIDTH) for _ in range(4))]
    inputs += [*(weights(model, UNITS, UNITS) for _ in range(4)), *[ABSENT] * 3]
    inputs += [*(model.const(real(UNITS)) for _ in range(4)), ABSENT, ABSENT]
    inputs += [model.tensor((BATCH, UNITS), variable=True) for _ in range(2)]
    model.output(
        model.op(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            inputs,
            (BATCH, TIME, UNITS),
            fused_activation_function=TANH,
            cell_clip=3.0,
            version=3,
            **options,
        )
    )
    return model


def rnn(**options: Any) -> Model:
    model = Model()
    x = model.input((BATCH, WIDTH))
    inputs = [x, weights(model, UNITS, WIDTH), weights(model, UNITS, UNITS)]
    inputs += [model.const(real(UNITS)), model.tensor((BATCH, UNITS), variable=True)]
    made = model.op(
        "RNN", inputs, (BATCH, UNITS), fused_activation_function=TANH, version=3, **options
    )
    model.output(made)
    return model


def svdf(**options: Any) -> Model:
    model = Model()
    memory = 6
    inputs = [
        model.input((BATCH, WIDTH)),
        weights(model, 2 * UNITS, WIDTH),
        weights(model, 2 * UNITS, memory),
        model.const(real(UNITS)),
        model.tensor((BATCH, 2 * UNITS * memory), variable=True),
    ]
    made = model.op(
        "SVDF", inputs, (BATCH, UNITS), options="SVDFOptions", rank=2, version=3, **options
    )
    model.output(made)
    return model


def product(**options: Any) -> Model:
    model = Model()
    x = model.input((2, 3, 16))
    model.output(
        model.op("BATCH_MATMUL", [x, weights(model, 2, 16, 8)], (2, 3, 8), version=4, **options)
    )
    return model


MODELS: dict[str, Callable[..., Model]] = {
    "lstm": lstm,
    "rnn": rnn,
    "svdf": svdf,
    "product": product,
}


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_real_numbers_times_codes(name, asymmetric, tmp_path):
    content = MODELS[name](asymmetric_quantize_inputs=asymmetric).bytes()
    graph = read(content)
    kind = graph.inputs[0].type
    assert isinstance(kind, TensorType)
    rng = np.random.default_rng(4)
    calls = [[rng.normal(size=kind.static_shape).astype(np.float32)] for _ in range(5)]
    path = tmp_path / "again.tflite"
    old, new = read_records(content), convert(content, path)
    assert operators(new) == operators(old)
    assert new.subgraphs[0].operators[0].options["asymmetric_quantize_inputs"] is asymmetric
    counts = [
        sum(each.type == "INT8" for each in model.subgraphs[0].tensors) for model in (old, new)
    ]
    # Equal weights lie once in a file.
    assert 0 < counts[1] <= counts[0]
    before, after = (litert(each, calls) for each in (content, path.read_bytes()))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(other[0], one[0])
    # Circle has them, too.
    convert(content, tmp_path / "again.circle")
    again = whence.compile(tmp_path / "again.circle")
    model = whence.compile(read(content))
    for given in calls:
        np.testing.assert_array_equal(again(*given), model(*given))


def test_compiling_puts_what_computes_it_in_its_place():
    graph = read(quantised_svdf())
    assert graph.op_counts["Call"] == 1
    run_passes(graph, [InlineCalls()])
    assert "Call" not in graph.op_counts
    assert {"MatMulInteger", "FixedPointScale"} <= set(graph.op_counts)
    assert graph.ledger.lost() == []


def test_state_that_others_read_is_refused(tmp_path):
    graph = read(quantised_svdf())
    (variable,) = graph.variables
    graph.append(Node(graph.new_id(), "Output", (variable.ref(),), (), name="seen"))
    with pytest.raises(UnsupportedError, match=r"\(Call\) cannot be written as TFLite: the state"):
        convert(graph, tmp_path / "again.tflite")
