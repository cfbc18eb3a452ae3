"""Concatenations and splits that are not carried out: what is left to do, where values lie, and
that results stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.models import assert_same, parsed
from whence.api import compile_model, prepare
from whence.attribution import profile_executable
from whence.backends.cpu import generator as generator_module
from whence.backends.cpu.backend import cpu_backend
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.instance import Instance
from whence.building.aligned_memory import ALIGNMENT
from whence.building.allocate import allocate
from whence.building.export import export
from whence.building.in_place_concat import concat_in_place
from whence.building.memory_layout import Aliasing, Location, MemoryLayout, Region
from whence.building.program import Program
from whence.building.reference_fallback import with_reference_steps
from whence.codegen.emit import Emitted
from whence.fusion import find_groups, fuse
from whence.fusion.contiguous import input_offsets
from whence.graph import Graph, Node, Ref
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.interpreter import evaluate_node
from whence.kernels.ir import Kernel
from whence.kernels.lower import Step, lower
from whence.kernels.tile import AVX512
from whence.runtime.engine import Engine
from whence.types import DType, TensorType


def _shared(graph: Graph) -> tuple[list[Step], Aliasing]:
    return concat_in_place(graph, lower(fuse(graph, find_groups(graph)), AVX512))


def _laid_out(graph: Graph) -> tuple[list[Step], MemoryLayout]:
    left, sharing = _shared(graph)
    steps = with_reference_steps(graph, left, {})
    return [step for step in steps if not step.is_view], allocate(graph, steps, sharing)


def _ops(graph: Graph) -> list[str]:
    """What is left to do."""
    return ["+".join(node.op for node in step.members) for step in _shared(graph)[0]]


def _check(graph: Graph, engine: Engine, inputs: Sequence[np.ndarray]) -> Program:
    expected = graph.run(list(inputs))
    program = build_program(graph.copy(), cpu_backend(engine).toolchain)
    for _ in range(2):
        assert_same(Instance(program, cpu_backend(engine)).run(list(inputs), None), expected)
    return program


def _rows(count: int) -> np.ndarray:
    return np.linspace(-2, 2, count * 16, dtype=np.float32).reshape(count, 16)


def _softmax(build: GraphBuilder, x: Symbol) -> Symbol:
    """Something that stores its result, whatever comes after it."""
    return build.op("Softmax", x, axis=-1)


# ---- concatenations ----


def test_what_is_put_together_is_made_in_place(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [3, 16])
    y = build.op(
        "Concat", _softmax(build, x), _softmax(build, build.op("Neg", x)), axis=0, name="join"
    )
    build.output("y", _softmax(build, y))
    graph = build.finish()
    assert "Concat" not in _ops(graph)
    _, layout = _laid_out(graph)
    (join,) = [node for node in graph if node.op == "Concat"]
    first, second = (layout.places[ref] for ref in join.inputs if ref is not None)
    assert first == layout.places[join.ref()]
    assert second.offset == first.offset + 3 * 64
    _check(graph, engine, [_rows(3)])


def test_only_what_cannot_be_made_in_place_is_copied(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    given, twice = _softmax(build, x), _softmax(build, build.op("Neg", x))
    table = build.const(_rows(1))
    y = build.op(
        "Concat", x, given, twice, table, twice, _softmax(build, build.op("Abs", x)), axis=0
    )
    build.output("y", _softmax(build, y))
    build.output("given", given)
    graph = build.finish()
    (rest,) = [step for step in _shared(graph)[0] if step.members[0].op == "Concat"]
    assert rest.kernel is not None
    assert [graph[ref.node].op for ref in rest.inputs] == ["Input", "Softmax", "Const", "Softmax"]
    assert [member.bytes for member in rest.kernel.members] == [2 * (2 + 2 + 1 + 2) * 64]
    _check(graph, engine, [_rows(2)])


def test_an_output_is_put_together_where_the_caller_gets_it(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    a, b = _softmax(build, x), _softmax(build, build.op("Neg", x))
    build.output("y", build.op("Concat", a, b, axis=0))
    build.output("z", _softmax(build, a))
    graph = build.finish()
    running, layout = _laid_out(graph)
    places = [
        layout.places[ref]
        for step in running
        for ref in step.outputs
        if graph[ref.node].op == "Softmax"
    ]
    assert Location(Region.OUTPUT, 0, 0) in places
    assert Location(Region.OUTPUT, 0, 128) in places
    assert _check(graph, engine, [_rows(2)]).plan.is_native


def test_a_concatenation_that_grows_lies_in_its_end(engine: Engine) -> None:
    # Both ways to write a dense block: each concatenation extends the one before, or starts anew
    # from all parts.
    for nested in (True, False):
        build = GraphBuilder()
        parts = [_softmax(build, build.input("x", DType.F32, [2, 16]))]
        whole = parts[0]
        for _ in range(4):
            parts.append(_softmax(build, build.op("ReduceMax", whole, build.const(np.array([0])))))
            whole = build.op("Concat", *([whole, parts[-1]] if nested else parts), axis=0)
        build.output("y", _softmax(build, whole))
        graph = build.finish()
        assert "Concat" not in _ops(graph)
        running, layout = _laid_out(graph)
        last = [node for node in graph if node.op == "Concat"][-1]
        base = layout.places[last.ref()].offset
        assert [layout.places[ref].offset - base for ref in _parts(graph, last)] == [
            0,
            128,
            192,
            256,
            320,
        ]
        copies = allocate(
            graph, with_reference_steps(graph, lower(fuse(graph, find_groups(graph)), AVX512), {})
        )
        assert layout.memory.arena_bytes < copies.memory.arena_bytes
        assert len(running) == sum(node.op in ("Softmax", "ReduceMax") for node in graph)
        _check(graph, engine, [_rows(2)])


def _parts(graph: Graph, node: Node) -> list[Ref]:
    """What a concatenation of concatenations puts together, in order."""
    return [
        part
        for ref in node.inputs
        if ref is not None
        for part in (_parts(graph, graph[ref.node]) if graph[ref.node].op == "Concat" else [ref])
    ]


def test_a_dense_network_needs_no_more_memory(engine: Engine) -> None:
    build = GraphBuilder()
    rng = np.random.default_rng(0)
    x = build.op(
        "Conv",
        build.input("x", DType.F32, [1, 3, 6, 6]),
        build.const(rng.standard_normal((32, 3, 1, 1), np.float32)),
    )
    for _ in range(5):
        channels = 32
        whole = x
        for _ in range(3):
            weights = build.const(rng.standard_normal((16, channels, 3, 3), np.float32) / channels)
            whole = build.op(
                "Concat",
                whole,
                build.op("Conv", build.op("Relu", whole), weights, pads=(1, 1, 1, 1)),
                axis=1,
            )
            channels += 16
        x = build.op(
            "Conv",
            whole,
            build.const(rng.standard_normal((32, channels, 1, 1), np.float32) / channels),
        )
    build.output("y", x)
    graph = prepare(build.finish())
    running, layout = _laid_out(graph)
    assert not any(node.op == "Concat" for step in running for node in step.members)
    steps = with_reference_steps(graph, lower(fuse(graph, find_groups(graph)), AVX512), {})
    assert layout.memory.arena_bytes <= allocate(graph, steps).memory.arena_bytes
    _check(graph, engine, [rng.standard_normal((1, 3, 6, 6), np.float32)])


@pytest.mark.parametrize(
    ("shape", "axis"),
    [([2, 16], 1), ([3, 5], 0), ([2, 1, 16], 1)],
    ids=["not stretches", "not at a line", "in pieces"],
)
def test_other_concatenations_copy(engine: Engine, shape: list[int], axis: int) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, shape)
    build.output(
        "y",
        _softmax(
            build,
            build.op("Concat", _softmax(build, x), _softmax(build, build.op("Neg", x)), axis=axis),
        ),
    )
    graph = build.finish()
    assert "Concat" in _ops(graph)
    _check(
        graph, engine, [np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)]
    )


@pytest.mark.parametrize("shape", [(0, 16), (1, 0)])
def test_parts_without_elements(engine: Engine, shape: tuple[int, int]) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, shape)
    empty = build.op("Exp", build.op("Exp", x))
    build.output("y", build.op("Concat", empty, empty, axis=0))
    build.output(
        "z",
        build.op(
            "Concat",
            empty,
            _softmax(build, build.input("z", DType.F32, [2, shape[1]])),
            empty,
            axis=0,
        ),
    )
    _check(
        build.finish(), engine, [np.zeros(shape, np.float32), np.ones((2, shape[1]), np.float32)]
    )


@pytest.mark.parametrize("dtype", [DType.F64, DType.I64, DType.U8, DType.BOOL, DType.F16])
def test_elements_of_every_size(engine: Engine, dtype: DType) -> None:
    build = GraphBuilder()
    x = build.input("x", dtype, [1, 64])
    turned = build.op(
        "Reshape",
        build.op("Transpose", build.op("Reshape", x, build.const(np.array([8, 8])))),
        build.const(np.array([1, 64])),
    )
    build.output("y", build.op("Concat", x, turned, axis=0))
    build.output(
        "again", build.op("Concat", turned, build.const(np.ones((1, 64), dtype.numpy)), axis=0)
    )
    _check(build.finish(), engine, [np.arange(64).reshape(1, 64).astype(dtype.numpy)])


# ---- splits ----


def test_splits_and_slices_are_views(engine: Engine) -> None:
    build = GraphBuilder()
    x = _softmax(build, build.input("x", DType.F32, [1, 4, 16]))
    halves = build.op("Split", x, axis=1, num_outputs=2, n_outputs=2)
    last = build.op("Slice", x, *(build.const(np.array([number])) for number in (-1, 99, 1)))
    for number, part in enumerate((halves, halves[1], last)):
        build.output(f"y{number}", _softmax(build, part))
    graph = build.finish()
    assert _ops(graph) == ["Softmax"] * 4
    _check(graph, engine, [_rows(4)[None]])


def test_views_of_what_the_caller_gives_and_gets(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    mine = build.op("Split", x, axis=0, num_outputs=2, n_outputs=2)
    build.output("first", _softmax(build, mine))
    build.output("second", build.op("Concat", mine[1], mine, axis=0))
    whole = _softmax(build, x)
    theirs = build.op("Split", whole, axis=0, num_outputs=2, n_outputs=2)
    build.output("whole", whole)
    build.output("third", theirs[1])
    build.output("fourth", _softmax(build, theirs))
    program = _check(build.finish(), engine, [_rows(2)])
    assert program.plan.is_native


def test_the_halves_of_a_value_are_put_back_with_others(engine: Engine) -> None:
    # As in detection networks: both halves, and what was computed from the second, go on together.
    build = GraphBuilder()
    x = _softmax(build, build.input("x", DType.F32, [4, 16]))
    halves = build.op("Split", x, axis=0, num_outputs=2, n_outputs=2)
    deep = _softmax(build, build.op("Neg", halves[1]))
    build.output("y", _softmax(build, build.op("Concat", halves, halves[1], deep, axis=0)))
    build.output("z", _softmax(build, build.op("Concat", halves[1], deep, axis=0)))
    graph = build.finish()
    (rest,) = [step for step in _shared(graph)[0] if step.members[0].op in ("Concat", "Split")]
    assert rest.members[0].name == "Concat_7"
    _check(graph, engine, [_rows(4)])


# ---- by reference, nested, exported, profiled ----


def test_reference_steps_write_in_place(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    late = build.op("Reshape", x, build.input("shape", DType.I64, [2]))
    fixed = build.op("Reshape", late, build.const(np.array([2, 16])))
    y = build.op("Concat", _softmax(build, x), fixed, x, axis=0)
    build.output("y", build.op("Softmax", y, axis=0))
    build.output("z", y)
    graph = build.finish()
    assert not _check(graph, engine, [_rows(2), np.array([4, 8])]).plan.is_native


def test_in_the_body_of_a_loop(engine: Engine) -> None:
    graph = parsed("""looped (float[1,16] x) => (float[2,16] y) {
            n = Constant<value = int64 {3}>()  yes = Constant<value = bool {1}>()  x2 = Concat<axis = 0>(x, x)
            y = Loop(n, yes, x2) <body = step (int64 i, bool c, float[2,16] v) => (bool c2, float[2,16] w) {
                c2 = Identity(c)  a, b = Split<axis = 0, num_outputs = 2>(v)  s = Softmax(b)  w = Concat<axis = 0>(s, a)
            }>
        }""")
    (expected,) = graph.run([_rows(1)])
    np.testing.assert_allclose(compile_model(graph, engine=engine)(x=_rows(1)), expected, rtol=1e-5)


def _model() -> Graph:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    joined = build.op(
        "Concat", _softmax(build, x), _softmax(build, build.op("Neg", x)), axis=0, name="join"
    )
    build.output("y", _softmax(build, joined))
    build.output(
        "z",
        _softmax(
            build, build.op("Concat", x, _softmax(build, build.op("Abs", x)), axis=0, name="half")
        ),
    )
    return build.finish()


def test_the_profile_says_so(engine: Engine) -> None:
    profile = profile_executable(compile_model(_model(), engine=engine), runs=3)
    rows = {row.name: row for row in profile.sources}
    assert rows["join"].became == "in place: its inputs are written where its output lies"
    assert (rows["join"].time_ns, rows["join"].kernels) == (0, ())
    assert len(rows["half"].kernels) == 1
    assert rows["half"].fate == rows["join"].fate == "live"


def test_the_export_is_of_the_same_plan(engine: Engine, tmp_path: Path) -> None:
    program = build_program(_model(), cpu_backend(engine).toolchain, load=False)
    export(program, cpu_backend(engine).toolchain, tmp_path, "joined")
    text = (tmp_path / "src" / "joined.c").read_text()
    assert '"fuse_concat_rest: half"' in text
    assert "join" not in text.replace("joined", "")


# ---- any graph ----


@st.composite
def _graphs(draw: st.DrawFn) -> Graph:
    """Rows of one cache line, computed, put together and taken apart in any order."""
    build = GraphBuilder()
    values = [
        (build.input(name, DType.F32, [rows, 16]), rows)
        for name, rows in (("x", 1), ("y", 2), ("z", 4))
    ]
    values.append((build.const(_rows(2)), 2))
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
                values.append((_softmax(build, value), rows))
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
                    tail = _softmax(build, parts[1])
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
        self._blocks = {(Region.ARENA, 0): np.full(layout.memory.arena_bytes, 255, np.uint8)}
        for index, value in enumerate(inputs):
            self._blocks[Region.INPUT, index] = value.reshape(-1).view(np.uint8)
        for index, node in enumerate(graph.outputs):
            assert node.inputs[0] is not None
            self._blocks[Region.OUTPUT, index] = np.full(
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
    inputs = [_rows(rows) for rows in (1, 2, 4)]
    running, layout = _laid_out(graph)
    memory = _Memory(graph, layout, inputs)
    for step in running:
        memory.run(step)
    for node, expected in zip(graph.outputs, graph.run(list(inputs)), strict=True):
        assert node.inputs[0] is not None
        np.testing.assert_allclose(memory.array(node.inputs[0]), expected, rtol=1e-5, atol=1e-6)


def _refuse(kernels: Sequence[Kernel], origins: Sequence[Sequence[str]]) -> Emitted:
    return Emitted(("",) * len(kernels), (), dict.fromkeys(range(len(kernels)), "by request"))


@given(_graphs())
@settings(max_examples=60)
def test_any_graph_by_reference(engine: Engine, graph: Graph) -> None:
    """Even a concatenation that would copy only a part is then evaluated as a whole, over what is
    there already.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator_module, "emit", _refuse)
        _check(graph, engine, [_rows(rows) for rows in (1, 2, 4)])


@given(_graphs(), st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_graph_natively(engine: Engine, graph: Graph, prepared: bool) -> None:
    inputs = [_rows(rows) for rows in (1, 2, 4)]
    expected = graph.run(list(inputs))
    program = build_program(
        prepare(graph.copy()) if prepared else graph.copy(), cpu_backend(engine).toolchain
    )
    assert_same(Instance(program, cpu_backend(engine)).run(list(inputs), None), expected)
