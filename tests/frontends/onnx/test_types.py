from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import SparseTensorProto, TensorProto, TypeProto, helper, numpy_helper

from whence.errors import ModelError, UnsupportedError
from whence.frontends.onnx.types import TensorReader, tensor_proto, value_type
from whence.types import DType, MapType, OptionalType, SequenceType, TensorType

READER = TensorReader(None)
NUMERIC = [dtype for dtype in DType if dtype not in (DType.UNDEFINED, DType.STRING)]


def example(dtype: DType) -> np.ndarray:
    """Five numbers that every element type has, so that those of a few bits end inside a byte."""
    values = (
        np.array([1, 0, 1, 1, 0])
        if dtype in (DType.BOOL, DType.U2, DType.I2)
        else np.array([1, 2, 4, 1, 2])
    )
    return values.astype(dtype.numpy)


@pytest.mark.parametrize("dtype", NUMERIC)
def test_every_element_type_survives_writing_and_reading(dtype: DType) -> None:
    array = example(dtype).reshape(1, 5)
    proto = tensor_proto(array, "t")
    assert proto.data_type == int(dtype)
    again = READER.read(proto)
    assert DType.of(again) is dtype
    np.testing.assert_array_equal(again, array)


@pytest.mark.parametrize("dtype", NUMERIC)
def test_every_element_type_is_read_from_its_typed_field(dtype: DType) -> None:
    array = example(dtype)
    proto = helper.make_tensor(
        "t",
        int(dtype),
        [5],
        array.astype(np.complex128 if dtype in (DType.C64, DType.C128) else np.float64).tolist(),
    )
    assert not proto.HasField("raw_data")
    again = READER.read(proto)
    assert DType.of(again) is dtype
    np.testing.assert_array_equal(again, array)


