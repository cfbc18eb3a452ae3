"""What a mapping of one ATen operator works with: `AtenCall`, the node of PyTorch's graph and the
means to say it in canonical operators.

A mapper reads arguments by the names that the operator's schema gives them, emits nodes and returns
what the result is:

    def _relu(call: AtenCall) -> Value:
        return call.op("Relu", call.ref("self"))

Everything emitted gets the origin of the operator in the user's program. PyTorch has worked out
shapes and element types (`node.meta["val"]`): ranks come from there, and a result of another
element type than PyTorch's is cast to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from whence.frontends.importer import ConstantPool, NodeImporter, OperatorOrigin, renamed
from whence.frontends.torch.sources import Sources, describe
from whence.frontends.torch.tensors import dtype_of
from whence.graph.graph import Graph
from whence.graph.node import Ref
from whence.types import DType

if TYPE_CHECKING:
    from torch.fx import Node as FxNode

Value: TypeAlias = Ref | list[Ref | None] | int | float | bool | None
"""What a node of PyTorch's graph is: a tensor, several, or a plain Python value."""
Mapper: TypeAlias = "Callable[[AtenCall], Value]"
Mappings: TypeAlias = Mapping[str, Mapper]

_SMALL = 64


@dataclass(slots=True)
class Reading:
    """One graph under construction."""

    graph: Graph
    sources: Sources
    constants: ConstantPool
    values: dict[str, Value] = field(default_factory=dict)
    """By name of a node of PyTorch's graph."""


