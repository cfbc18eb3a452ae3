"""Concatenations and splits that are not carried out: what is left to do, where values lie, and
that results stay what they are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.building.concatenations import check, laid_out, numbered_rows, ops, shared, softmax
from tests.cpu_backend import cpu_backend
from tests.runtime.models import parsed
from whence.api import compile_model, prepare
from whence.attribution import profile_executable
from whence.backends.cpu.generator import build_program
from whence.building.allocate import allocate
from whence.building.export import export
from whence.building.location import Location, MemoryRegion
from whence.building.reference_fallback import with_reference_steps
from whence.fusion import find_groups, fuse
from whence.graph import Graph, Node, Ref
from whence.graph.builder import GraphBuilder
from whence.kernels.lower import lower
from whence.kernels.tile import AVX512
from whence.runtime.engine import Engine
from whence.types import DType

# ---- concatenations ----


def test_what_is_put_together_is_made_in_place(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [3, 16])
    y = build.op(
        "Concat", softmax(build, x), softmax(build, build.op("Neg", x)), axis=0, name="join"
    )
    build.output("y", softmax(build, y))
    graph = build.finish()
    assert "Concat" not in ops(graph)
    _, layout = laid_out(graph)
    (join,) = [node for node in graph if node.op == "Concat"]
    first, second = (layout.places[ref] for ref in join.inputs if ref is not None)
    assert first == layout.places[join.ref()]
    assert second.offset == first.offset + 3 * 64
    check(graph, engine, [numbered_rows(3)])


def test_only_what_cannot_be_made_in_place_is_copied(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    given, twice = softmax(build, x), softmax(build, build.op("Neg", x))
    table = build.const(numbered_rows(1))
    y = build.op(
        "Concat", x, given, twice, table, twice, softmax(build, build.op("Abs", x)), axis=0
    )
    build.output("y", softmax(build, y))
    build.output("given", given)
    graph = build.finish()
    (rest,) = [step for step in shared(graph)[0] if step.members[0].op == "Concat"]
    assert rest.kernel is not None
    assert [graph[ref.node].op for ref in rest.inputs] == ["Input", "Softmax", "Const", "Softmax"]
    assert [member.bytes for member in rest.kernel.members] == [2 * (2 + 2 + 1 + 2) * 64]
    check(graph, engine, [numbered_rows(2)])


def test_an_output_is_put_together_where_the_caller_gets_it(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    a, b = softmax(build, x), softmax(build, build.op("Neg", x))
    build.output("y", build.op("Concat", a, b, axis=0))
    build.output("z", softmax(build, a))
    graph = build.finish()
    running, layout = laid_out(graph)
    places = [
        layout.places[ref]
        for step in running
        for ref in step.outputs
        if graph[ref.node].op == "Softmax"
    ]
    assert Location(MemoryRegion.OUTPUT, 0, 0) in places
    assert Location(MemoryRegion.OUTPUT, 0, 128) in places
    assert check(graph, engine, [numbered_rows(2)]).plan.is_native


def test_a_concatenation_that_grows_lies_in_its_end(engine: Engine) -> None:
    # Both ways to write a dense block: each concatenation extends the one before, or starts anew
    # from all parts.
    for nested in (True, False):
        build = GraphBuilder()
        parts = [softmax(build, build.input("x", DType.F32, [2, 16]))]
        whole = parts[0]
        for _ in range(4):
            parts.append(softmax(build, build.op("ReduceMax", whole, build.const(np.array([0])))))
            whole = build.op("Concat", *([whole, parts[-1]] if nested else parts), axis=0)
        build.output("y", softmax(build, whole))
        graph = build.finish()
        assert "Concat" not in ops(graph)
        running, layout = laid_out(graph)
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
        check(graph, engine, [numbered_rows(2)])


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
    running, layout = laid_out(graph)
    assert not any(node.op == "Concat" for step in running for node in step.members)
    steps = with_reference_steps(graph, lower(fuse(graph, find_groups(graph)), AVX512), {})
    assert layout.memory.arena_bytes <= allocate(graph, steps).memory.arena_bytes
    check(graph, engine, [rng.standard_normal((1, 3, 6, 6), np.float32)])


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
        softmax(
            build,
            build.op("Concat", softmax(build, x), softmax(build, build.op("Neg", x)), axis=axis),
        ),
    )
    graph = build.finish()
    assert "Concat" in ops(graph)
    check(graph, engine, [np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)])


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
            softmax(build, build.input("z", DType.F32, [2, shape[1]])),
            empty,
            axis=0,
        ),
    )
    check(build.finish(), engine, [np.zeros(shape, np.float32), np.ones((2, shape[1]), np.float32)])


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
    check(build.finish(), engine, [np.arange(64).reshape(1, 64).astype(dtype.numpy)])


# ---- splits ----


def test_splits_and_slices_are_views(engine: Engine) -> None:
    build = GraphBuilder()
    x = softmax(build, build.input("x", DType.F32, [1, 4, 16]))
    halves = build.op("Split", x, axis=1, num_outputs=2, n_outputs=2)
    last = build.op("Slice", x, *(build.const(np.array([number])) for number in (-1, 99, 1)))
    for number, part in enumerate((halves, halves[1], last)):
        build.output(f"y{number}", softmax(build, part))
    graph = build.finish()
    assert ops(graph) == ["Softmax"] * 4
    check(graph, engine, [numbered_rows(4)[None]])


def test_a_slice_whose_step_only_the_call_knows_is_no_view(engine: Engine) -> None:
    build = GraphBuilder()
    x, unit = build.input("x", DType.F32, ["n", 64]), build.const(np.eye(64, dtype=np.float32))
    whole, zero = build.op("MatMul", x, unit), build.const(np.array([0]))
    quarter = build.op("Div", build.op("Shape", x, end=1), build.const(np.array([4])))
    rows = build.op("Slice", whole, zero, build.const(np.array([1 << 40])), zero, quarter)
    build.output("y", build.op("MatMul", rows, unit))
    build.output("z", build.op("MatMul", whole, unit))
    model = compile_model(build.finish(), engine=engine)
    for size in (8, 16):
        data = np.arange(size * 64, dtype=np.float32).reshape(size, 64)
        np.testing.assert_array_equal(model(data)[0], data[:: size // 4])


def test_views_of_what_the_caller_gives_and_gets(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    mine = build.op("Split", x, axis=0, num_outputs=2, n_outputs=2)
    build.output("first", softmax(build, mine))
    build.output("second", build.op("Concat", mine[1], mine, axis=0))
    whole = softmax(build, x)
    theirs = build.op("Split", whole, axis=0, num_outputs=2, n_outputs=2)
    build.output("whole", whole)
    build.output("third", theirs[1])
    build.output("fourth", softmax(build, theirs))
    program = check(build.finish(), engine, [numbered_rows(2)])
    assert program.plan.is_native


def test_the_halves_of_a_value_are_put_back_with_others(engine: Engine) -> None:
    # As in detection networks: both halves, and what was computed from the second, go on together.
    build = GraphBuilder()
    x = softmax(build, build.input("x", DType.F32, [4, 16]))
    halves = build.op("Split", x, axis=0, num_outputs=2, n_outputs=2)
    deep = softmax(build, build.op("Neg", halves[1]))
    build.output("y", softmax(build, build.op("Concat", halves, halves[1], deep, axis=0)))
    build.output("z", softmax(build, build.op("Concat", halves[1], deep, axis=0)))
    graph = build.finish()
    (rest,) = [step for step in shared(graph)[0] if step.members[0].op in ("Concat", "Split")]
    assert rest.members[0].name == "Concat_7"
    check(graph, engine, [numbered_rows(4)])


# ---- by reference, nested, exported, profiled ----


def test_reference_steps_write_in_place(engine: Engine) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    late = build.op("Reshape", x, build.input("shape", DType.I64, [2]))
    fixed = build.op("Reshape", late, build.const(np.array([2, 16])))
    y = build.op("Concat", softmax(build, x), fixed, x, axis=0)
    build.output("y", build.op("Softmax", y, axis=0))
    build.output("z", y)
    graph = build.finish()
    assert not check(graph, engine, [numbered_rows(2), np.array([4, 8])]).plan.is_native


def test_in_the_body_of_a_loop(engine: Engine) -> None:
    graph = parsed("""looped (float[1,16] x) => (float[2,16] y) {
            n = Constant<value = int64 {3}>()  yes = Constant<value = bool {1}>()  x2 = Concat<axis = 0>(x, x)
            y = Loop(n, yes, x2) <body = step (int64 i, bool c, float[2,16] v) => (bool c2, float[2,16] w) {
                c2 = Identity(c)  a, b = Split<axis = 0, num_outputs = 2>(v)  s = Softmax(b)  w = Concat<axis = 0>(s, a)
            }>
        }""")
    (expected,) = graph.run([numbered_rows(1)])
    np.testing.assert_allclose(
        compile_model(graph, engine=engine)(x=numbered_rows(1)), expected, rtol=1e-5
    )


def _model() -> Graph:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 16])
    joined = build.op(
        "Concat", softmax(build, x), softmax(build, build.op("Neg", x)), axis=0, name="join"
    )
    build.output("y", softmax(build, joined))
    build.output(
        "z",
        softmax(
            build, build.op("Concat", x, softmax(build, build.op("Abs", x)), axis=0, name="half")
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
