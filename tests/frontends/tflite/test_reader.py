"""Reading whole files: shapes, names, subgraphs, and errors that help."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import whence
from tests.frontends.tflite.making import Model, Quantised, read, run_whence, write
from whence.errors import InputError, ModelError, UnsupportedError
from whence.frontends.tflite.operators import MAPPINGS
from whence.frontends.tflite.reader import read_tflite
from whence.frontends.tflite.schema import enum_names
from whence.types import DType, TensorType

TINYCNN = Path(__file__).parents[2] / "debugdb" / "data" / "tinycnn.tflite"


def scaled(signature=None, shape=(1, 4)) -> Model:
    model = Model()
    x = model.input(shape, name="x", signature=signature)
    model.output(model.op("MUL", [x, model.const(np.full(4, 2, np.float32))], shape))
    return model


def test_the_file_says_which_format_it_is(tmp_path):
    model = scaled()
    path = tmp_path / "really.circle"
    path.write_bytes(model.bytes())
    assert read_tflite(path).metadata["tflite.version"] == "3"


def test_load_takes_both_kinds_by_their_names(tmp_path):
    assert whence.load(write(scaled(), tmp_path)).outputs[0].name
    circle = Model(circle=True)
    circle.output(circle.op("ABS", [circle.input((2,))], (2,)))
    assert whence.load(write(circle, tmp_path)).metadata["circle.version"] == "0"


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(ModelError, match="no such file"):
        whence.load(tmp_path / "none.tflite")
    with pytest.raises(ModelError, match="folder"):
        whence.load(tmp_path)


def test_inputs_have_the_shapes_that_litert_allocates():
    assert read(scaled(signature=(-1, 4))).inputs[0].type == TensorType(DType.F32, (1, 4))


def test_other_shapes_may_be_given(tmp_path):
    path = write(scaled(signature=(-1, 4)), tmp_path)
    graph = whence.load(path, shapes={"x": (3, 4)})
    (made,) = graph.run([np.ones((3, 4), np.float32)])
    np.testing.assert_array_equal(made, np.full((3, 4), 2, np.float32))
    for wrong in ({"y": (3, 4)}, {"x": (3, 4, 1)}, {"x": (-1, 4)}):
        with pytest.raises(InputError):
            whence.load(path, shapes=wrong)


def test_a_placeholder_that_the_model_cannot_work_on_leaves_the_shape_open(tmp_path):
    model = Model()
    x = model.input((1, 1, 1, 2), name="sound", signature=(1, 1, -1, 2))
    w, b = model.const(np.ones((3, 1, 4, 2), np.float32)), model.const(np.zeros(3, np.float32))
    model.output(model.op("CONV_2D", [x, w, b], (1, 1, 1, 3), padding=1, stride_h=1, stride_w=1))
    path = write(model, tmp_path)
    graph = whence.load(path)
    assert graph.inputs[0].type == TensorType(DType.F32, (1, 1, None, 2))
    (made,) = graph.run([np.ones((1, 1, 6, 2), np.float32)])
    assert made.shape == (1, 1, 3, 3)


def test_tensors_without_names_and_names_given_twice():
    model = Model()
    inputs = [model.input((2,), name="x"), model.input((2,), name="x"), model.input((2,), name="y")]
    model.made.tensors[inputs[2]].name = None
    model.output(model.op("ADD_N", inputs, (2,)))
    assert [node.name for node in read(model).inputs] == ["x", "x#2", "input_2"]


def test_an_input_may_be_an_output():
    model = Model()
    x = model.input((2,), name="x")
    model.output(x, model.op("ABS", [x], (2,)))
    first, second = run_whence(model, [np.array([-1, 2], np.float32)])
    assert (first.tolist(), second.tolist()) == ([-1, 2], [1, 2])


def test_state_starts_at_the_code_for_zero():
    model = Model()
    x = model.input((3,), np.int8, Quantised(0.5, 7))
    state = model.tensor((3,), np.int8, Quantised(0.5, 7), variable=True)
    model.output(model.op("ADD", [x, state], (3,), np.int8, Quantised(0.5, 7)))
    (made,) = run_whence(model, [np.array([1, 2, 3], np.int8)])
    assert made.tolist() == [1, 2, 3]


def test_a_quantised_operator_is_between_its_codes():
    model = Model()
    x = model.input((3,), np.int8, Quantised(0.5, 7))
    model.output(
        model.op("ADD", [x, x], (3,), np.int8, Quantised(1.0, -1), fused_activation_function=1)
    )
    graph = read(model)
    assert [node.op for node in graph if node.origin] == [
        "DequantizeLinear",
        "DequantizeLinear",
        "Add",
        "Relu",
        "QuantizeLinear",
    ]
    assert graph[1].attrs["arithmetic"] == "fixed_point"
    assert all(
        node.origin == frozenset((1,))
        for node in graph
        if node.op not in ("Input", "Output", "Const")
    )


def test_a_tensor_that_nothing_makes_is_named():
    model = Model()
    x, ghost = model.input((2,)), model.tensor((2,), name="ghost")
    model.output(model.op("ADD", [x, ghost], (2,)))
    with pytest.raises(ModelError, match="'ghost' is read but neither made nor stored"):
        read(model)


def test_a_tensor_that_is_made_twice_is_named():
    model = Model()
    x, twice = model.input((2,)), model.tensor((2,), name="twice")
    model.op("ABS", [x], outputs=[twice])
    model.op("EXP", [x], outputs=[twice])
    model.output(twice)
    with pytest.raises(ModelError, match="'twice' is made twice"):
        read(model)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CUSTOM:FlexErf", "SELECT_TF_OPS"),
        ("CUSTOM:Mine", "custom operator"),
        ("HASHTABLE_SIZE", "no mapping"),
    ],
)
def test_operators_that_whence_does_not_have_are_named_with_advice(name, words):
    model = Model()
    x = model.input((2,))
    made = model.tensor((2,), name="here")
    model.op(name, [x], outputs=[made], custom=b"" if ":" in name else None)
    model.output(made)
    with pytest.raises(UnsupportedError, match=rf"operator 'here' \({name}\): .*{words}"):
        read(model)


def test_a_missing_input_is_told():
    model = Model()
    model.output(model.op("ADD", [model.input((2,))], (2,)))
    with pytest.raises(ModelError, match="input 1 is missing"):
        read(model)


def test_a_subgraph_that_calls_itself_is_refused():
    model = Model()
    x, condition = model.input((2,)), model.input((), np.bool_)
    model.output(model.op("IF", [condition, x], (2,), then_subgraph_index=1, else_subgraph_index=1))
    _, body = model.subgraph("loop")
    y = body.input((2,))
    truth = body.const(np.array(True))
    body.output(body.op("IF", [truth, y], (2,), then_subgraph_index=1, else_subgraph_index=1))
    with pytest.raises(UnsupportedError, match="calls itself"):
        read(model)


def test_subgraphs_that_call_each_other_without_end_are_refused():
    """Each of 30 calls the next one twice: 2³⁰ operators in all."""
    model = Model()
    x, condition = model.input((2,)), model.input((), np.bool_)
    model.output(model.op("IF", [condition, x], (2,), then_subgraph_index=1, else_subgraph_index=1))
    for number in range(30):
        _, body = model.subgraph(f"s{number}")
        y, truth = body.input((2,)), body.const(np.array(True))
        last = number == 29
        made = (
            body.op("ABS", [y], (2,))
            if last
            else body.op(
                "IF",
                [truth, y],
                (2,),
                then_subgraph_index=number + 2,
                else_subgraph_index=number + 2,
            )
        )
        body.output(made)
    with pytest.raises(UnsupportedError, match="more than"):
        read(model)


def test_a_real_file():
    graph = read_tflite(TINYCNN)
    assert graph.ledger.n_sources == 9
    assert [node.type.dtype for node in graph.inputs] == [DType.I8]  # type: ignore[union-attr]
    assert graph.ledger.lost() == []


def test_every_mapping_is_of_an_operator_that_exists():
    known = set(enum_names("tflite", "BuiltinOperator").values()) | set(
        enum_names("circle_schema.v0_10.circle", "BuiltinOperator").values()
    )
    assert {name for name in MAPPINGS if not name.startswith("CUSTOM:")} <= known
