"""Where values lie, and that no run reads what is not there any more: views, outputs of every sort,
sizes known late, nested graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cpu_backend import cpu_backend
from tests.fusion.random_graphs import graphs
from tests.runtime.models import X, assert_same, compiled, parsed
from whence.api import prepare
from whence.backends.cpu import generator as generator_module
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.instance import Instance
from whence.building.aligned_memory import aligned
from whence.building.program import Program, Segment
from whence.codegen.emit import Emitted
from whence.errors import ModelError
from whence.fusion import ALGORITHMS
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.kernels.ir import Kernel
from whence.runtime.engine import Engine
from whence.types import DType, TensorType

M = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def _check(
    graph: Graph, engine: Engine, inputs: Sequence[object], *, prepared: bool = True
) -> Program:
    """The graph computes by program what it computes by the interpreter; `prepared` says whether
    the passes may have a go at it first.
    """
    expected = graph.run(list(inputs))
    program = build_program(
        prepare(graph.copy()) if prepared else graph.copy(), cpu_backend(engine).toolchain
    )
    for _ in range(2):
        assert_same(Instance(program, cpu_backend(engine)).run(list(inputs), None), expected)
    return program


# ---- views and outputs ----

_CASES: dict[str, Callable[[GraphBuilder, Symbol], None]] = {}


def _case(make: Callable[[GraphBuilder, Symbol], None]) -> Callable[[GraphBuilder, Symbol], None]:
    _CASES[make.__name__] = make
    return make


def _flat(build: GraphBuilder, value: Symbol) -> Symbol:
    return build.op("Reshape", value, build.const(np.array([12])))


@_case
def an_output_that_is_an_input(build: GraphBuilder, x: Symbol) -> None:
    build.output("y", x)


@_case
def an_output_that_is_a_view_of_an_input(build: GraphBuilder, x: Symbol) -> None:
    build.output("y", _flat(build, x))
    build.output("z", build.op("Relu", x))


@_case
def a_view_of_an_input_that_is_read_and_given_out(build: GraphBuilder, x: Symbol) -> None:
    flat = _flat(build, x)
    build.output("flat", flat)
    build.output("y", build.op("Neg", flat))
    build.output("x again", x)


@_case
def one_value_as_two_outputs(build: GraphBuilder, x: Symbol) -> None:
    y = build.op("Relu", x)
    build.output("y", y)
    build.output("y again", y)


@_case
def a_value_and_its_view_as_outputs(build: GraphBuilder, x: Symbol) -> None:
    y = build.op("Relu", x)
    build.output("flat", _flat(build, y))
    build.output("y", y)
    build.output("neg", build.op("Neg", y))


@_case
def a_view_of_a_view(build: GraphBuilder, x: Symbol) -> None:
    y = build.op("Exp", x)
    flat = _flat(build, y)
    deep = build.op(
        "Unsqueeze",
        build.op("Reshape", flat, build.const(np.array([2, 6]))),
        build.const(np.array([0])),
    )
    build.output("deep", deep)
    build.output("y", build.op("Transpose", deep, perm=(2, 0, 1)))


@_case
def a_view_outlives_what_it_views(build: GraphBuilder, x: Symbol) -> None:
    # The arena must not be reused while only a view of the first value is still read.
    view = _flat(build, build.op("Transpose", x, perm=(1, 0)))
    value = x
    for _ in range(5):
        value = build.op(
            "Transpose",
            build.op("MatMul", value, build.const(np.eye(4, dtype=np.float32) * 2)),
            perm=(1, 0),
        )
        value = build.op("Transpose", value, perm=(1, 0))
    build.output("y", build.op("Add", view, _flat(build, value)))


@_case
def a_constant_output(build: GraphBuilder, x: Symbol) -> None:
    build.output("c", build.const(np.array([[1, 2, 3]], np.int32)))
    build.output("y", build.op("Relu", x))


@_case
def a_view_of_a_constant(build: GraphBuilder, x: Symbol) -> None:
    flat = _flat(build, build.const(np.arange(12, dtype=np.float32).reshape(4, 3)))
    build.output("flat", flat)
    build.output("y", build.op("Add", flat, _flat(build, x)))


@_case
def a_constant_as_two_outputs(build: GraphBuilder, x: Symbol) -> None:
    shared = build.const(np.float64(2.5))
    build.output("c", shared)
    build.output("c again", shared)
    build.output("y", x)


@_case
def a_scalar(build: GraphBuilder, x: Symbol) -> None:
    total = build.op("ReduceSum", x, keepdims=0)
    build.output("total", total)
    build.output("half", build.op("Mul", total, build.const(np.float32(0.5))))


@_case
def an_unused_input(build: GraphBuilder, x: Symbol) -> None:
    build.input("spare", DType.F32, [3, 4])
    build.output("y", build.op("Neg", x))


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("name", _CASES)
def test_every_sort_of_output(engine: Engine, name: str, prepared: bool) -> None:
    build = GraphBuilder(name)
    _CASES[name](build, build.input("x", DType.F32, [3, 4]))
    graph = build.finish()
    program = _check(graph, engine, [M] * len(graph.inputs), prepared=prepared)
    assert all(step.symbol for step in program.steps)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)])
def test_tensors_without_elements(engine: Engine, shape: tuple[int, ...]) -> None:
    build = GraphBuilder("empty")
    x = build.input("x", DType.F32, shape)
    y = build.op("Relu", x)
    build.output("y", y)
    build.output("flat", build.op("Reshape", y, build.const(np.array([0])), allowzero=1))
    build.output("sum", build.op("ReduceSum", y, keepdims=0))
    build.output("wide", build.op("Concat", x, x, axis=0))
    build.output("c", build.const(np.zeros((0, 2), np.int64)))
    _check(build.finish(), engine, [np.zeros(shape, np.float32)])


@pytest.mark.parametrize(
    "dtype", [DType.F32, DType.F64, DType.I64, DType.BOOL, DType.U8, DType.F16]
)
def test_scalars_of_every_size(engine: Engine, dtype: DType) -> None:
    build = GraphBuilder("scalar")
    x = build.input("x", dtype, [])
    build.output("same", x)
    build.output("list", build.op("Unsqueeze", x, build.const(np.array([0]))))
    build.output("float", build.op("Cast", x, to=int(DType.F32)))
    _check(build.finish(), engine, [np.array(1, dtype.numpy)])


@pytest.mark.parametrize(
    "dtype",
    [
        DType.BF16,
        DType.F8E4M3FN,
        DType.F8E5M2,
        DType.I4,
        DType.U4,
        DType.U2,
        DType.F4E2M1,
        DType.C64,
        DType.STRING,
    ],
)
def test_elements_that_native_code_has_no_words_for(engine: Engine, dtype: DType) -> None:
    build = GraphBuilder("odd")
    x = build.input("x", dtype, [2, 2])
    build.output("same", x)
    build.output("flat", build.op("Reshape", x, build.const(np.array([4]))))
    build.output(
        "picked",
        build.op("Gather", build.op("Flatten", x, axis=1), build.const(np.array([1, 0, 1]))),
    )
    value = (
        np.array([["a", "b"], ["", "d" * 100]], object)
        if dtype is DType.STRING
        else np.array([[0, 1], [1, 0]]).astype(dtype.numpy)
    )
    _check(build.finish(), engine, [value])


# ---- sizes known only at run time ----


def test_a_dynamic_value_between_native_steps(engine: Engine) -> None:
    build = GraphBuilder("late")
    x = build.input("x", DType.F32, [3, 4])
    y = build.op("Relu", x)
    where = build.op("NonZero", y)
    build.output("where", where)
    build.output("found", build.op("GatherND", y, build.op("Transpose", where, perm=(1, 0))))
    build.output(
        "count", build.op("ReduceSum", build.op("Cast", where, to=int(DType.I64)), keepdims=0)
    )
    build.output("y", build.op("Neg", y))
    program = _check(build.finish(), engine, [M])
    assert {type(action) is Segment for action in program.actions} == {True, False}


def test_a_view_of_a_dynamic_value_is_read_natively(engine: Engine) -> None:
    # The file says what the size will be, so what follows is native; what comes before is not.
    build = GraphBuilder("fixed again")
    x = build.input("x", DType.F32, [3, 4])
    shape = build.input("shape", DType.I64, [1])
    late = build.op("Reshape", x, shape)
    back = build.op("Reshape", late, build.const(np.array([3, 4])))
    build.output("y", build.op("Neg", build.op("Unsqueeze", back, build.const(np.array([0])))))
    build.output("flat", build.op("Reshape", back, build.const(np.array([12]))))
    _check(build.finish(), engine, [M, np.array([12])], prepared=False)


def test_a_dynamic_value_does_not_change_when_the_arena_is_reused(engine: Engine) -> None:
    # Slicing by reference hands out a view of the arena, which later steps overwrite.
    build = GraphBuilder("kept")
    x = build.input("x", DType.F32, [3, 4])
    starts, ends = build.input("starts", DType.I64, [1]), build.input("ends", DType.I64, [1])
    first = build.op("Exp", x)
    cut = build.op("Slice", first, starts, ends)
    value = build.op("Transpose", x, perm=(1, 0))
    for _ in range(4):
        value = build.op("Softmax", build.op("Transpose", value, perm=(1, 0)))
    build.output("y", value)
    build.output("cut", cut)
    _check(build.finish(), engine, [M, np.array([1]), np.array([3])], prepared=False)


def test_results_that_are_not_what_the_model_says(engine: Engine) -> None:
    graph = parsed(
        "lying (float[4] x, int64[1] n) => (float[6] y) <float[6] w> { w = Expand(x, n)  y ="
        " Neg(w) }"
    )
    (expand,) = [node for node in graph if node.op == "Expand"]
    graph.set_types(expand, (TensorType(DType.F32, (6,)),))
    program = build_program(graph, cpu_backend(engine).toolchain)
    with pytest.raises(ModelError, match=r"\(Expand\) made f32\[4\] where the model says f32\[6\]"):
        Instance(program, cpu_backend(engine)).run([X, np.array([4])])


# ---- strings, sequences, optionals, nested graphs ----


def test_strings(engine: Engine) -> None:
    graph = parsed(
        """strings (string[2,2] x, float[4] v) => (string[4] flat, bool[2,2] same, string[2,2] x2, float[4] y) {
            flat = Reshape(x, four)  same = Equal(x, x)  x2 = Identity(x)  y = Neg(v)
        }""".replace("flat = ", "four = Constant<value_ints = [4]>()  flat = ")
    )
    _check(graph, engine, [np.array([["a", ""], ["é", "a\0b"]], object), X])


def test_sequences(engine: Engine) -> None:
    graph = parsed(
        """sequences (float[4] x, int64 at) => (seq(float[4]) all, float[4] one, float[?] joined, int64 n) {
            a = Relu(x)  b = Neg(x)  s = SequenceConstruct(a, b)  all = SequenceInsert(s, x, at)
            one = SequenceAt(all, at)  joined = ConcatFromSequence<axis = 0>(all)  n = SequenceLength(all)
        }"""
    )
    _check(graph, engine, [X, np.array(1)])


def test_a_sequence_handed_through_is_a_new_list(engine: Engine) -> None:
    graph = parsed("through (seq(float[4]) s) => (seq(float[4]) t) { t = Identity(s) }")
    given = [X, -X]
    (result,) = [compiled(graph, engine)(given)]
    assert_same([result], [given])
    assert result is not given
    assert not any(np.shares_memory(one, two) for one, two in zip(result, given, strict=True))


def test_optionals(engine: Engine) -> None:
    graph = parsed("maybe (optional(float[4]) x) => (bool there) { there = OptionalHasElement(x) }")
    model = compiled(graph, engine)
    assert model(X) == np.array(True)
    assert model(None) == np.array(False)


@pytest.mark.parametrize("condition", [True, False])
def test_branches(engine: Engine, condition: bool) -> None:
    graph = parsed("""branches (bool c, float[4] x) => (float[4] y, float[?] z) {
            a = Relu(x)
            b, w = If(c) <
                then_branch = then_graph () => (float[4] p, float[?] q) { p = Add(a, x) q = Concat<axis = 0>(a, x) },
                else_branch = else_graph () => (float[4] p, float[?] q) { p = Neg(a) q = Identity(a) }
            >
            y = Mul(b, a)  z = Neg(w)
        }""")
    _check(graph, engine, [np.array(condition), X])


@pytest.mark.parametrize("iterations", [0, 1, 5])
def test_loops(engine: Engine, iterations: int) -> None:
    graph = parsed("""loops (int64 n, float[4] x) => (float[4] y, float[?,4] rows) {
            go = Constant<value_int = 1>()  keep = Cast<to = 9>(go)  start = Exp(x)
            last, rows = Loop(n, keep, start) <
                body = iteration (int64 i, bool k, float[4] v) => (bool k2, float[4] v2, float[4] row) {
                    k2 = Identity(k)  v2 = Add(v, x)  row = Relu(v)
                }
            >
            y = Neg(last)
        }""")
    _check(graph, engine, [np.array(iterations), X])


def test_scans(engine: Engine) -> None:
    graph = parsed(
        """scans (float[2] s, float[5,2] x) => (float[2] last, float[5,2] sums) {
            a = Neg(x)
            last, sums = Scan<num_scan_inputs = 1>(s, a) <
                body = row (float[2] t, float[2] v) => (float[2] t2, float[2] o) { t2 = Add(t, v)  o = Identity(t2) }
            >
        }""".replace("Scan<num_scan_inputs = 1>(s, a) <", "Scan(s, a) <num_scan_inputs = 1, ")
    )
    _check(graph, engine, [np.zeros(2, np.float32), np.arange(10, dtype=np.float32).reshape(5, 2)])


# ---- everything at once ----


def _refuse(kernels: Sequence[Kernel], *_: object) -> Emitted:
    return Emitted(("",) * len(kernels), (), dict.fromkeys(range(len(kernels)), "by request"))


@settings(max_examples=60)
@given(graphs(max_operators=16), st.booleans())
def test_any_graph_by_reference(engine: Engine, graph: Graph, prepared: bool) -> None:
    """Views, lifetimes and outputs of random graphs, every step by reference, which takes no
    compiler.
    """
    x, y = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator_module, "emit", _refuse)
        program = _check(graph, engine, [x, y], prepared=prepared)
    assert not any(step.symbol for step in program.steps)
    assert all(step.why_reference for step in program.steps)


@settings(max_examples=8)
@given(graphs(max_operators=30))
def test_any_graph_natively(engine: Engine, graph: Graph) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    program = _check(graph, engine, [x, y])
    sizes = [
        kind.nbytes or 0
        for node in program.graph
        for kind in node.outputs
        if isinstance(kind, TensorType)
    ]
    assert program.memory.arena_bytes <= sum(aligned(size) for size in sizes)


@pytest.mark.parametrize("fusion", ALGORITHMS)
def test_every_way_of_grouping(engine: Engine, fusion: str) -> None:
    build = GraphBuilder("groups")
    x = build.input("x", DType.F32, [3, 4])
    y = build.op(
        "Relu", build.op("MatMul", x, build.const(np.arange(16, dtype=np.float32).reshape(4, 4)))
    )
    total = build.op("ReduceSum", build.op("Exp", build.op("Neg", y)), build.const(np.array([1])))
    build.output("y", build.op("Add", build.op("Tanh", y), total))
    build.output("flat", _flat(build, y))
    graph = build.finish()
    program = build_program(graph, cpu_backend(engine).toolchain, fusion=fusion)
    assert_same(Instance(program, cpu_backend(engine)).run([M]), graph.run([M]))
