"""The iterations of a Loop or a Scan: what they begin with, and what is made of what they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.graph.node import Node
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import Value
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.types import UNKNOWN, Dim, DType, TensorType, ValueType

if TYPE_CHECKING:
    from whence.graph.graph import Graph

ITERATING = operators(Trait.ITERATES)


@dataclass(frozen=True, slots=True)
class Iterations:
    """What the iterations of one run of an operator begin with.

    The body is given the iteration's number and whether the loop goes on (a Loop only), what is
    carried from iteration to iteration, the iteration's rows, and what is captured; it makes
    whether the loop goes on (a Loop only), what is carried, and rows that are stacked.
    """

    node: Node
    most: int | None
    """How many iterations there are at most, if anything says."""
    goes_on: bool
    """Is there a first iteration, where an iteration decides whether there is another?"""
    carried: list[Value]
    rows: list[np.ndarray]
    """Of scan inputs: what each iteration is given, by iteration."""
    captured: list[Value]

    @property
    def is_counted(self) -> bool:
        """Does the body begin with the iteration's number and the condition?"""
        return self.node.op == "Loop"

    @property
    def is_empty(self) -> bool:
        return not self.goes_on or (self.most is not None and self.most < 1)

    def feeds(self, iteration: int, carried: Sequence[Value]) -> list[Value]:
        """What the body is given in this iteration."""
        head: list[Value] = []
        if self.is_counted:
            formals = self.node.bodies["body"].inputs
            values = (np.int64(iteration), np.bool_(True))
            head = [_as_declared(*each) for each in zip(formals, values, strict=False)]
        return [
            *head,
            *carried,
            *(np.asarray(rows[iteration]) for rows in self.rows),
            *self.captured,
        ]

    def results(self, carried: Sequence[Value], scanned: Sequence[Value]) -> list[Value]:
        """What the operator makes, of what was carried out of the last iteration, and of the rows
        that the iterations made, as one array or as a list.
        """
        outputs = self.node.bodies["body"].outputs[self.is_counted + len(self.carried) :]
        axes = stacking_axes(self.node, len(outputs))
        reverses = _ints(self.node, "scan_output_directions", len(outputs))
        return [
            *carried,
            *(
                _stack(rows[:: -1 if reverse else 1], output, axis)
                for rows, output, axis, reverse in zip(
                    scanned, outputs, axes, reverses, strict=True
                )
            ),
        ]


def iterations_of(node: Node, inputs: Sequence[Value]) -> Iterations:
    """What the iterations of a Loop or Scan begin with, given the operator's inputs."""
    return _loop(node, inputs) if node.op == "Loop" else _scan(node, inputs)


def loop_heads(node: Node) -> tuple[int, int]:
    """Where the values begin that are carried, among inputs and outputs of the body: a Loop has the
    number of the iteration and the condition before them.
    """
    return (2, 1) if node.op == "Loop" else (0, 0)


def has_rows_in_order(node: Node) -> bool:
    """Are the rows of its iterations read and made in the order in which they lie?"""
    names = ("input_axes", "input_directions", "output_axes", "output_directions")
    return not any(any(_ints(node, f"scan_{name}", 0)) for name in names)


def stacking_axes(node: Node, count: int) -> tuple[int, ...]:
    """The axes along which the rows are stacked that the iterations make."""
    return _ints(node, "scan_output_axes", count)


def scanned_inputs(graph: Graph, node: Node) -> list[tuple[ValueType, int]]:
    """The types of what a Scan reads a row of in each iteration, and the axis of the rows."""
    last, count = len(node.inputs) - captures(node), get_int(node.attrs, "num_scan_inputs", 0)
    axes = _ints(node, "scan_input_axes", count)
    kinds = [
        UNKNOWN if ref is None else graph.type_of(ref) for ref in node.inputs[last - count : last]
    ]
    return list(zip(kinds, axes, strict=False))


def row_length(kind: ValueType, axis: int) -> Dim:
    """How many rows a tensor has along an axis."""
    shape = kind.shape if isinstance(kind, TensorType) else None
    return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]


def row_type(kind: ValueType, axis: int) -> ValueType:
    """The type of one of the rows of a tensor along an axis."""
    if not isinstance(kind, TensorType):
        return UNKNOWN
    if kind.shape is None or not -len(kind.shape) <= axis < len(kind.shape):
        return TensorType(kind.dtype)
    shape = list(kind.shape)
    del shape[axis]
    return TensorType(kind.dtype, tuple(shape))


def stacked_type(kind: ValueType, count: Dim, axis: int = 0) -> ValueType:
    """The type of so many values of type `kind`, stacked along an axis."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return TensorType(kind.dtype) if isinstance(kind, TensorType) else UNKNOWN
    shape = list(kind.shape)
    shape.insert(axis + len(shape) + 1 if axis < 0 else axis, count)
    return TensorType(kind.dtype, tuple(shape))


def is_true(condition: Value) -> bool:
    return bool(np.asarray(condition).reshape(-1)[0])


def captures(node: Node) -> int:
    """How many of the operator's inputs its nested graphs take from outside, which are the last."""
    return get_int(node.attrs, "captures", 0)


def _loop(node: Node, inputs: Sequence[Value]) -> Iterations:
    # Both the trip count and the condition may be absent, and absent inputs at the end are not even
    # listed.
    inputs = [*inputs, *[None] * (2 - len(inputs))]
    formal = len(inputs) - captures(node)
    most = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(-1)[0])
    goes_on = inputs[1] is None or is_true(inputs[1])
    return Iterations(node, most, goes_on, list(inputs[2:formal]), [], list(inputs[formal:]))


def _scan(node: Node, inputs: Sequence[Value]) -> Iterations:
    n_scans = get_int(node.attrs, "num_scan_inputs", 0)
    formal = len(inputs) - captures(node)
    axes = _ints(node, "scan_input_axes", n_scans)
    reverses = _ints(node, "scan_input_directions", n_scans)
    rows = [
        np.moveaxis(scan, axis, 0)[:: -1 if reverse else 1]
        for scan, axis, reverse in zip(
            inputs[formal - n_scans : formal], axes, reverses, strict=True
        )
    ]
    lengths = sorted({len(each) for each in rows})
    if len(lengths) > 1:
        raise ModelError(f"its scan inputs have different lengths: {lengths}")
    most = lengths[0] if lengths else 0
    return Iterations(
        node, most, True, list(inputs[: formal - n_scans]), rows, list(inputs[formal:])
    )


def _as_declared(formal: Node, value: np.generic) -> np.ndarray:
    """A loop's iteration number and condition are numbers, or lists of one number where its body
    declares them so.
    """
    kind = formal.type
    return np.asarray(value).reshape(
        (1,) if isinstance(kind, TensorType) and kind.rank == 1 else ()
    )


def _stack(rows: Value, output: Node, axis: int) -> Value:
    if isinstance(rows, np.ndarray) and len(rows):
        return np.moveaxis(rows, 0, axis) if axis else rows
    if len(rows):
        return np.stack([np.asarray(row) for row in rows], axis)
    source = output.inputs[0]
    kind = output.graph.type_of(source) if output.graph is not None and source is not None else None
    if not isinstance(kind, TensorType) or kind.dtype is DType.UNDEFINED:
        raise UnsupportedError("a loop that never runs has a scan output of unknown type")
    shape = [dim if isinstance(dim, int) else 0 for dim in kind.shape or ()]
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 0)
    return np.empty(shape, kind.dtype.numpy)


def _ints(node: Node, name: str, count: int) -> tuple[int, ...]:
    return get_ints(node.attrs, name, (0,) * count)
