from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.oracle import assert_close, onnxruntime_outputs
from whence.errors import ModelError
from whence.ops.definition import Call, OpClass
from whence.ops.registry import evaluate
from whence.ops.tensor.movement import OPS, pad


def run(op: str, *inputs: Any, n_outputs: int = 1, **attrs: Any) -> Any:
    results = evaluate(Call(op, attrs, inputs, n_outputs))
    return results[0] if n_outputs == 1 else results


def cube() -> np.ndarray:
    return np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_transpose_reverses_by_default() -> None:
    np.testing.assert_array_equal(run("Transpose", cube()), cube().T)
    np.testing.assert_array_equal(run("Transpose", cube(), perm=(1, 0, 2)), cube().swapaxes(0, 1))
    assert run("Transpose", np.array(1.0)).shape == ()


@pytest.mark.parametrize(
    ("shape", "target", "allowzero", "result"),
    [
        ((2, 3, 4), [4, 6], 0, (4, 6)),
        ((2, 3, 4), [0, -1], 0, (2, 12)),
        ((2, 3, 4), [-1], 0, (24,)),
        ((0, 3), [0, 3, 1], 0, (0, 3, 1)),
        ((0, 3), [3, 0], 1, (3, 0)),
        ((3, 0), [0, -1], 0, (3, 0)),
        ((), [1, 1], 0, (1, 1)),
        ((1,), [], 0, ()),
    ],
)
def test_reshape(
    shape: tuple[int, ...], target: list[int], allowzero: int, result: tuple[int, ...]
) -> None:
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    y = run("Reshape", x, np.array(target, np.int64), allowzero=allowzero)
    assert y.shape == result
    np.testing.assert_array_equal(y.reshape(-1), x.reshape(-1))


@pytest.mark.parametrize("target", [[5, 5], [-1, 5], [-1, -1], [0, 0, 0, 0], [-2, 12]])
def test_reshape_that_does_not_fit(target: list[int]) -> None:
    with pytest.raises(ModelError, match="Reshape: "):
        run("Reshape", cube(), np.array(target))


@pytest.mark.parametrize(
    ("axis", "shape"), [(0, (1, 24)), (1, (2, 12)), (3, (24, 1)), (-1, (6, 4)), (-3, (1, 24))]
)
def test_flatten(axis: int, shape: tuple[int, ...]) -> None:
    assert run("Flatten", cube(), axis=axis).shape == shape


def test_squeeze_and_unsqueeze() -> None:
    x = np.ones((1, 3, 1, 2))
    assert run("Squeeze", x).shape == (3, 2)
    assert run("Squeeze", x, np.array([-2])).shape == (1, 3, 2)
    assert run("Unsqueeze", np.ones((3, 2)), np.array([-1, 0])).shape == (1, 3, 2, 1)
    with pytest.raises(ModelError, match="Squeeze: "):
        run("Squeeze", x, np.array([1]))


@given(st.integers(-12, 12), st.integers(-12, 12), st.integers(-3, 3).filter(bool))
def test_slice_is_python_slicing(start: int, end: int, step: int) -> None:
    x = np.arange(7)
    y = run("Slice", x, np.array([start]), np.array([end]), np.array([0]), np.array([step]))
    assert y.tolist() == list(range(7))[start:end:step]


def test_slice_to_the_ends_of_int64() -> None:
    lowest, highest = np.array([-(2**63)]), np.array([2**63 - 1])
    assert run(
        "Slice", np.arange(5), np.array([-1]), lowest, np.array([0]), np.array([-2])
    ).tolist() == [4, 2, 0]
    assert run("Slice", np.arange(5), np.array([1]), highest).tolist() == [1, 2, 3, 4]


def test_split() -> None:
    x = np.arange(7)
    assert [part.tolist() for part in run("Split", x, n_outputs=3, num_outputs=3)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]
    assert [part.tolist() for part in run("Split", x, np.array([0, 2, 5]), n_outputs=3)] == [
        [],
        [0, 1],
        [2, 3, 4, 5, 6],
    ]
    with pytest.raises(ModelError, match=r"Split: parts \[1, 2\] do not make up axis 0"):
        run("Split", x, np.array([1, 2]), n_outputs=2)
    with pytest.raises(ModelError, match="Split: an axis of 7 cannot be split into 9 parts"):
        run("Split", x, n_outputs=9, num_outputs=9)


def test_concat_of_bfloat16_and_text() -> None:
    x = np.ones((1, 2), ml_dtypes.bfloat16)
    assert run("Concat", x, x, axis=-1).shape == (1, 4)
    assert run(
        "Concat", np.array(["a"], object), np.array(["b", "c"], object), axis=0
    ).tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    "pads", [[1, 0, 2, 1, 1, 0], [0, -1, 1, 0, -1, -2], [-1, 2, 0, 0, 0, -3]], ids=str
)
def test_pad_as_in_onnxruntime(mode: str, pads: list[int]) -> None:
    x = cube()
    (expected,) = onnxruntime_outputs("Pad", {"mode": mode}, [x, np.array(pads)], opset=21)
    assert_close(run("Pad", x, np.array(pads), mode=mode), expected)


