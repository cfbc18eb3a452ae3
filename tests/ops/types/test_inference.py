"""Inferred types never contradict what an operator really yields, however little is known
beforehand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.onnx_cases import cases, type_variants
from whence.errors import ModelError, UnsupportedError
from whence.ops.definition import TypeQuery
from whence.ops.types import inference
from whence.ops.types.inference import Inference, from_type_proto, infer, to_type_proto
from whence.types import (
    UNKNOWN,
    Dim,
    DType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)


def f32(*shape: Dim) -> TensorType:
    return TensorType(DType.F32, shape)


def ask(
    op: str,
    *types: ValueType | None,
    n_outputs: int = 1,
    values: tuple[Any, ...] = (),
    **attrs: Any,
) -> tuple[ValueType, ...]:
    known = (*values, *[None] * (len(types) - len(values)))
    return infer(TypeQuery(op, attrs, types, known, n_outputs))


def compatible(kind: ValueType, value: Any) -> bool:
    """Could a value of this type be `value`? The element type must be known."""
    if value is None:
        return True
    if isinstance(kind, SequenceType):
        return isinstance(value, list) and all(compatible(kind.element, item) for item in value)
    if isinstance(kind, OptionalType):
        return compatible(kind.element, value)
    if (
        not isinstance(kind, TensorType)
        or not isinstance(value, np.ndarray)
        or kind.dtype is not DType.of(value)
    ):
        return False
    if kind.shape is None:
        return True
    return len(kind.shape) == value.ndim and all(
        not isinstance(dim, int) or dim == real
        for dim, real in zip(kind.shape, value.shape, strict=True)
    )


@pytest.mark.parametrize("name", sorted(cases()))
def test_onnx_case(name: str) -> None:
    case = cases()[name]
    for variant, query in type_variants(case):
        types = infer(query)
        assert len(types) == case.call.n_outputs
        for kind, value in zip(types, case.expected, strict=True):
            assert compatible(kind, value), (
                f"{variant}: {kind} for {getattr(value, 'shape', value)}"
            )


# Their output shape depends on values, or on the content of a file.
DATA_DEPENDENT = {
    "Unique",
    "NonMaxSuppression",
    "ImageDecoder",
    "StringSplit",
    "StringNormalizer",
    "Compress",
    "NonZero",
    "MaxUnpool",
    "Resize",
    "Attention",
}


def test_shapes_are_known_exactly_where_inputs_are() -> None:
    for case in cases().values():
        if case.call.op not in DATA_DEPENDENT:
            _, query = next(type_variants(case))
            for kind in infer(query):
                assert not isinstance(kind, TensorType) or kind.is_static, f"{case.name}: {kind}"


def test_answers_of_onnx_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = onnx.shape_inference.infer_node_outputs

    def counting(*args: Any, **options: Any) -> Any:
        asked.append(args)
        return real(*args, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_node_outputs", counting)
    inference = Inference()
    pads = np.array([0, 1, 0, 1])
    query = TypeQuery(
        "Pad", {"mode": "constant"}, (f32(2, 3), TensorType(DType.I64, (4,))), (None, pads), 1
    )
    assert inference.infer(query) == (f32(2, 5),)
    assert inference.infer(query) == (f32(2, 5),)
    assert len(asked) == 1
    other = TypeQuery(
        "Pad", {"mode": "constant"}, (f32(2, 3), TensorType(DType.I64, (4,))), (None, pads * 2), 1
    )
    assert inference.infer(other) == (f32(2, 7),)
    assert len(asked) == 2
    Inference().infer(query)
    assert len(asked) == 3


def test_common_operators_do_not_ask_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(onnx.shape_inference, "infer_node_outputs", refuse)
    shape = np.array([0, -1])
    assert ask("Relu", f32("b", 3)) == (f32("b", 3),)
    assert ask("Add", f32("b", 3), f32(3)) == (f32("b", 3),)
    assert ask("Greater", f32("b", 3), f32(1)) == (TensorType(DType.BOOL, ("b", 3)),)
    assert ask("Cast", f32("b"), to=7) == (TensorType(DType.I64, ("b",)),)
    assert ask("Transpose", f32("b", 3, 4), perm=(2, 0, 1)) == (f32(4, "b", 3),)
    assert ask("Reshape", f32("b", 3, 4), TensorType(DType.I64, (2,)), values=(None, shape)) == (
        f32("b", 12),
    )
    assert ask("Concat", f32("b", 3), f32("b", 4), axis=-1) == (f32("b", 7),)
    assert ask("MatMul", f32("b", 5, 3), f32(3, 4)) == (f32("b", 5, 4),)
    assert ask("Identity", SequenceType(f32(1))) == (SequenceType(f32(1)),)


def test_unknown_inputs_give_unknown_outputs() -> None:
    assert ask("Pad", UNKNOWN, UNKNOWN) == (UNKNOWN,)
    assert ask("Add", UNKNOWN, f32(3)) == (TensorType(DType.F32),)
    assert ask("LSTM", UNKNOWN, UNKNOWN, UNKNOWN, n_outputs=3, hidden_size=4) == (UNKNOWN,) * 3
    assert ask("Loop", UNKNOWN, UNKNOWN, n_outputs=2) == (UNKNOWN, UNKNOWN)


def test_element_type_is_known_where_the_shape_is_not() -> None:
    (kind,) = ask("DepthToSpace", TensorType(DType.F16), blocksize=2)
    assert isinstance(kind, TensorType)
    assert kind.dtype is DType.F16


@pytest.mark.parametrize(
    ("op", "types", "message"),
    [
        ("Concat", (f32(2, 3), f32(3, 3)), "Concat lacks its attribute 'axis'"),
        ("Relu", (f32(3), f32(3)), "Relu has 2 inputs; it takes 1"),
        ("Add", (f32(3), f32(4)), "Add: dimensions 3 and 4 do not broadcast"),
        (
            "Add",
            (f32(3), TensorType(DType.I64, (3,))),
            "Add: inputs have different element types, f32 and i64",
        ),
        ("MatMul", (f32(2, 3), f32(4, 5)), "MatMul: inner dimensions differ"),
        ("Relu", (SequenceType(f32(1)),), r"Relu: input 0 must be a tensor, found seq\(f32\[1\]\)"),
    ],
)
def test_contradictions_are_the_models_fault(
    op: str, types: tuple[ValueType, ...], message: str
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        ask(op, *types)
    assert "\n" not in str(caught.value)


def test_contradictions_of_operators_with_attributes() -> None:
    with pytest.raises(ModelError, match="Concat: inputs have different ranks"):
        ask("Concat", f32(2, 3), f32(3, 3, 3), axis=0)
    with pytest.raises(ModelError, match="SpaceToDepth: "):
        ask("SpaceToDepth", f32(2, 3), blocksize=2)


def test_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="'Nothing' is not known"):
        ask("Nothing", f32(1))
    with pytest.raises(UnsupportedError, match="element type number 99"):
        ask("Cast", f32(1), to=99)


DIMS = st.one_of(st.integers(0, 9), st.sampled_from(["batch", "n"]), st.none())
TENSORS = st.builds(
    TensorType,
    st.sampled_from(list(DType)),
    st.one_of(st.none(), st.lists(DIMS, max_size=4).map(tuple)),
)
TYPES: st.SearchStrategy[ValueType] = st.recursive(
    TENSORS,
    lambda inner: st.one_of(
        st.builds(SequenceType, inner),
        st.builds(OptionalType, inner),
        st.builds(MapType, st.sampled_from([DType.I64, DType.STRING]), inner),
    ),
    max_leaves=3,
)


@given(TYPES)
def test_type_protos_round_trip(kind: ValueType) -> None:
    assert from_type_proto(to_type_proto(kind)) == kind


def test_an_empty_type_proto_is_unknown() -> None:
    assert from_type_proto(onnx.TypeProto()) == UNKNOWN


def test_operators_of_the_same_types_and_attributes_are_inferred_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(inference, "check_operands", lambda query: asked.append(query.op))
    kind, scalar = TensorType(DType.F32, (2, 3)), TensorType(DType.F32, ())
    known = Inference()
    for _ in range(3):
        assert known.infer(TypeQuery("Add", {}, (kind, scalar), (None, None), 1)) == (kind,)
    assert known.infer(TypeQuery("Add", {}, (scalar, scalar), (None, None), 1)) == (scalar,)
    for perm in ((1, 0), (1, 0), (0, 1)):
        turned = known.infer(TypeQuery("Transpose", {"perm": perm}, (kind,), (None,), 1))
        assert turned == (TensorType(DType.F32, (3, 2) if perm == (1, 0) else (2, 3)),)
    assert asked == ["Add", "Add", "Transpose", "Transpose"]
    # Values may decide, so who has some is inferred each time.
    shape = TensorType(DType.I64, (1,))
    for size in (6, -1):
        query = TypeQuery("Reshape", {}, (kind, shape), (None, np.array([size])), 1)
        assert known.infer(query) == (TensorType(DType.F32, (6,)),)
    assert asked[4:] == ["Reshape", "Reshape"]
    # What is wrong is refused each time.
    for _ in range(2):
        with pytest.raises(ModelError, match="Transpose"):
            known.infer(TypeQuery("Transpose", {"perm": (5, 0)}, (kind,), (None,), 1))
