"""The types of values: element types, tensor shapes, sequences and optionals.

A dimension is an `int` when known, a `str` when the model names it (`"batch"`), and `None` when
nothing is known. A shape of `None` means that even the rank is unknown. What is compiled for more
than one size has expressions in place of numbers (`whence.extent`).
"""

from __future__ import annotations

import enum
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from whence.errors import ModelError
from whence.extent import is_symbolic, surely_equal

_PLAIN = frozenset({int})
Dim: TypeAlias = int | str | None
Shape: TypeAlias = tuple[Dim, ...]

MAX_RANK = 64
"""The most dimensions of a tensor, which is NumPy's limit: no engine has more."""


def as_dims(shape: Iterable[Dim]) -> Shape:
    """A shape that somebody gave, its numbers as those of Python; names, gaps and expressions
    stay.
    """
    return tuple(
        dim if dim is None or isinstance(dim, str) or is_symbolic(dim) else int(dim)
        for dim in shape
    )


class DType(enum.IntEnum):
    """Element types. The numbers are those of ONNX's `TensorProto.DataType`, so that attributes
    such as `to` compare directly.
    """

    UNDEFINED = 0
    F32 = 1
    U8 = 2
    I8 = 3
    U16 = 4
    I16 = 5
    I32 = 6
    I64 = 7
    STRING = 8
    BOOL = 9
    F16 = 10
    F64 = 11
    U32 = 12
    U64 = 13
    C64 = 14
    C128 = 15
    BF16 = 16
    F8E4M3FN = 17
    F8E4M3FNUZ = 18
    F8E5M2 = 19
    F8E5M2FNUZ = 20
    U4 = 21
    I4 = 22
    F4E2M1 = 23
    F8E8M0 = 24
    U2 = 25
    I2 = 26
    F6E2M3 = 27
    F6E3M2 = 28

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype that holds one element (sub-byte types are held one element to a
        byte).
        """
        found = _NUMPY.get(self)
        return _more_types()[0][self] if found is None else found

    @property
    def bits(self) -> int:
        """Bits per element as stored in a file; 0 for strings, whose size is not fixed."""
        return _BITS.get(self, 0 if self is DType.STRING else self.numpy.itemsize * 8)

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        return self in _INTEGERS

    @classmethod
    def of(cls, array: np.ndarray | np.generic) -> DType:
        """The element type of a NumPy array. Object and unicode arrays are strings."""
        dtype = array.dtype
        if dtype.kind in "OUST":
            return cls.STRING
        found = _FROM_NUMPY.get(dtype)
        return _more_types()[1][dtype] if found is None else found

    def __str__(self) -> str:
        return self.name.lower()


_NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.F32: np.dtype(np.float32),
    DType.U8: np.dtype(np.uint8),
    DType.I8: np.dtype(np.int8),
    DType.U16: np.dtype(np.uint16),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.STRING: np.dtype(np.object_),
    DType.BOOL: np.dtype(np.bool_),
    DType.F16: np.dtype(np.float16),
    DType.F64: np.dtype(np.float64),
    DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
    DType.C64: np.dtype(np.complex64),
    DType.C128: np.dtype(np.complex128),
}
_FROM_NUMPY = {dtype: member for member, dtype in _NUMPY.items()}


@functools.cache
def _more_types() -> tuple[
    Mapping[DType, np.dtype[np.generic]], Mapping[np.dtype[np.generic], DType]
]:
    """The types that another package adds to NumPy. It is imported by the first model that has any
    of them.
    """
    import ml_dtypes

    found: dict[DType, np.dtype[np.generic]] = {
        DType.BF16: np.dtype(ml_dtypes.bfloat16),
        DType.F8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
        DType.F8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
        DType.F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
        DType.F8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
        DType.U4: np.dtype(ml_dtypes.uint4),
        DType.I4: np.dtype(ml_dtypes.int4),
        DType.F4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
        DType.F8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
        DType.U2: np.dtype(ml_dtypes.uint2),
        DType.I2: np.dtype(ml_dtypes.int2),
        DType.F6E2M3: np.dtype(ml_dtypes.float6_e2m3fn),
        DType.F6E3M2: np.dtype(ml_dtypes.float6_e3m2fn),
    }
    return found, {dtype: member for member, dtype in found.items()}


_BITS = {
    DType.U4: 4,
    DType.I4: 4,
    DType.F4E2M1: 4,
    DType.U2: 2,
    DType.I2: 2,
    DType.F6E2M3: 6,
    DType.F6E3M2: 6,
}
_FLOATS = frozenset(dtype for dtype in DType if dtype.name.startswith(("F", "BF")))
_INTEGERS = frozenset(
    DType[f"{sign}{bits}"] for sign in ("I", "U") for bits in (2, 4, 8, 16, 32, 64)
)


@dataclass(frozen=True, slots=True, eq=False)
class TensorType:
    """A dense tensor: what its elements are and what is known of its shape."""

    dtype: DType
    shape: Shape | None = None

    def __post_init__(self) -> None:
        if self.shape is not None and len(self.shape) > MAX_RANK:
            raise ModelError(
                f"a tensor has {len(self.shape)} dimensions, and the limit is {MAX_RANK}"
            )

    def __eq__(self, other: object) -> bool:
        """Are the types the same for all sizes? To compare them asks nothing of the dimensions."""
        if self is other:
            return True
        if not isinstance(other, TensorType):
            return NotImplemented
        return self.dtype is other.dtype and same_shape(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """True when every dimension is a known number."""
        # Plain numbers first, without a call for each: expressions are numbers of another class.
        return self.shape is not None and (
            _PLAIN.issuperset(map(type, self.shape))
            or all(isinstance(dim, int) for dim in self.shape)
        )

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape when every dimension is known, else `None`."""
        return cast("tuple[int, ...]", self.shape) if self.is_static else None

    @property
    def elements(self) -> int | None:
        shape = self.static_shape
        return None if shape is None else math.prod(shape)

    @property
    def nbytes(self) -> int | None:
        """Bytes of the tensor as stored densely, rounding sub-byte elements up; `None` when the
        shape or the type of its elements is not known.
        """
        count = self.elements
        if count is None or self.dtype is DType.UNDEFINED:
            return None
        return (count * self.dtype.bits + 7) // 8

    @classmethod
    def of(cls, array: np.ndarray) -> TensorType:
        return cls(DType.of(array), tuple(int(dim) for dim in array.shape))

    def __str__(self) -> str:
        return f"{self.dtype}{'[...]' if self.shape is None else shape_text(self.shape)}"


