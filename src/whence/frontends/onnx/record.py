"""One operator as read from a file, before it becomes a node, and the small builder that restates
it in other operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from onnx import GraphProto

from whence.errors import ModelError, UnsupportedError
from whence.frontends.naming import quoted, shown
from whence.ops.attributes import get_float, get_floats, get_int, get_ints, get_str
from whence.ops.definition import Attr
from whence.types import DType, TensorType, ValueType

EVERY_OPSET = 1 << 30
"""Newer than any opset: an adapter `before` it always applies."""


@dataclass(slots=True)
class OpRecord:
    """One operator of the file. Values are names; `""` is an absent input or unused output."""

    op: str
    domain: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Attr]
    bodies: dict[str, GraphProto] = field(default_factory=dict)
    source: int = 0
    metadata: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """How error messages call it."""
        return (
            f"operator {quoted(self.name)}"
            f" ({shown(f'{self.domain}::{self.op}' if self.domain else self.op)})"
        )

    def input(self, index: int) -> str:
        """Input `index`, or `""` when it is absent or the list is shorter."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def operands(self, count: int) -> tuple[str, ...]:
        """The first inputs, to be given names; `""` for those that are absent."""
        return tuple(self.input(index) for index in range(count))

    def output(self, index: int) -> str:
        """Output `index`, or `""` when nobody wants it or the list is shorter."""
        return self.outputs[index] if index < len(self.outputs) else ""

    def required(self, index: int) -> str:
        """Input `index`, which the operator cannot do without."""
        value = self.input(index)
        if not value:
            raise ModelError(f"{self} lacks its input {index}")
        return value

    def integer(self, name: str, default: int) -> int:
        return get_int(self.attrs, name, default)

    def positive(self, name: str, default: int) -> int:
        """A number of things of which there is at least one."""
        value = self.integer(name, default)
        if value < 1:
            raise ModelError(f"{self}: {name} is {value}, and should be at least 1")
        return value

    def axis(self, default: int, rank: int) -> int:
        """The attribute `axis`, counted from the front."""
        value = self.integer("axis", default)
        if not -rank <= value <= rank:
            raise ModelError(f"{self}: its axis is {value}, of a tensor of {rank} dimensions")
        return value + rank if value < 0 else value

    def number(self, name: str, default: float) -> float:
        return get_float(self.attrs, name, default)

    def text(self, name: str, default: str) -> str:
        return get_str(self.attrs, name, default)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, or `None` when the attribute is absent."""
        return get_ints(self.attrs, name) if name in self.attrs else None

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """A list of numbers, or `None` when the attribute is absent."""
        return get_floats(self.attrs, name) if name in self.attrs else None

    def with_(
        self,
        *,
        op: str | None = None,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        attrs: Mapping[str, Attr] | None = None,
    ) -> OpRecord:
        """The same operator with some parts replaced, in the default domain."""
        return OpRecord(
            self.op if op is None else op,
            "",
            self.name,
            list(self.inputs if inputs is None else inputs),
            list(self.outputs if outputs is None else outputs),
            dict(self.attrs if attrs is None else attrs),
            self.bodies,
            self.source,
            self.metadata,
        )

    def attrs_without(self, *names: str) -> dict[str, Attr]:
        return {key: value for key, value in self.attrs.items() if key not in names}

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for an operator that cannot be restated; `what` says which part."""
        return UnsupportedError(f"{self}: {what}")


class FileScope(Protocol):
    """What a restatement may ask of the file around the operator, and add to it."""

    def fresh(self, hint: str) -> str:
        """A value name that nothing else has."""

    def constant(self, array: np.ndarray) -> str:
        """A new constant; the name of its value."""

    def type_of(self, value: str) -> ValueType | None:
        """What is known of a value's type, or `None`."""

    def value_of(self, value: str) -> np.ndarray | None:
        """The data of a constant, or `None` when the value is computed."""


Restate: TypeAlias = "Callable[[OpRecord, Rewrite], Sequence[OpRecord]]"
"""Says the same as a record, in other operators, in the order they must run; what is built for it
is.
"""


class Adapter(NamedTuple):
    """Brings an operator from before opset `before` to the meaning it has in that opset."""

    op: str
    before: int
    restate: Restate
    newest: bool = False
    """The restatement is in the terms of the newest opset, not of opset `before`."""


