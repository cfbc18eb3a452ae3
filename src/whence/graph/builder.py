"""Writing a graph by hand: for tests, examples and generated models.

    build = GraphBuilder("tiny")
    x = build.input("x", DType.F32, [1, 8])
    y = build.op("Relu", build.op("Add", x, build.const(np.ones(8, np.float32))))
    build.output("y", y)
    graph = build.finish()

Every `op` becomes a source operator, numbered in the order written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.errors import GraphError, ModelError, WhenceError
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.graph.state import BOUNDARY, NOT_FROM_A_FILE, SOURCES, list_order
from whence.ops.definition import Attr, labelled
from whence.ops.signature import why_wrong
from whence.ops.types.inference import Inference
from whence.provenance import Ledger, SourceOp
from whence.types import Dim, DType, TensorType, ValueType


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A value of a graph that is being written. `symbol[1]` is the next output of the same
    operator.
    """

    builder: GraphBuilder
    entry: int
    index: int = 0

    def __getitem__(self, index: int) -> Symbol:
        # With an end, a loop over the outputs has one too.
        if not 0 <= index < self.builder._entries[self.entry].n_outputs:
            raise IndexError(f"the operator has no output {index}")
        return Symbol(self.builder, self.entry, index)


@dataclass(slots=True)
class _Entry:
    op: str
    inputs: tuple[Symbol | None, ...] = ()
    attrs: Mapping[str, Attr] | None = None
    name: str = ""
    kind: ValueType | None = None
    value: np.ndarray | None = None
    n_outputs: int = 1
    module: str = ""
    line: str = ""


class GraphBuilder:
    def __init__(self, name: str = "") -> None:
        self._name = name
        self._entries: list[_Entry] = []

    def input(self, name: str, dtype: DType, shape: Sequence[Dim] | None) -> Symbol:
        return self._add(
            _Entry(
                "Input", name=name, kind=TensorType(dtype, None if shape is None else tuple(shape))
            )
        )

    def const(self, value: Any, name: str = "") -> Symbol:
        return self._add(_Entry("Const", name=name, value=np.asarray(value)))

    def op(
        self,
        op: str,
        /,
        *inputs: Symbol | None,
        name: str = "",
        n_outputs: int = 1,
        attrs: Mapping[str, Attr] | None = None,
        module: str = "",
        line: str = "",
        **named: Attr,
    ) -> Symbol:
        """An operator. Attributes are given by their names, or as `attrs` by a reader, whose file
        may call one `name`. `module` and `line` say where it stands in the program that was
        exported.
        """
        if op in BOUNDARY:
            raise ModelError(
                f"operator {name or op!r} ({op}) is none: `input`, `const`, `output`, `variable`"
                " and `assign` make the edges of a graph"
            )
        given = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in {**(attrs or {}), **named}.items()
        }
        return self._add(_Entry(op, inputs, given, name, None, None, n_outputs, module, line))

    def variable(self, name: str, initial: Any) -> Symbol:
        """A value that outlives a run, with what it is before the first; see
        `whence.graph.state`.
        """
        array = np.asarray(initial)
        return self._add(
            _Entry("Variable", attrs={"initial": array}, name=name, kind=TensorType.of(array))
        )

    def assign(self, variable: str, value: Symbol) -> None:
        """What the variable of this name is when the next run begins."""
        self._add(_Entry("Assign", (value,), {"variable": variable}))

    def output(self, name: str, value: Symbol) -> None:
        self._add(_Entry("Output", (value,), name=name))

    def finish(self) -> Graph:
        """The graph. Operators are source operators 1..N; constants, inputs and outputs have ids
        after them.
        """
        ledger = Ledger()
        operators = [entry for entry in self._entries if entry.op not in NOT_FROM_A_FILE]
        for number, entry in enumerate(operators, 1):
            entry.name = entry.name or f"{entry.op}_{number}"
            ledger.add_source(
                SourceOp(number, entry.name, entry.op, module=entry.module, line=entry.line)
            )
        graph = Graph(self._name, ledger, Inference())
        placed: dict[int, Node] = {}
        sources = [pair for pair in enumerate(self._entries) if pair[1].op in SOURCES]
        for index, entry in sorted(sources, key=lambda pair: list_order(pair[1].op)):
            kind = entry.kind if entry.value is None else TensorType.of(entry.value)
            assert kind is not None
            placed[index] = graph.append(
                Node(
                    graph.new_id(),
                    entry.op,
                    (),
                    (kind,),
                    entry.attrs,
                    name=entry.name,
                    value=entry.value,
                )
            )
        number = 0
        for index, entry in enumerate(self._entries):
            if entry.op in SOURCES:
                continue
            inputs = tuple(
                None if symbol is None else Ref(placed[symbol.entry].id, symbol.index)
                for symbol in entry.inputs
            )
            if entry.op == "Output":
                graph.append(Node(graph.new_id(), "Output", inputs, (), name=entry.name))
                continue
            number += 1
            attrs = dict(entry.attrs or {})
            if why := why_wrong(entry.op, inputs, entry.n_outputs, attrs):
                raise ModelError(f"operator '{entry.name}' ({entry.op}){why}")
            types = () if entry.op == "Assign" else _named_types(graph, entry, inputs, attrs)
            placed[index] = graph.append(
                Node(
                    number,
                    entry.op,
                    inputs,
                    types,
                    attrs,
                    name=entry.name,
                    origin=frozenset((number,)),
                )
            )
        return graph

    def _add(self, entry: _Entry) -> Symbol:
        for symbol in entry.inputs:
            if symbol is not None and symbol.builder is not self:
                raise GraphError(f"{entry.op} reads a value of another builder")
        self._entries.append(entry)
        return Symbol(self, len(self._entries) - 1)


def _named_types(
    graph: Graph, entry: _Entry, inputs: Sequence[Ref | None], attrs: Mapping[str, Attr]
) -> tuple[ValueType, ...]:
    """Its output types; what is wrong with its operands is told with its name."""
    try:
        return infer_types(graph, entry.op, inputs, attrs, entry.n_outputs)
    except WhenceError as error:
        if not entry.name:
            raise
        label = f"operator '{entry.name}' ({entry.op})"
        raise type(error)(labelled(label, str(error))) from error


def infer_types(
    graph: Graph, op: str, inputs: Sequence[Ref | None], attrs: Mapping[str, Attr], n_outputs: int
) -> tuple[ValueType, ...]:
    """The output types of an operator applied to values of `graph`."""
    return graph.inference.infer(graph.query_for(op, inputs, attrs, n_outputs))
