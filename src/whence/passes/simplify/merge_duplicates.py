"""What is computed twice is computed once (common subexpressions).

1. Two constants with the same element type, shape and bits are one.
2. Two nodes with the same operator, attributes and inputs are one. The inputs of a commutative
   operator may be swapped.

The earlier of two twins stays. Operators that draw random numbers differ from their twins, and
those that hold nested graphs are not compared; nor are those that may fail, where branches became
plain operators. Of nodes that are merged, their readers are merged in the same sweep.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from whence.graph import Node, Rewriter
from whence.graph.equal_bytes import equal_bytes
from whence.graph.state import GIVEN
from whence.ops.definition import Attrs, OpClass
from whence.ops.registry import REGISTRY, classes_of
from whence.passes.base import Pass
from whence.passes.simplify.forward_sweep import ForwardSweep
from whence.provenance import Reason
from whence.types import DType, TensorType

# Constants up to this many elements are compared whole; of larger ones, this many elements are
# looked at first.
_SAMPLE = 64


@dataclass(frozen=True, slots=True)
class MergeDuplicates(Pass):
    name = "merge_duplicates"
    summary = "merge nodes that compute the same (common subexpressions)"

    def run(self, rewriter: Rewriter) -> None:
        sweep = ForwardSweep(rewriter)
        constants = _Constants()
        first: dict[Hashable, Node] = {}
        kinds: dict[str, tuple[bool, bool]] = {}
        has_choices = "Choose" in rewriter.graph.op_counts
        for node in sweep:
            if node.is_const:
                # c = d when their bits are the same
                twin = constants.twin(node)
                if twin is not None:
                    sweep.replace(
                        node, [twin.ref()], reason=Reason.CSE, rule="equal constants are one"
                    )
                continue
            if not node.outputs or node.op in GIVEN or node.bodies:
                continue
            kind = kinds.get(node.op)
            if kind is None:
                kind = kinds[node.op] = _kind(node.op)
            mergeable, commutative = kind
            if not mergeable or (has_choices and not _is_fixed(node)):
                continue
            inputs = node.inputs
            if (
                commutative
                and len(inputs) == 2
                and inputs[0] is not None
                and inputs[1] is not None
                and inputs[1] < inputs[0]
            ):
                inputs = (inputs[1], inputs[0])
            key = (node.op, inputs, len(node.outputs), _attrs_key(node.attrs) if node.attrs else ())
            found = first.setdefault(key, node)
            # f(x) = f(x)
            if found is not node:
                values = [found.ref(index) for index in range(len(found.outputs))]
                sweep.replace(
                    node,
                    values,
                    reason=Reason.CSE,
                    rule="the same operator on the same inputs computes the same",
                )
        sweep.finish()


def _is_fixed(node: Node) -> bool:
    """Is all known of what it gives? What is not may fail, and of two that are needed under
    different conditions, one would run under neither.
    """
    return all(isinstance(kind, TensorType) and kind.is_static for kind in node.outputs)


def _kind(op: str) -> tuple[bool, bool]:
    """May twins of this operator be merged, and may its two inputs be swapped?"""
    definition = REGISTRY.get(op)
    known = definition is not None and not OpClass.RANDOM & classes_of(op)
    return known, known and definition is not None and definition.commutative


def _attrs_key(attrs: Attrs) -> Hashable:
    return tuple(
        (name, type(value), _array_key(value) if isinstance(value, np.ndarray) else value)
        for name, value in sorted(attrs.items())
    )


def _array_key(array: np.ndarray) -> Hashable:
    contents = tuple(array.reshape(-1).tolist()) if array.dtype == np.object_ else array.tobytes()
    return array.dtype, array.shape, contents


class _Constants:
    """The constants met so far, found again by contents. Large ones are read whole only when a few
    of their elements agree.
    """

    def __init__(self) -> None:
        self._by_sample: dict[Hashable, Node] = {}
        self._by_digest: dict[Hashable, Node] = {}
        self._read_whole: set[int] = set()

    def twin(self, node: Node) -> Node | None:
        """An earlier constant with the same contents, else `None`; then `node` is remembered."""
        value = node.value
        kind = node.outputs[0]
        if value is None or not isinstance(kind, TensorType):
            return None
        if kind.dtype is DType.STRING:
            return self._look_up(self._by_sample, (kind, _array_key(value)), node)
        if value.size <= _SAMPLE:
            return self._look_up(self._by_sample, (kind, value.tobytes()), node)
        sample = (kind, value.flat[:: -(-value.size // _SAMPLE)].tobytes())
        alike = self._look_up(self._by_sample, sample, node)
        if alike is None:
            return None
        assert alike.value is not None
        if alike.value is value or equal_bytes(alike.value, value):
            return alike
        # The first with this sample was not read whole when it came; now it has to be, once.
        if alike.id not in self._read_whole:
            self._read_whole.add(alike.id)
            self._by_digest[kind, _digest(alike)] = alike
        return self._look_up(self._by_digest, (kind, _digest(node)), node)

    @staticmethod
    def _look_up(table: dict[Hashable, Node], key: Hashable, node: Node) -> Node | None:
        found = table.setdefault(key, node)
        return None if found is node else found


def _digest(node: Node) -> bytes:
    assert node.value is not None
    return hashlib.blake2b(
        np.ascontiguousarray(node.value).view(np.uint8).data, digest_size=16
    ).digest()