@pytest.mark.parametrize("pads", [[-5, 9], [9, -5], [-4, 0], [-3, 5], [-5, 5], [-2, -2]])
def test_what_one_end_lacks_is_cut_from_the_other(pads: list[int]) -> None:
    x = np.arange(1, 5, dtype=np.float32)
    (expected,) = onnxruntime_outputs("Pad", {}, [x, np.array(pads)], opset=21)
    assert_close(run("Pad", x, np.array(pads)), expected)


@pytest.mark.parametrize(
    ("pads", "mode"),
    [([0, -5], "constant"), ([-3, -3], "constant"), ([-5, 9], "edge"), ([3, -5], "wrap")],
)
def test_no_more_is_cut_than_there_is(pads: list[int], mode: str) -> None:
    with pytest.raises(ModelError, match=r"Pad: pads .* cut more than 4"):
        run("Pad", np.ones(4, np.float32), np.array(pads), mode=mode)


def test_pad_of_chosen_axes() -> None:
    x = np.ones((2, 2), np.float32)
    y = run("Pad", x, np.array([1, 0]), np.array(7.0, np.float32), np.array([-1]))
    assert y.tolist() == [[7, 1, 1], [7, 1, 1]]
    with pytest.raises(ModelError, match="Pad: 3 pads are given for 2 axes"):
        run("Pad", x, np.array([1, 0, 0]))


def test_pad_works_on_text_and_small_types() -> None:
    assert run("Pad", np.array(["a"], object), np.array([1, 1])).tolist() == ["", "a", ""]
    x = np.array([1, 2]).astype(ml_dtypes.int4)
    assert run("Pad", x, np.array([2, 1]), mode="wrap").astype(np.int32).tolist() == [1, 2, 1, 2, 1]


@given(
    st.integers(1, 6),
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from(["reflect", "edge", "wrap"]),
)
def test_pad_is_numpys(size: int, before: int, after: int, mode: Any) -> None:
    x = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(
        pad(x, [before], [after], mode), np.pad(x, (before, after), mode=mode)
    )


def test_tile_and_expand() -> None:
    assert run("Tile", np.array([[1, 2]]), np.array([2, 2])).tolist() == [
        [1, 2, 1, 2],
        [1, 2, 1, 2],
    ]
    y = run("Expand", np.ones((3, 1)), np.array([2, 1, 4]))
    assert y.shape == (2, 3, 4)
    assert y.flags.writeable
    assert run("Expand", np.ones((3, 4)), np.array([1])).shape == (3, 4)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space_are_inverse(mode: str) -> None:
    x = np.arange(2 * 8 * 3 * 5).reshape(2, 8, 3, 5)
    y = run("DepthToSpace", x, blocksize=2, mode=mode)
    assert y.shape == (2, 2, 6, 10)
    np.testing.assert_array_equal(run("SpaceToDepth", y, blocksize=2, mode=mode), x)


@pytest.mark.parametrize("k", [-2, 0, 1, 9])
@pytest.mark.parametrize("upper", [0, 1])
def test_triangles_are_numpys(k: int, upper: int) -> None:
    y = run("Trilu", cube(), np.array(k), upper=upper)
    np.testing.assert_array_equal(y, (np.triu if upper else np.tril)(cube(), k))


@pytest.mark.parametrize(("time_axis", "batch_axis"), [(0, 1), (1, 0)])
def test_reversal_of_sequences(time_axis: int, batch_axis: int) -> None:
    x = np.arange(4 * 4 * 2).reshape(4, 4, 2)
    y = run(
        "ReverseSequence", x, np.array([4, 3, 1, 0]), time_axis=time_axis, batch_axis=batch_axis
    )
    moved, reversed_ = np.moveaxis(x, batch_axis, 0), np.moveaxis(y, batch_axis, 0)
    for sequence, result, length in zip(moved, reversed_, [4, 3, 1, 0], strict=True):
        np.testing.assert_array_equal(
            result, np.concatenate([sequence[:length][::-1], sequence[length:]])
        )


def test_centre_is_kept() -> None:
    x = np.arange(5)
    assert run("CenterCropPad", x, np.array([2])).tolist() == [1, 2]
    assert run("CenterCropPad", x, np.array([8])).tolist() == [0, 0, 1, 2, 3, 4, 0, 0]


def test_moving_costs_no_arithmetic() -> None:
    assert all(op.flops == 0 and op.classes is OpClass.MOVEMENT for op in OPS)
