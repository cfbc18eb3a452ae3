"""One element at a time: the value of an output element as an expression over the elements it
needs.

A group of fused operators is lowered by *pulling*: ask for an element of the root's output, and
each member's rule asks for the elements of its inputs that it needs, down to loads from the group's
inputs. Elementwise members become arithmetic; transposes, slices and other injective members become
index arithmetic and leave no work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from whence.errors import UnsupportedError
from whence.extent import is_symbolic, surely_equal
from whence.graph import Node, Ref
from whence.kernels.expressions import cast, compute_type, load
from whence.kernels.index import Index, of, ravel
from whence.kernels.ir import Expr, Literal
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.group import Group

Indices: TypeAlias = tuple[Index, ...]
Given: TypeAlias = Callable[[Indices], Expr]
Rule: TypeAlias = Callable[["Elements", Node, int, Indices], Expr]
"""The element of output number `int` of a node at an index."""


_Element: TypeAlias = tuple[Ref, Indices]

# Rules within rules, several calls each; the interpreter allows a thousand.
_DEEPEST = 64


class _TooDeepError(Exception):
    """An element is asked for by too many rules that wait for each other."""

    def __init__(self, element: _Element) -> None:
        super().__init__(element)
        self.element = element


class Elements:
    """The elements of a group: members' outputs, by the rules; inputs, from buffers; an anchor's
    output, as given.
    """

    def __init__(self, group: Group, rules: Mapping[str, Rule], given: Mapping[Ref, Given]) -> None:
        self.graph, self.shape, self.dtype = group.graph, group.shape, group.dtype
        self._is_closed = group.is_closed
        self._buffers = {ref: f"in{number}" for number, ref in enumerate(group.inputs)}
        self._rules = rules
        self._given = given
        self._known: dict[_Element, Expr] = {}
        self._depth = 0

    def value(self, ref: Ref, index: Indices) -> Expr:
        """The element of `ref` at `index`, in the type arithmetic is done in.

        Rules ask for each other's elements without end in sight. Where they are nested too deeply,
        all of them are left, the element asked for last is made first, and then they begin again.
        """
        key = (ref, index)
        if key not in self._known:
            if self._depth >= _DEEPEST:
                raise _TooDeepError(key)
            if self._depth > 0:
                self._enter(key)
            else:
                self._from_the_bottom(key)
        return self._known[key]

    def _from_the_bottom(self, key: _Element) -> None:
        wanted = [key]
        while wanted:
            try:
                self._enter(wanted[-1])
                wanted.pop()
            except _TooDeepError as deep:
                wanted.append(deep.element)

    def _enter(self, key: _Element) -> None:
        self._depth += 1
        try:
            self._known[key] = self._make(*key)
        finally:
            self._depth -= 1

    def _make(self, ref: Ref, index: Indices) -> Expr:
        if ref in self._given:
            return self._given[ref](index)
        node = self.graph[ref.node]
        if (
            node.is_const
            and node.value is not None
            and node.value.size == 1
            and DType.of(node.value) is not DType.STRING
        ):
            dtype = DType.of(node.value)
            return cast(Literal(node.value.reshape(-1)[0].item(), dtype), compute_type(dtype))
        if ref in self._buffers:
            return load(self._buffers[ref], ravel(index, self.shape(ref)), self.dtype(ref))
        rule = self._rules.get(node.op)
        if rule is None:
            raise UnsupportedError(f"no element rule for {node.op} ('{node.name}')")
        return rule(self, node, ref.index, index)

    def only(self, ref: Ref) -> Expr:
        """The one element of a value, whatever its rank."""
        return self.value(ref, (of(0),) * len(self.shape(ref)))

    def broadcast(self, ref: Ref, index: Indices) -> Expr:
        """The element that broadcasting puts at `index` of a larger shape."""
        shape = self.shape(ref)
        own = index[len(index) - len(shape) :]
        pairs = zip(own, shape, strict=True)
        place = tuple(of(0) if surely_equal(extent, 1) else at for at, extent in pairs)
        return self.value(ref, place)

    def computed_type(self, ref: Ref) -> DType:
        """What it is computed in."""
        return compute_type(self.dtype(ref))

    def const(self, ref: Ref | None) -> Sequence[int] | None:
        """The integers of an input that is known, such as axes or a shape; sizes that are open
        among them are expressions.
        """
        value = self.graph.known_value(ref)
        if value is None:
            return None
        return [
            item if is_symbolic(item) and not self._is_closed else int(item)
            for item in value.reshape(-1)
        ]
