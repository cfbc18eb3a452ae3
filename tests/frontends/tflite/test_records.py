"""Files as records: both formats, every form of quantisation, and what a damaged file ends as."""

from __future__ import annotations

import struct

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as tflite_schema

from tests.frontends.tflite.making import Model, Quantised
from whence.errors import ModelError, UnsupportedError, WhenceError
from whence.frontends.tflite.quantisation import parameters, quantisation_of
from whence.frontends.tflite.records import (
    CIRCLE,
    TFLITE,
    ModelRecord,
    SparseDimension,
    SparsityRecord,
    TensorRecord,
    read_records,
)
from whence.frontends.tflite.sparsity import densify
from whence.frontends.tflite.tensors import array_of, declared_type, default_type
from whence.types import DType, TensorType


def tiny(*, circle: bool = False) -> Model:
    model = Model(circle=circle)
    x = model.input((1, 4), np.int8, Quantised(0.5, 3), name="x", signature=(-1, 4))
    w = model.const(
        np.arange(8, dtype=np.int8).reshape(2, 4),
        quantised=Quantised([0.1, 0.2], [0, 0], 0),
        name="w",
    )
    y = model.op(
        "FULLY_CONNECTED",
        [x, w, -1],
        (1, 2),
        np.int8,
        Quantised(0.25, -1),
        fused_activation_function=1,
        keep_num_dims=True,
        version=4,
    )
    model.output(y)
    model.metadata["note"] = b"hello"
    return model


@pytest.mark.parametrize("circle", [False, True])
def test_everything_is_there(circle):
    record = read_records(tiny(circle=circle).bytes())
    assert record.format == (CIRCLE if circle else TFLITE)
    assert record.version == (0 if circle else 3)
    assert record.metadata == (("note", b"hello"),)
    (graph,) = record.subgraphs
    assert (graph.name, graph.inputs, graph.outputs) == ("main", (0,), (2,))
    x, w, y = graph.tensors
    assert (x.name, x.type, x.shape, x.signature, x.has_rank, x.is_variable) == (
        "x",
        "INT8",
        (1, 4),
        (-1, 4),
        True,
        False,
    )
    assert (x.buffer, y.buffer) == (0, 0)
    assert record.buffers[w.buffer].tobytes() == bytes(range(8))
    (operator,) = graph.operators
    assert (operator.name, operator.version, operator.inputs, operator.outputs) == (
        "FULLY_CONNECTED",
        4,
        (0, 1, -1),
        (2,),
    )
    assert operator.options["keep_num_dims"] is True
    assert operator.options["fused_activation_function"] == 1
    assert operator.options["weights_format"] == 0


def test_quantisation_of_both_kinds():
    x, w, _ = read_records(tiny().bytes()).subgraphs[0].tensors
    found = quantisation_of(x)
    assert found is not None
    scale, zero, _ = parameters(x, found)
    assert (scale.shape, float(scale), int(zero), DType.of(zero)) == ((), 0.5, 3, DType.I8)
    found = quantisation_of(w)
    assert found is not None
    scale, zero, axis = parameters(w, found)
    np.testing.assert_array_equal(scale, np.array([0.1, 0.2], np.float32))
    assert (zero.tolist(), axis) == ([0, 0], 0)
    assert parameters(w, found, axis=1)[2] == 1


def test_open_dimensions():
    x = read_records(tiny().bytes()).subgraphs[0].tensors[0]
    assert declared_type(x) == TensorType(DType.I8, (None, 4))
    assert default_type(x) == TensorType(DType.I8, (1, 4))


def test_circles_own_operators_and_codes_beyond_the_old_field():
    model = Model(circle=True)
    x = model.input((1, 2, 2, 3))
    ones = model.const(np.ones(3, np.float32))
    y = model.op("INSTANCE_NORM", [x, ones, ones], (1, 2, 2, 3), epsilon=0.5)
    model.output(model.op("GELU", [y], (1, 2, 2, 3)))
    names = [operator.name for operator in read_records(model.bytes()).subgraphs[0].operators]
    assert names == ["INSTANCE_NORM", "GELU"]


def test_custom_operators_have_their_name_and_options():
    model = Model()
    x = model.input((2,))
    model.output(model.op("CUSTOM:Mine", [x], (2,), custom=b"\1\2"))
    (operator,) = read_records(model.bytes()).subgraphs[0].operators
    assert (operator.name, operator.custom_options) == ("CUSTOM:Mine", b"\1\2")


def test_buffers_behind_the_flatbuffer():
    """Files beyond 2 GB keep their data after the tables, by offset and size."""
    model = Model()
    x = model.input((2,))
    w = model.const(np.zeros(2, np.float32), name="far")
    model.output(model.op("ADD", [x, w], (2,)))
    stored = model.buffers[model.made.tensors[w].buffer]
    stored.data, stored.offset, stored.size = None, 0x1122334455, 8
    data = bytearray(model.bytes())
    place = len(data) + (-len(data)) % 16
    data += bytes(place - len(data)) + np.array([1.5, 2.5], "<f4").tobytes()
    at = bytes(data).index(struct.pack("<Q", 0x1122334455))
    data[at : at + 8] = struct.pack("<Q", place)
    record = read_records(bytes(data))
    far = array_of(record, record.subgraphs[0].tensors[w])
    assert far is not None
    assert far.tolist() == [1.5, 2.5]
    with pytest.raises(ModelError, match="a buffer is said to be bytes"):
        read_records(bytes(data[:-4]))


