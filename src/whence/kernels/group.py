"""What lowering works on: the members of one fused group, what they read and what others read of
them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whence.errors import UnsupportedError
from whence.extent import dimensions_of
from whence.graph import Graph, Node, Ref
from whence.kernels.elements import Elements, Given, Indices, Rule
from whence.kernels.expressions import cast, compute_type
from whence.kernels.index import Index, ravel, unravel
from whence.kernels.ir import Buffer, Expr, Kernel, Member, Role, Stmt, Store
from whence.kernels.loops import rows, scatter
from whence.kernels.rules import elementwise, generate, movement, quantise, resample, rotary
from whence.ops.cost import cost
from whence.types import DType, TensorType

RULES: Mapping[str, Rule] = {
    **elementwise.RULES,
    **movement.RULES,
    **generate.RULES,
    **quantise.RULES,
    **resample.RULES,
    **rows.RULES,
    **scatter.RULES,
    **rotary.RULES,
}


Pack = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Packed:
    """What a kernel reads in place of a constant: so many elements, in an order of its own."""

    pack: Pack
    elements: int
    dtype: DType = DType.F32


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
        found = []
        for number, ref in enumerate(self.inputs):
            role = Role.CONST if self.graph[ref.node].is_const else Role.INPUT
            found.append(self._buffer(f"in{number}", ref, role))
        for number, ref in enumerate(self.outputs):
            found.append(self._buffer(f"out{number}", ref, Role.OUTPUT))
        return tuple(found)

    def _buffer(self, name: str, ref: Ref, role: Role) -> Buffer:
        kind = self.graph.type_of(ref)
        assert isinstance(kind, TensorType)
        return Buffer(name, kind.dtype, kind.elements or 0, role)

    def input_name(self, ref: Ref) -> str:
        """The parameter that an input is read from."""
        return f"in{self.inputs.index(ref)}"

    def output_names(self, node: Node, count: int) -> list[str | None]:
        """The parameters for a node's first outputs; `None` for one that nobody else reads, or that
        the node does not have.
        """
        names = {ref: f"out{number}" for number, ref in enumerate(self.outputs)}
        return [names.get(Ref(node.id, slot)) for slot in range(count)]

    def kernel(
        self,
        tasks: int,
        *body: Stmt,
        scratch_bytes: int = 0,
        packed: Mapping[Ref, Packed] | None = None,
    ) -> Kernel:
        """The kernel of the group that does this in each of so many work items."""
        params, packings = list(self.params()), {}
        for ref, form in (packed or {}).items():
            position = self.inputs.index(ref)
            params[position] = replace(params[position], dtype=form.dtype, elements=form.elements)
            packings[position] = form.pack
        return Kernel(self.name, tuple(params), tasks, body, self.costs(), scratch_bytes, packings)

    def stores(
        self, anchor: Node, value: Expr, flat: Index, outputs: Sequence[Ref] | None = None
    ) -> tuple[Store, ...]:
        """What is stored for the anchor's element at position `flat`: its value, through the
        operators fused behind it. `outputs` are those it is stored in, if not in all.
        """
        shape, made = self.shape(anchor.ref()), cast(value, compute_type(self.dtype(anchor.ref())))

        def given(index: Indices) -> Expr:
            if ravel(index, shape) != flat:
                raise UnsupportedError(f"group '{self.name}' moves elements after '{anchor.name}'")
            return made

        tail = self.elements({anchor.ref(): given})
        found = []
        for ref in self.outputs if outputs is None else outputs:
            own = self.shape(ref)
            if math.prod(own) != math.prod(shape):
                raise UnsupportedError(
                    f"group '{self.name}' changes how many elements '{anchor.name}' makes"
                )
            place = self.outputs.index(ref)
            found.append(Store(f"out{place}", flat, tail.value(ref, unravel(flat, own))))
        return tuple(found)

    def elements(self, given: Mapping[Ref, Given] | None = None) -> Elements:
        """The pull machinery over this group's members and inputs."""
        return Elements(self, RULES, given or {})

    def shape(self, ref: Ref) -> tuple[int, ...]:
        """Of a value whose every dimension is known; kernels are made for nothing else."""
        kind = self.graph.type_of(ref)
        shape = kind.static_shape if isinstance(kind, TensorType) else None
        if shape is None:
            raise UnsupportedError(
                f"'{self.graph[ref.node].name}' has type {kind}; native kernels need every"
                " dimension known"
            )
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
        shapes = (kind.shape or () for kind in kinds if isinstance(kind, TensorType))
        values = (np.ravel(np.asarray(node.known_value)) for node in known)
        found = dimensions_of(size for sizes in itertools.chain(shapes, values) for size in sizes)
        return () if found is None else tuple(found.sizes)

    def costs(self) -> tuple[Member, ...]:
        """What each member adds. Values that stay inside the kernel cost no memory traffic."""
        inside = {node.id for node in self.members}
        exposed = set(self.outputs)
        found = []
        for node in self.members:
            whole = cost(self.graph.query(node), node.outputs)
            read = [ref for ref in node.inputs if ref is not None and ref.node not in inside]
            made = [ref for ref in map(node.ref, range(len(node.outputs))) if ref in exposed]
            traffic = sum(map(self.graph.nbytes, (*read, *made)))
            found.append(Member(node.id, node.op, whole.flops if whole is not None else 0, traffic))
        return tuple(found)


def data_operands(node: Node) -> tuple[Ref, Ref]:
    """The two operands that every product has: data, and what it is multiplied by."""
    return node.first_input, node.required("W", "w", "B")