def as_named(record: OpRecord, build: Rewrite, op: str | None = None) -> Sequence[OpRecord]:
    """The operator that ONNX has by this name, or by another, and that means the same."""
    return [record.with_(op=op)]


class Rewrite:
    """Builds the operators that restate a record; they share its source and metadata."""

    def __init__(self, record: OpRecord, scope: FileScope) -> None:
        self.record = record
        self.scope = scope
        self.records: list[OpRecord] = []

    def op(self, op: str, *inputs: str, **attrs: Attr) -> str:
        """Add an operator with one output; the name of its value."""
        return self.multi(op, 1, *inputs, **attrs)[0]

    def multi(self, op: str, n_outputs: int, *inputs: str, **attrs: Attr) -> list[str]:
        """Add an operator with several outputs; the names of their values."""
        outputs = [self.scope.fresh(f"{self.record.name}/{op}") for _ in range(n_outputs)]
        self.into(outputs, op, *inputs, **attrs)
        return outputs

    def into(self, outputs: Sequence[str], op: str, *inputs: str, **attrs: Attr) -> None:
        """Add an operator that makes the given values."""
        arguments = list(inputs)
        while arguments and not arguments[-1]:
            arguments.pop()
        record = self.record
        name = (
            record.name
            if outputs and outputs[0] and outputs[0] == record.output(0)
            else f"{record.name}/{op}"
        )
        self.records.append(
            OpRecord(
                op, "", name, arguments, list(outputs), attrs, {}, record.source, record.metadata
            )
        )

    def result(self, op: str, *inputs: str, **attrs: Attr) -> list[OpRecord]:
        """Add the operator that makes the record's first output, and return everything built."""
        self.into([self.record.output(0)], op, *inputs, **attrs)
        return self.records

    def give(self, index: int, value: str) -> None:
        """Another output of the record, where somebody wants it."""
        if self.record.output(index):
            self.into([self.record.output(index)], "Identity", value)

    def constant(self, array: np.ndarray) -> str:
        return self.scope.constant(array)

    def cast(self, value: str, dtype: DType) -> str:
        return self.op("Cast", value, to=int(dtype))

    def ints(self, *values: int) -> str:
        """A one-dimensional int64 constant."""
        return self.scope.constant(np.array(values, np.int64))

    def scalar_int(self, value: int) -> str:
        return self.scope.constant(np.array(value, np.int64))

    def counted(self, length: str) -> str:
        """0, 1, ... of a length that is a one-element tensor."""
        end = self.op("Squeeze", length, self.ints(0))
        return self.op("Range", self.scalar_int(0), end, self.scalar_int(1))

    def dtype(self, value: str) -> DType | None:
        """The element type of a tensor, when it is known."""
        known = self.scope.type_of(value)
        if isinstance(known, TensorType) and known.dtype is not DType.UNDEFINED:
            return known.dtype
        return None

    def shape(self, value: str) -> tuple[int | str | None, ...] | None:
        known = self.scope.type_of(value)
        return known.shape if isinstance(known, TensorType) else None

    def rank(self, value: str) -> int | None:
        shape = self.shape(value)
        return None if shape is None else len(shape)

    def known_rank(self, value: str) -> int:
        """The rank of a value that this operator cannot be restated without."""
        rank = self.rank(value)
        if rank is None:
            raise self.record.unsupported(
                f"the number of dimensions of {quoted(value)} is not known; give the model's input"
                " shapes"
            )
        return rank

    def known_dim(self, value: str, axis: int, what: str) -> int:
        """A dimension that this operator cannot be restated without; `what` is what it says."""
        shape = self.shape(value)
        known = shape[axis] if shape else None
        if not isinstance(known, int):
            raise self.record.unsupported(f"{what} is not known; give the model's input shapes")
        return known

    def like(self, number: float, other: str) -> str:
        """A scalar with the element type of `other`."""
        dtype = self.dtype(other)
        if dtype is None:
            return self.op("CastLike", self.scope.constant(np.array(number, np.float32)), other)
        return self.scope.constant(np.array(number, dtype.numpy))

    def dim(self, value: str, axis: int) -> str:
        """One dimension as a one-element tensor: a constant when it is known."""
        shape = self.shape(value)
        if shape is not None and -len(shape) <= axis < len(shape):
            known = shape[axis]
            if isinstance(known, int):
                return self.ints(known)
        if axis == -1:
            return self.op("Shape", value, start=-1)
        return self.op("Shape", value, start=axis, end=axis + 1)
