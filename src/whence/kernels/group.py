"""What lowering works on: the members of one fused group, what they read and what others read of
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from whence.extent import dimensions_of
from whence.graph import Graph, Node, Ref
from whence.kernels.elements import Elements, Given, Rule, static_shape
from whence.kernels.ir import Buffer, Member, Role
from whence.kernels.loops import rows, scatter
from whence.kernels.rules import (
    blocked,
    blockwise,
    elementwise,
    fixed_point,
    generate,
    movement,
    quantise,
    resample,
    rotary,
)
from whence.ops.cost import cost
from whence.ops.definition import TypeQuery
from whence.types import DType, TensorType

RULES: Mapping[str, Rule] = {
    **elementwise.RULES,
    **movement.RULES,
    **blocked.RULES,
    **blockwise.RULES,
    **generate.RULES,
    **quantise.RULES,
    **fixed_point.RULES,
    **resample.RULES,
    **rows.RULES,
    **scatter.RULES,
    **rotary.RULES,
}


@dataclass(frozen=True, slots=True)
class Group:
    """One kernel in the making. `inputs` and `outputs` are in the order of the kernel's parameters,
    inputs first.
    """

    graph: Graph
    name: str
    members: tuple[Node, ...]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    is_closed: bool = False
    """Are sizes wanted as numbers? Those that are open are then asked for, so that what is compiled
    serves no others.
    """

    def params(self) -> tuple[Buffer, ...]:
        found = [
            self._buffer(
                f"in{number}", ref, Role.CONST if self.graph[ref.node].is_const else Role.INPUT
            )
            for number, ref in enumerate(self.inputs)
        ]
        return (
            *found,
            *(
                self._buffer(f"out{number}", ref, Role.OUTPUT)
                for number, ref in enumerate(self.outputs)
            ),
        )

    def _buffer(self, name: str, ref: Ref, role: Role) -> Buffer:
        kind = self.graph.type_of(ref)
        assert isinstance(kind, TensorType)
        return Buffer(name, kind.dtype, kind.elements or 0, role)

    def elements(self, given: Mapping[Ref, Given] | None = None) -> Elements:
        """The pull machinery over this group's members and inputs."""
        return Elements(
            self.graph,
            {ref: f"in{number}" for number, ref in enumerate(self.inputs)},
            RULES,
            given,
            is_closed=self.is_closed,
        )

    def shape(self, ref: Ref) -> tuple[int, ...]:
        shape = static_shape(self.graph, ref)
        return tuple(map(int, shape)) if self.is_closed else shape

    def dtype(self, ref: Ref) -> DType:
        kind = self.graph.type_of(ref)
        assert isinstance(kind, TensorType)
        return kind.dtype

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions of the model, if sizes in the group are expressions over them."""
        kinds = [kind for node in self.members for kind in node.outputs]
        refs = [ref for node in self.members for ref in node.inputs if ref is not None]
        kinds += [self.graph.type_of(ref) for ref in refs]
        known = [node for node in self.members if node.op == "DimensionValue"]
        known += [node for ref in refs if (node := self.graph[ref.node]).op == "DimensionValue"]
        found = dimensions_of(
            itertools.chain(
                (dim for kind in kinds if isinstance(kind, TensorType) for dim in kind.shape or ()),
                (size for node in known for size in np.ravel(cast(Any, node.known_value))),
            )
        )
        return () if found is None else tuple(found.sizes)

    def costs(self) -> tuple[Member, ...]:
        """What each member adds. Values that stay inside the kernel cost no memory traffic."""
        inside = {node.id for node in self.members}
        exposed = set(self.outputs)
        found = []
        for node in self.members:
            types = tuple(None if ref is None else self.graph.type_of(ref) for ref in node.inputs)
            values = tuple(self.graph.const_value(ref) for ref in node.inputs)
            whole = cost(
                node.op,
                TypeQuery(node.op, node.attrs, types, values, len(node.outputs)),
                node.outputs,
            )
            traffic = sum(
                _nbytes(self.graph, ref)
                for ref in node.inputs
                if ref is not None and ref.node not in inside
            )
            traffic += sum(
                _nbytes(self.graph, node.ref(index))
                for index in range(len(node.outputs))
                if node.ref(index) in exposed
            )
            found.append(Member(node.id, node.op, whole.flops if whole is not None else 0, traffic))
        return tuple(found)


def _nbytes(graph: Graph, ref: Ref) -> int:
    kind = graph.type_of(ref)
    return (kind.nbytes or 0) if isinstance(kind, TensorType) else 0


def data_operands(node: Node) -> tuple[Ref, Ref]:
    """The two operands that every product has: data, and what it is multiplied by."""
    return node.first_input, node.required("W", "w", "B")