def test_any_byte_but_zero_is_true() -> None:
    proto = TensorProto(data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x02\x00\xff", name="t")
    assert READER.read(proto).view(np.uint8).tolist() == [1, 0, 1]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_tensors(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float32)
    again = READER.read(tensor_proto(array, "t"))
    assert again.shape == shape
    np.testing.assert_array_equal(again, array)


def test_texts_keep_bytes_that_are_not_utf8() -> None:
    proto = TensorProto(
        name="t", data_type=TensorProto.STRING, dims=[2], string_data=[b"\xff\xfe", "ü".encode()]
    )
    array = READER.read(proto)
    assert array.tolist() == ["\udcff\udcfe", "ü"]
    assert list(tensor_proto(array, "t").string_data) == [b"\xff\xfe", "ü".encode()]


def test_a_view_of_another_layout_is_written_in_order() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(READER.read(tensor_proto(array, "t")), array)


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (
            TensorProto(name="w", data_type=1, dims=[50000, 50000], raw_data=b"1234"),
            "tensor 'w' is declared as f32.*10000000000 bytes, .*holds 4",
        ),
        (TensorProto(name="w", data_type=1, dims=[1 << 40, 1 << 40]), "holds 0"),
        (
            TensorProto(name="w", data_type=1, dims=[2], float_data=[1.0]),
            "takes 2 entries, but the file holds 1",
        ),
        (
            TensorProto(name="w", data_type=22, dims=[3], int32_data=[1]),
            "takes 2 entries, but the file holds 1",
        ),
        (
            TensorProto(name="w", data_type=8, dims=[2], string_data=[b"a"]),
            "2 texts, but the file holds 1",
        ),
        (TensorProto(name="w", data_type=1, dims=[-1], raw_data=b""), "negative dimension"),
        (TensorProto(name="w", data_type=0, dims=[1]), "does not say its element type"),
        (TensorProto(name="a\nb", data_type=0, dims=[1]), r"tensor 'a\\nb' does not"),
    ],
)
def test_a_declaration_that_does_not_fit_the_data(proto: TensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        READER.read(proto)


def test_an_element_type_nobody_knows() -> None:
    with pytest.raises(UnsupportedError, match="element type 99"):
        READER.read(TensorProto(name="w", data_type=99, dims=[1]))


def external(name: str, location: str, shape: list[int], **entries: int) -> TensorProto:
    proto = TensorProto(
        name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL
    )
    for key, value in {"location": location, **entries}.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a file of ten numbers in it, and a secret outside."""
    home = tmp_path / "model"
    home.mkdir()
    np.arange(10, dtype=np.float32).tofile(home / "weights.bin")
    np.arange(10, dtype=np.float32).tofile(tmp_path / "secret.bin")
    return home


def test_external_data_is_mapped(folder: Path) -> None:
    reader = TensorReader(folder / "m.onnx")
    array = reader.read(external("w", "weights.bin", [2, 3], offset=8, length=24))
    np.testing.assert_array_equal(array, np.arange(2, 8, dtype=np.float32).reshape(2, 3))
    assert not array.flags.writeable
    assert not array.flags.owndata
    assert reader.read(external("all", "weights.bin", [10])).sum() == 45
    assert reader.read(external("none", "weights.bin", [0])).shape == (0,)


def test_external_data_at_an_odd_offset_is_still_right(folder: Path) -> None:
    (folder / "odd.bin").write_bytes(b"!" + np.array([1, 2], np.float32).tobytes())
    array = TensorReader(folder / "m.onnx").read(external("w", "odd.bin", [2], offset=1))
    assert array.tolist() == [1, 2]
    assert array.flags.aligned


def test_external_data_of_half_bytes(folder: Path) -> None:
    numbers = np.array([1, -2, 3], np.int8).astype(ml_dtypes.int4)
    packed = numpy_helper.from_array(numbers, "w")
    (folder / "packed.bin").write_bytes(packed.raw_data)
    proto = external("w", "packed.bin", [3], length=2)
    proto.data_type = TensorProto.INT4
    assert TensorReader(folder / "m.onnx").read(proto).astype(int).tolist() == [1, -2, 3]


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "sub/../../secret.bin",
        "/etc/passwd",
        "",
        "we\0ights.bin",
        "leaving.bin",
        "up/secret.bin",
    ],
)
def test_external_data_stays_in_the_folder(folder: Path, location: str) -> None:
    (folder / "leaving.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "up").symlink_to(folder.parent)
    with pytest.raises(ModelError, match="tensor 'w' names the external file"):
        TensorReader(folder / "m.onnx").read(external("w", location, [10]))


def test_a_model_that_is_itself_a_link_may_use_the_folder_it_lies_in(
    folder: Path, tmp_path: Path
) -> None:
    """Download caches keep files under hashes and link to them from the folder the user sees."""
    seen = tmp_path / "seen"
    seen.mkdir()
    (folder / "blob").write_bytes(b"")
    (seen / "m.onnx").symlink_to(folder / "blob")
    (seen / "m.onnx_data").symlink_to(folder / "weights.bin")
    assert TensorReader(seen / "m.onnx").read(external("w", "m.onnx_data", [10])).sum() == 45


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (external("w", "gone.bin", [10]), "'gone.bin', which is missing"),
        (external("w", "weights.bin", [11]), "needs bytes 0 to 44 of 'weights.bin', which has 40"),
        (external("w", "weights.bin", [2], offset=-4), "states 8 at -4"),
        (external("w", "weights.bin", [2], length=4), "is 8 bytes, but states 4"),
        (external("w", "weights.bin", [1 << 40, 1 << 20]), "needs bytes 0 to"),
    ],
)
def test_external_data_that_is_not_there(folder: Path, proto: TensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        TensorReader(folder / "m.onnx").read(proto)


def test_external_data_of_a_model_without_a_folder() -> None:
    with pytest.raises(ModelError, match="was not read from a folder"):
        READER.read(external("w", "weights.bin", [10]))


def sparse(values: list[float], indices: np.ndarray, shape: list[int]) -> SparseTensorProto:
    return helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [len(values)], values),
        numpy_helper.from_array(indices),
        shape,
    )


def test_sparse_tensors_become_dense() -> None:
    expected = [[0, 5, 0], [6, 0, 0]]
    assert READER.read_sparse(sparse([5, 6], np.array([1, 3]), [2, 3])).tolist() == expected
    assert (
        READER.read_sparse(sparse([5, 6], np.array([[0, 1], [1, 0]]), [2, 3])).tolist() == expected
    )


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (sparse([5], np.array([6]), [2, 3]), "index outside its shape"),
        (sparse([5], np.array([-1]), [2, 3]), "index outside its shape"),
        (sparse([5], np.array([[1, 2, 3]]), [2, 3]), "indices of shape"),
        (sparse([5], np.array([[1.0, 2.0]]), [2, 3]), "indices of float64, not whole numbers"),
        (
            sparse([5], np.array([1]), [1 << 20, 1 << 20]),
            "declared with 1099511627776 elements but holds 1",
        ),
    ],
)
def test_sparse_tensors_that_do_not_fit(proto: SparseTensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        READER.read_sparse(proto)


def test_types() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 3, None])
    expected = TensorType(DType.F32, ("n", 3, None))
    assert value_type(tensor) == expected
    assert value_type(helper.make_sequence_type_proto(tensor)) == SequenceType(expected)
    assert value_type(helper.make_optional_type_proto(tensor)) == OptionalType(expected)
    assert value_type(helper.make_map_type_proto(TensorProto.INT64, tensor)) == MapType(
        DType.I64, expected
    )
    assert value_type(helper.make_tensor_type_proto(TensorProto.FLOAT, None)) == TensorType(
        DType.F32
    )
    assert value_type(helper.make_tensor_type_proto(TensorProto.FLOAT, [-1])) == TensorType(
        DType.F32, (None,)
    )
    assert value_type(TypeProto()) is None
    with pytest.raises(UnsupportedError, match="element type 77"):
        value_type(helper.make_tensor_type_proto(77, []))