class AtenCall(NodeImporter):
    """One node of PyTorch's graph while it is mapped."""

    def __init__(self, reading: Reading, node: FxNode) -> None:
        self.source_number = number = reading.sources.numbers[node.name]
        source = reading.sources.operators[number - 1]
        place = OperatorOrigin(source.name, number, frozenset((number,)))
        super().__init__(reading.graph, reading.constants, place, source.op)
        self.reading = reading
        self.node = node
        self.args = _named_arguments(node)
        self._is_alias = False

    # ---- arguments ----

    def has(self, name: str) -> bool:
        """Is the argument given, and not `None`?"""
        return self.args.get(name) is not None

    def ref(self, name: str) -> Ref:
        """An argument that is a tensor."""
        return self.value(self.args.get(name), name)

    def optional(self, name: str) -> Ref | None:
        return self.ref(name) if self.has(name) else None

    def refs(self, name: str) -> list[Ref]:
        """An argument that is a list of tensors."""
        return [self.value(each, name) for each in self.args[name]]

    def value(self, given: Any, name: str = "an argument") -> Ref:
        """A node of PyTorch's graph, as a value of ours; a plain number is a constant."""
        if isinstance(given, bool):
            return self.const(np.array(given))
        if isinstance(given, int):
            return self.const(np.array(given, np.int64))
        if isinstance(given, float):
            return self.const(np.array(given, np.float32))
        found = self.reading.values.get(given.name) if is_node(given) else None
        if isinstance(found, Ref):
            return found
        if isinstance(found, int | float):
            return self.value(found)
        return self.unsupported(f"'{name}' is {given!r}, which is no tensor here")

    @property
    def subject(self) -> Ref:
        """The tensor that the operator is about, which schemas call `self` or `input`."""
        return self.ref("self" if "self" in self.args else "input")

    def elements(self, given: Any, dtype: DType, name: str = "an argument") -> Ref:
        """A tensor or a number, as elements of `dtype`."""
        if not is_node(given):
            return self.number(given, dtype)
        return self.cast(self.value(given, name), dtype)

    def promoted(self, name: str, dtype: DType | None = None) -> Ref:
        """An argument that is a tensor or a number, as elements of `dtype`, or of the result's
        type.
        """
        return self.elements(self.args[name], dtype or self.out_dtype, name)

    def sides(self, dtype: DType | None = None) -> list[Ref]:
        """Both operands, alike."""
        return [self.promoted(name, dtype) for name in ("self", "other")]

    def scaled(self, ref: Ref, name: str) -> Ref:
        """A value times the number that an argument is, which may be left out."""
        factor = self.plain(name)
        if factor in (None, 1):
            return ref
        return self.op("Mul", ref, self.number(factor, self.out_dtype))

    def known(self, given: Any) -> Any:
        """A plain number where the node that stands for it is one; else what was given."""
        found = self.reading.values.get(given.name) if is_node(given) else given
        return found if isinstance(found, int | float) else given

    def plain(self, name: str) -> Any:
        """An argument that must be known while reading: a number, a flag, a list of them."""
        return self._plain(self.args.get(name), name)

    def _plain(self, given: Any, name: str) -> Any:
        given = self.known(given)
        if is_node(given):
            ref = self.reading.values.get(given.name)
            if isinstance(ref, Ref) and (value := self.value_of(ref)) is not None:
                return value.item() if value.size == 1 else self.unsupported(f"'{name}'")
            self.unsupported(
                f"'{name}' is computed from shapes that are open; whence needs it fixed"
            )
        if isinstance(given, list | tuple):
            return [self._plain(each, name) for each in given]
        return given

    def ints(self, name: str, count: int = 0) -> tuple[int, ...]:
        """A list of whole numbers; one number stands for `count` of them."""
        found = self.plain(name)
        if isinstance(found, int):
            found = [found]
        values = tuple(int(each) for each in found or ())
        return values * count if len(values) == 1 and count > 1 else values

    def integer(self, name: str, default: int = 0) -> int:
        found = self.plain(name)
        return default if found is None else int(found)

    def real(self, name: str, default: float = 0.0) -> float:
        found = self.plain(name)
        return default if found is None else float(found)

    def axis(self, name: str = "dim", rank: int | None = None) -> int:
        """A dimension, counted from the front: of `self` unless a rank is given."""
        return self.integer(name) % max(self.rank("self") if rank is None else rank, 1)

    def axes(self, name: str = "dim") -> tuple[int, ...]:
        """Dimensions of `self`, counted from the front; all of them where none are given. A single
        number has none, though 0 and -1 may be given for it.
        """
        rank = self.rank("self")
        given = self.ints(name) if rank else ()
        return tuple(sorted(each % rank for each in given)) or tuple(range(rank))

    # ---- what PyTorch knows ----

    def meta(self, name: str) -> Any:
        """The stand-in tensor of an argument, with its shape and element type."""
        return meta_of(self.args[name])

    def rank(self, name: str) -> int:
        found = self.meta(name)
        return len(found.shape) if hasattr(found, "shape") else 0

    def dtype(self, name: str) -> DType:
        return dtype_of(self.meta(name).dtype)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an argument that must be known."""
        dims = self.meta(name).shape
        if not all(isinstance(dim, int) for dim in dims):
            self.unsupported(
                f"the shape of '{name}', {list(dims)}, must be fixed for this operator"
            )
        return tuple(dims)

    @property
    def out_meta(self) -> Any:
        return self.node.meta.get("val")

    @property
    def out_dtype(self) -> DType:
        found = self.out_meta
        if isinstance(found, list | tuple):
            found = found[0]
        return scalar_dtype(found) if not hasattr(found, "dtype") else dtype_of(found.dtype)

    @property
    def out_rank(self) -> int:
        return len(self.out_meta.shape)

    # ---- values ----

    def numbers(self, *values: int) -> Ref:
        """A list of whole numbers, as canonical operators take axes and shapes."""
        return self.const(np.array(values, np.int64))

    def number(self, value: float, dtype: DType) -> Ref:
        return self.const(np.array(value).astype(dtype.numpy))

    def whole(self, given: Any) -> Ref:
        """A whole number, possibly computed from shapes, as a list of one."""
        given = self.known(given)
        if not is_node(given):
            return self.numbers(int(given))
        return self.reshape(self.cast(self.value(given), DType.I64), 1)

    def shape_value(self, dims: Sequence[Any]) -> Ref:
        """A shape whose dimensions may be computed from others."""
        known = [self.known(dim) for dim in dims]
        if not any(map(is_node, known)):
            return self.numbers(*map(int, known))
        return self.concat([self.whole(dim) for dim in dims], 0)

    # ---- nodes ----

    def cast(self, ref: Ref, dtype: DType) -> Ref:
        """The value as `dtype`; the same one when it is that already."""
        known = self.value_of(ref)
        if known is not None and known.nbytes <= _SMALL:
            return self.const(known.astype(dtype.numpy))
        return super().cast(ref, dtype)

    def transpose(self, ref: Ref, order: Sequence[int]) -> Ref:
        if list(order) == list(range(len(order))):
            return ref
        return self.emit("Transpose", [ref], {"perm": tuple(order)})

    def reshape(self, ref: Ref, *dims: int) -> Ref:
        return self.emit("Reshape", [ref, self.numbers(*dims)])

    def concat(self, parts: Sequence[Ref], axis: int) -> Ref:
        return self.emit("Concat", parts, {"axis": axis}) if len(parts) > 1 else parts[0]

    def sliced(self, x: Ref, axis: int, begin: Any, end: Any, step: int = 1) -> Ref:
        """A range of an axis, whose limits may be computed from shapes."""
        limits = [self.whole(begin), self.whole(end), self.numbers(axis), self.numbers(step)]
        return self.op("Slice", x, *limits)

    def batched(self, name: str, axes: int, make: Callable[[Ref], Ref]) -> Ref:
        """What `make` makes of an argument that is a batch; one image, with so many axes beside its
        channels, is a batch of one.
        """
        x = self.ref(name)
        if self.rank(name) == axes + 2:
            return make(x)
        made = make(self.op("Unsqueeze", x, self.numbers(0)))
        return self.op("Squeeze", made, self.numbers(0))

    # ---- the end ----

    def alone(self, result: Ref) -> Value:
        """The only result that is computed; some variants have more, for the gradient."""
        kinds = self.out_meta
        several = isinstance(kinds, list | tuple)
        return [result, *[None] * (len(kinds) - 1)] if several else result

    def alias(self, value: Value) -> Value:
        """A result that is a value which another operator makes, or none."""
        self._is_alias = True
        return value

    def finish(self, result: Value) -> None:
        """Put what was emitted into the graph; the node that makes the result bears the number of
        the user's operator, if this is the last part of it.
        """
        several = isinstance(result, list)
        values: list[Any] = list(result) if isinstance(result, list) else [result]
        if not self._is_alias:
            meta = self.out_meta
            kinds = meta if several and isinstance(meta, list | tuple) else [meta] * len(values)
            values = [
                self._as_declared(each, kind) if isinstance(each, Ref) else each
                for each, kind in zip(values, kinds, strict=False)
            ]
        keeper = self.keep([each for each in values if isinstance(each, Ref)], 0)
        if keeper is None and self._pending:
            keeper = self._pending[-1]
        number = self.source_number
        if keeper is not None and self.reading.sources.last[number] == self.node.name:
            old = keeper.id
            self.rename(keeper, number)
            values = [
                renamed(each, old, number) if isinstance(each, Ref) else each for each in values
            ]
        self.enter()
        self.reading.values[self.node.name] = values if several else values[0]

    def _as_declared(self, ref: Ref, meta: Any) -> Ref:
        """The value with the element type that PyTorch says; made by a node of this operator, even
        if that does nothing.
        """
        if hasattr(meta, "dtype"):
            ref = self.cast(ref, dtype_of(meta.dtype))
        if not self.makes(ref):
            ref = self.emit("Identity", [ref])
        return ref

    def __str__(self) -> str:
        return describe(self.node)


def is_node(given: Any) -> bool:
    """Is this a node of PyTorch's graph, not a plain value?"""
    return hasattr(given, "meta") and hasattr(given, "target")


def meta_of(given: Any) -> Any:
    """What PyTorch knows of a value: a stand-in tensor, or the plain value itself."""
    return given.meta.get("val") if is_node(given) else given


def scalar_dtype(value: Any) -> DType:
    """The element type of a plain number, which may stand for one computed from shapes."""
    name = type(value).__name__
    if isinstance(value, bool) or name == "SymBool":
        return DType.BOOL
    return DType.F32 if isinstance(value, float) or name == "SymFloat" else DType.I64


def _named_arguments(node: FxNode) -> dict[str, Any]:
    """The arguments by the names that the operator's schema gives them, defaults included; by
    position where it has no schema.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(index): each for index, each in enumerate(node.args)} | dict(node.kwargs)
    found: dict[str, Any] = {}
    for index, argument in enumerate(schema.arguments):
        if index < len(node.args):
            found[argument.name] = node.args[index]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value if argument.has_default_value() else None
    return found
