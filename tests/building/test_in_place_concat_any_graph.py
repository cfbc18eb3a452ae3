"""Concatenations in place in graphs of any form: every value is there when it is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.building.concatenations import check, laid_out, numbered_rows, softmax
from tests.cpu_backend import cpu_backend
from tests.runtime.models import assert_same
from whence.api import prepare
from whence.backends.cpu import generator as generator_module
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.instance import Instance
from whence.building.aligned_memory import ALIGNMENT
from whence.building.location import MemoryRegion
from whence.building.memory_layout import MemoryLayout
from whence.codegen.emit import Emitted
from whence.fusion.contiguous import input_offsets
from whence.graph import Graph, Ref
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.interpreter import evaluate_node
from whence.kernels.ir import Kernel
from whence.kernels.lower import Step
from whence.runtime.engine import Engine
from whence.types import DType, TensorType


@st.composite
def _graphs(draw: st.DrawFn) -> Graph:
    """Rows of one cache line, computed, put together and taken apart in any order."""
    build = GraphBuilder()
    values = [
        (build.input(name, DType.F32, [rows, 16]), rows)
        for name, rows in (("x", 1), ("y", 2), ("z", 4))
    ]
    values.append((build.const(numbered_rows(2)), 2))
    square = build.const(np.eye(16, dtype=np.float32)[::-1].copy())

    def pick() -> tuple[Symbol, int]:
        back = draw(st.integers(1, 4)) if draw(st.booleans()) else draw(st.integers(1, len(values)))
        return values[-min(back, len(values))]

    for _ in range(draw(st.integers(1, 16))):
        value, rows = pick()
        match draw(
            st.sampled_from(
                [
                    "unary",
                    "store",
                    "matmul",
                    "add",
                    "concat",
                    "concat",
                    "concat",
                    "split",
                    "slice",
                    "view",
                ]
            )
        ):
            case "unary":
                values.append(
                    (build.op(draw(st.sampled_from(["Neg", "Abs", "Relu"])), value), rows)
                )
            case "store":
                values.append((softmax(build, value), rows))
            case "matmul":
                values.append((build.op("MatMul", value, square), rows))
            case "add":
                other, theirs = pick()
                if theirs in (1, rows):
                    values.append((build.op("Add", value, other), rows))
            case "concat":
                picked = [(value, rows), *(pick() for _ in range(draw(st.integers(0, 3))))]
                total = sum(each for _, each in picked)
                if total <= 24:
                    values.append(
                        (build.op("Concat", *(each for each, _ in picked), axis=0), total)
                    )
            case "split" if rows > 1:
                first = draw(st.integers(1, rows - 1))
                parts = build.op(
                    "Split",
                    value,
                    build.const(np.array([first, rows - first])),
                    axis=0,
                    n_outputs=2,
                )
                values += [(parts, first), (parts[1], rows - first)]
                if draw(st.booleans()):
                    # Put back together, with something computed from the second part behind.
                    tail = softmax(build, parts[1])
                    if 2 * rows - first <= 24:
                        values.append(
                            (build.op("Concat", parts, parts[1], tail, axis=0), 2 * rows - first)
                        )
            case "slice" if rows > 1:
                begin = draw(st.integers(0, rows - 1))
                end = draw(st.integers(begin + 1, rows))
                bounds = (build.const(np.array([bound])) for bound in (begin, end, 0))
                values.append((build.op("Slice", value, *bounds), end - begin))
            case "view":
                flat = build.op("Reshape", value, build.const(np.array([1, rows * 16])))
                values.append((build.op("Reshape", flat, build.const(np.array([rows, 16]))), rows))
    build.output("last", values[-1][0])
    for number in range(draw(st.integers(0, 3))):
        build.output(f"extra{number}", pick()[0])
    return build.finish()


class _Memory:
    """The memory of a run, nothing in which is a number before it is written."""

    def __init__(self, graph: Graph, layout: MemoryLayout, inputs: Sequence[np.ndarray]) -> None:
        self._graph, self._layout = graph, layout
        self._blocks = {(MemoryRegion.ARENA, 0): np.full(layout.memory.arena_bytes, 255, np.uint8)}
        for index, value in enumerate(inputs):
            self._blocks[MemoryRegion.INPUT, index] = value.reshape(-1).view(np.uint8)
        for index, node in enumerate(graph.outputs):
            assert node.inputs[0] is not None
            self._blocks[MemoryRegion.OUTPUT, index] = np.full(
                4 * np.prod(self._shape(node.inputs[0])), 255, np.uint8
            )

    def _shape(self, ref: Ref) -> tuple[int, ...]:
        kind = self._graph.type_of(ref)
        assert isinstance(kind, TensorType)
        assert kind.static_shape is not None
        return kind.static_shape

    def array(self, ref: Ref) -> np.ndarray:
        owner = self._graph[self._layout.owner(ref).node]
        if owner.is_const:
            assert owner.value is not None
            return owner.value.reshape(self._shape(ref))
        place = self._layout.places[ref]
        assert place.offset % ALIGNMENT == 0
        block = self._blocks[place.region, place.index]
        size = 4 * int(np.prod(self._shape(ref)))
        assert place.offset + size <= len(block)
        return block[place.offset : place.offset + size].view(np.float32).reshape(self._shape(ref))

    def run(self, step: Step) -> None:
        (end,) = step.members[-1:]
        if end.op == "Concat" and step.name.endswith("_rest"):
            begins = input_offsets(self._graph, end)
            assert begins is not None
            whole = self.array(end.ref()).reshape(-1)
            for ref, begin in zip(end.inputs, begins, strict=True):
                assert ref is not None
                if ref in step.inputs:
                    part = self.array(ref).reshape(-1)
                    whole[begin // 4 : begin // 4 + part.size] = part
            return
        made: dict[Ref, np.ndarray] = {}
        for node in step.members:
            values = [
                None if ref is None else made[ref] if ref in made else self.array(ref)
                for ref in node.inputs
            ]
            for index, value in enumerate(evaluate_node(node, tuple(values))):
                made[node.ref(index)] = np.array(value)
        for ref in step.outputs:
            self.array(ref)[...] = made[ref]


@given(_graphs())
@settings(max_examples=300)
def test_every_value_is_there_when_it_is_read(graph: Graph) -> None:
    inputs = [numbered_rows(rows) for rows in (1, 2, 4)]
    running, layout = laid_out(graph)
    memory = _Memory(graph, layout, inputs)
    for step in running:
        memory.run(step)
    for node, expected in zip(graph.outputs, graph.run(list(inputs)), strict=True):
        assert node.inputs[0] is not None
        np.testing.assert_allclose(memory.array(node.inputs[0]), expected, rtol=1e-5, atol=1e-6)


def _refuse(kernels: Sequence[Kernel], *_: object) -> Emitted:
    return Emitted(("",) * len(kernels), (), dict.fromkeys(range(len(kernels)), "by request"))


@given(_graphs())
@settings(max_examples=60)
def test_any_graph_by_reference(engine: Engine, graph: Graph) -> None:
    """Even a concatenation that would copy only a part is then evaluated as a whole, over what is
    there already.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator_module, "emit", _refuse)
        check(graph, engine, [numbered_rows(rows) for rows in (1, 2, 4)])


@given(_graphs(), st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_graph_natively(engine: Engine, graph: Graph, prepared: bool) -> None:
    inputs = [numbered_rows(rows) for rows in (1, 2, 4)]
    expected = graph.run(list(inputs))
    program = build_program(
        prepare(graph.copy()) if prepared else graph.copy(), cpu_backend(engine).toolchain
    )
    assert_same(Instance(program, cpu_backend(engine)).run(list(inputs), None), expected)
