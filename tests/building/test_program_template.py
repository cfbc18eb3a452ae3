"""Programs whose sizes are open: compiled once, run for any."""

from __future__ import annotations

import itertools
import textwrap

import numpy as np
import pytest

from whence.backends.cpu.backend import CpuBackend
from whence.backends.cpu.generator import build_program
from whence.building.program import Program
from whence.extent import Dimensions, Relation
from whence.graph import Graph
from whence.graph.parse import parse_graph
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.runtime.engine import Engine
from whence.types import TensorType

_SIZES = list(itertools.product((2, 3, 5), (2, 5, 6, 16, 37, 100)))

INPUT = "%x f32[?,?,64] = Input()\n"
GRAPHS = {
    "elementwise": """
        %b f32[64] = Const() {seed 1}
        %sum = Add(%x, %b)
        %product = Mul(%sum, %x)
        %r = Relu(%product)
        %y = Output(%r)
    """,
    "product": """
        %w f32[64,40] = Const() {seed 1}
        %m = MatMul(%x, %w)
        %b f32[40] = Const() {seed 2}
        %s = Add(%m, %b)
        %t = Transpose(%s) perm=[1,0,2]
        %y = Output(%t)
    """,
    "products of two that are open": """
        %t = Transpose(%x) perm=[0,2,1]
        %scores = MatMul(%x, %t)
        %s = Softmax(%scores) axis=-1
        %sum = MatMul(%s, %x)
        %gram = MatMul(%t, %x)
        %y = Output(%sum)
        %z = Output(%gram)
    """,
    "rows": """
        %a i64[1] = Const() {1}
        %mean = ReduceMean(%x, %a) keepdims=1
        %centred = Sub(%x, %mean)
        %s = Softmax(%centred) axis=1
        %top = ReduceMax(%x, %a) keepdims=0
        %y = Output(%s)
        %z = Output(%top)
    """,
    "concatenation": """
        %r = Relu(%x)
        %c = Concat(%x, %r, %x) axis=1
        %n = Neg(%c)
        %k = Concat(%n, %c) axis=2
        %y = Output(%k)
    """,
    "transpose": """
        %t = Transpose(%x) perm=[2,1,0]
        %r = Relu(%t)
        %y = Output(%r)
    """,
}

GRAPHS = {name: textwrap.dedent(text) for name, text in GRAPHS.items()}


def _graph(text: str, batch: int, sequence: int) -> Graph:
    return fix_input_shapes(parse_graph(INPUT + text), {"x": (batch, sequence, 64)})


def _compiled(name: str, engine: Engine) -> Program:
    dims = Dimensions({"batch": 3, "sequence": 17})
    backend = engine.backend
    assert isinstance(backend, CpuBackend)
    graph = _graph(GRAPHS[name], dims["batch"], dims["sequence"])
    return build_program(graph, backend.toolchain, threads=2)


@pytest.mark.parametrize("name", GRAPHS)
def test_one_program_serves_all_sizes(name: str, engine: Engine) -> None:
    program = _compiled(name, engine)
    assert program.template is not None
    guards = program.template.dimensions.guards
    assert not [str(guard) for guard in guards if guard.relation is Relation.EQ]
    dice = np.random.default_rng(0)
    for batch, sequence in _SIZES:
        given = dice.standard_normal((batch, sequence, 64), np.float32)
        sizes = program.template.sizes_of([given.shape])
        assert sizes == {"batch": batch, "sequence": sequence}
        made = engine.backend.instance(program.at(sizes)).run([given])
        expected = _graph(GRAPHS[name], batch, sequence).run({"x": given})
        for got, want in zip(made, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_a_call_that_the_guards_do_not_allow_is_not_served(engine: Engine) -> None:
    program = _compiled("elementwise", engine)
    template = program.template
    assert template is not None
    assert template.sizes_of([(4, 9, 64)]) == {"batch": 4, "sequence": 9}
    assert template.sizes_of([(4, 1, 64)]) is None
    assert template.sizes_of([(4, 9, 63)]) is None
    assert template.sizes_of([(4, 9)]) is None
    assert template.sizes_of([None]) is None
    assert template.dimensions["batch"] < 5
    assert template.sizes_of([(5, 9, 64)]) is None


def test_what_explains_a_program_has_the_numbers_of_its_sizes(engine: Engine) -> None:
    program = _compiled("product", engine).at({"batch": 2, "sequence": 10})
    assert program.sizes == {"batch": 2, "sequence": 10}
    kinds = [kind for node in program.graph for kind in node.outputs]
    assert TensorType(kinds[0].dtype, (2, 10, 64)) in kinds  # type: ignore[union-attr]
    for kind in kinds:
        assert isinstance(kind, TensorType)
        assert all(type(dim) is int for dim in kind.shape or ())
    assert all(
        type(number) is int
        for step in program.steps
        for member in step.members
        for number in (member.flops, member.bytes)
    )
    assert program.memory.arena_bytes == program.plan.arena_bytes > 2 * 10 * 40 * 4 - 1


def test_memory_grows_with_the_sizes(engine: Engine) -> None:
    program = _compiled("products of two that are open", engine)
    small, large = (program.at({"batch": 2, "sequence": size}) for size in (8, 64))
    assert small.plan.arena_bytes < large.plan.arena_bytes
    assert small.weights is large.weights
    assert small.library is large.library