def test_four_bits_and_text():
    model = Model()
    x = model.input((3,))
    nibbles = model.tensor((3,), data=bytes([0x8F, 0x07]), type_name="INT4")
    texts = ["ab", "", "ü"]
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([20, *(len(text) for text in encoded)]).astype("<i4")
    words = model.tensor(
        (3,),
        data=np.array([3], "<i4").tobytes() + ends.tobytes() + b"".join(encoded),
        type_name="STRING",
    )
    model.output(x)
    record = read_records(model.bytes())
    tensors = record.subgraphs[0].tensors
    codes, strings = array_of(record, tensors[nibbles]), array_of(record, tensors[words])
    assert codes is not None
    assert strings is not None
    assert codes.tolist() == [-1, -8, 7]
    assert strings.tolist() == texts


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"TFL3",
        b"\0\0\0\0TFL3",
        b"\0\0\0\0ONNX" + bytes(64),
        b"\x10\0\0\0TFL3",
        b"\xff\xff\xff\x7fTFL3" + bytes(64),
    ],
)
def test_what_is_no_model(data):
    with pytest.raises(ModelError, match=r"^'m'"):
        read_records(data, "'m'")


def test_every_prefix_is_an_error_or_the_whole():
    data = tiny().bytes()
    whole = len(read_records(data).subgraphs[0].tensors)
    for length in range(0, len(data), 7):
        try:
            found = len(read_records(data[:length]).subgraphs[0].tensors)
        except WhenceError:
            continue
        assert found == whole


def test_one_long_vector_in_many_places_is_refused_soon():
    """Ten thousand tensors whose shape is one and the same vector of half a million numbers would
    take hours to read.
    """
    builder = flatbuffers.Builder(1 << 20)
    count, length = 10_000, 500_000
    builder.StartVector(4, length, 4)
    builder.head -= 4 * length
    shape = builder.EndVector()
    tensors = []
    for _ in range(count):
        builder.StartObject(10)
        builder.PrependUOffsetTRelativeSlot(0, shape, 0)
        tensors.append(builder.EndObject())
    builder.StartVector(4, count, 4)
    for tensor in tensors:
        builder.PrependUOffsetTRelative(tensor)
    vector = builder.EndVector()
    builder.StartObject(6)
    builder.PrependUOffsetTRelativeSlot(0, vector, 0)
    graph = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(graph)
    graphs = builder.EndVector()
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(2, graphs, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TFL3")
    with pytest.raises(ModelError, match="reasonable time"):
        read_records(bytes(builder.Output()))


@pytest.mark.parametrize("what", ["metadata", "options"])
def test_bytes_that_many_share_are_not_copied_for_each(what):
    model = tiny()
    model.metadata["large"] = bytes(1 << 20)
    model.metadata.update((f"note {number}", b"x") for number in range(100))
    made = tflite_schema.ModelT.InitFromPackedBuf(model.bytes(), 0)
    if what == "metadata":
        for entry in made.metadata:
            entry.buffer = made.metadata[1].buffer
    else:
        (operator,) = made.subgraphs[0].operators
        operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize = 2, 1 << 20
        made.subgraphs[0].operators = [operator] * 100
    builder = flatbuffers.Builder(1024)
    builder.Finish(made.Pack(builder), file_identifier=b"TFL3")
    with pytest.raises(ModelError, match="reasonable time"):
        read_records(bytes(builder.Output()))


@pytest.mark.parametrize("broken", ["tensor", "buffer", "opcode", "output"])
def test_indices_are_checked(broken):
    model = tiny()
    if broken == "tensor":
        model.made.operators[0].inputs[0] = 77
    elif broken == "buffer":
        model.made.tensors[0].buffer = 99
    elif broken == "opcode":
        model.made.operators[0].opcodeIndex = 5
    else:
        model.made.outputs = [12]
    with pytest.raises(ModelError, match="does not exist"):
        read_records(model.bytes())


def test_sizes_are_checked():
    model = tiny()
    model.made.tensors[1].shape = [3, 4]
    record = read_records(model.bytes())
    with pytest.raises(ModelError, match="8 bytes do not hold"):
        array_of(record, record.subgraphs[0].tensors[1])


def test_an_operator_from_the_future():
    model = tiny()
    data = bytearray(model.bytes())
    model._codes[("FULLY_CONNECTED", 4)] = 0
    # The number stands in the new field as 9; no version of the schema has 1,000,009.
    places = [at for at in range(0, len(data) - 4, 4) if data[at : at + 4] == struct.pack("<i", 9)]
    found = []
    for at in places:
        changed = bytearray(data)
        changed[at : at + 4] = struct.pack("<i", 1_000_009)
        try:
            read_records(bytes(changed))
        except UnsupportedError as error:
            found.append(str(error))
        except ModelError:
            continue
    assert any("newer version" in text for text in found)


def test_any_byte_but_zero_is_true():
    stored = np.array([2, 0, 255], np.uint8)
    whole = ModelRecord("TFLITE", 3, "", (), (np.empty(0, np.uint8), stored), (), ())
    found = array_of(whole, TensorRecord("t", "BOOL", (3,), None, 1))
    assert found is not None
    assert found.view(np.uint8).tolist() == [1, 0, 1]
    places = SparsityRecord((0,), (), (SparseDimension(True, 3, stored[:0], stored[:0]),))
    sparse = TensorRecord("s", "BOOL", (3,), None, 1, None, places)
    assert densify(sparse, stored, DType.BOOL).view(np.uint8).tolist() == [1, 0, 1]