def shape_text(shape: Iterable[Dim]) -> str:
    """A shape for a message: `[batch,?,768]`."""
    return f"[{','.join('?' if dim is None else str(dim) for dim in shape)}]"


def same_dim(left: Dim, right: Dim) -> bool:
    """Are the two one size, whatever the dimensions are? Unlike `==`, it records nothing."""
    if is_symbolic(left) or is_symbolic(right):
        return isinstance(left, int) and isinstance(right, int) and surely_equal(left, right)
    return left == right


def differ(left: Dim, right: Dim) -> bool:
    """Are they two numbers, and not the same?"""
    return isinstance(left, int) and isinstance(right, int) and left != right


def same_shape(left: Shape | None, right: Shape | None) -> bool:
    """Are the two one shape, whatever the dimensions are? Unlike `==`, it records nothing."""
    if left is None or right is None or left is right:
        return left is right
    # Most sizes are small numbers, of which there is one object each.
    return len(left) == len(right) and (
        all(map(operator.is_, left, right)) or all(map(same_dim, left, right))
    )


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    element: ValueType

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent."""

    element: ValueType

    def __str__(self) -> str:
        return f"opt({self.element})"


@dataclass(frozen=True, slots=True)
class MapType:
    """A dictionary, which only the classical machine-learning operators produce."""

    key: DType
    value: ValueType

    def __str__(self) -> str:
        return f"map({self.key},{self.value})"


ValueType: TypeAlias = TensorType | SequenceType | OptionalType | MapType


def map_tensors(kind: ValueType, function: Callable[[TensorType], TensorType]) -> ValueType:
    """The type with `function` of the tensors in it, in sequences, optionals and maps too."""
    if isinstance(kind, TensorType):
        return function(kind)
    if isinstance(kind, MapType):
        return MapType(kind.key, map_tensors(kind.value, function))
    return type(kind)(map_tensors(kind.element, function))


def map_dims(kind: ValueType, function: Callable[[Dim], Dim]) -> ValueType:
    """The type with `function` of the dimensions in it, in sequences, optionals and maps too."""

    def mapped(tensor: TensorType) -> TensorType:
        shape = None if tensor.shape is None else tuple(map(function, tensor.shape))
        return TensorType(tensor.dtype, shape)

    return map_tensors(kind, mapped)


UNKNOWN = TensorType(DType.UNDEFINED)
