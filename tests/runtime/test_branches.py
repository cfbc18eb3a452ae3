"""Conditions are decided in native code: each branch gives what the interpreter gives, and the one
that is not taken does not run.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.cpu_backend import cpu_backend
from tests.runtime.models import assert_same, outputs, parsed
from whence.api import compile_model, prepare
from whence.attribution.measure import profile_executable
from whence.backends.cpu.generator import build_program
from whence.building.export import export
from whence.building.program import Program, Segment
from whence.errors import ModelError, WhenceError
from whence.graph import Graph
from whence.runtime.engine import Engine

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4)).astype(np.float32)
W = RNG.standard_normal((4, 4)).astype(np.float32)
WEIGHTS = ", ".join(str(float(value)) for value in W.reshape(-1))

CAPTURES = f"""
captures (float[2,4] x, bool c) => (float[2,4] y, float[2,4] z) <float[4,4] w = {{{WEIGHTS}}}> {{
  a = Exp(x)
  m, k = If (c) <
    then_branch = yes () => (float[2,4] p, float[2,4] q) {{ p = MatMul(a, w) q = Identity(x) }},
    else_branch = no () => (float[2,4] r, float[2,4] s) {{ t = Neg(x) u = MatMul(t, w) r = Softmax(u) s = Add(a, x) }}
  >
  y = Tanh(m)
  z = Identity(k)
}}"""
NESTED = f"""
nested (float[2,4] x, bool c, float t) => (float[2,4] y) <float[4,4] w = {{{WEIGHTS}}}> {{
  y = If (c) <
    then_branch = yes () => (float[2,4] p) {{
      s = ReduceSum<keepdims = 0>(x)
      d = Less(s, t)
      p = If (d) <
        then_branch = a () => (float[2,4] q) {{ q = MatMul(x, w) }},
        else_branch = b () => (float[2,4] r) {{ e = Relu(x) r = MatMul(e, w) }}
      >
    }},
    else_branch = no () => (float[2,4] o) {{ o = Softmax(x) }}
  >
}}"""
LOOP = f"""
loop (float[2,4] x, int64 n) => (float[2,4] y) <float[4,4] w = {{{WEIGHTS}}}, bool yes = {{1}}, int64 two = {{2}}> {{
  y = Loop (n, yes, x) <body = iteration (int64 i, bool c, float[2,4] h) => (bool go, float[2,4] k) {{
    go = Identity(c)
    d = Less(i, two)
    p = If (d) <then_branch = a () => (float[2,4] q) {{ q = MatMul(h, w) }}, else_branch = b () => (float[2,4] r) {{ r = Tanh(h) }}>
    k = Softmax(p)
  }}>
}}"""
FAILING = """
failing (float[4] x, bool c, float[2,3] v) => (float[n] y) {
  y = If (c) <then_branch = a () => (float[4] p) { p = Relu(x) }, else_branch = b () => (float[m] q) { k = Abs(x) q = MatMul(v, k) }>
}"""
ASIDE = """
aside (float[4] x, bool c) => (float[4] y) {
  a = Exp(x)
  b = If (c) <
    then_branch = yes () => (float[4] p) { p = Relu(a) },
    else_branch = no () => (float[4] r) { s = NonZero(a) t = Cast<to = 1>(s) u = ReduceSum<keepdims = 0>(t) r = Add(a, u) }
  >
  y = Neg(b)
}"""
PARTS = f"""
parts (float[1,16] x, bool c) => (float[1,32] y) <float[16,16] w = {{{", ".join(["0.5"] * 256)}}}> {{
  b = If (c) <
    then_branch = yes () => (float[1,32] p) {{ g = MatMul(x, w) h = Softmax(x) p = Concat<axis = 1>(g, h) }},
    else_branch = no () => (float[1,32] r) {{ i = Softplus(x) j = MatMul(i, w) r = Concat<axis = 1>(i, j) }}
  >
  y = Neg(b)
}}"""
# Conditions that are easily lost sight of, and a branch that fails where it runs: Add(q, y) does
# not fit.
_FITS, _FAILS = (
    "s = Constant<value_ints = [6]>() t = Reshape(q, s)",
    "b = Add(q, y) s = Constant<value_ints = [6]>() e = Reshape(b, s)",
)
LATE = f"""
late (float x, float[2,3] q, float[4] y) => (float[6] z, float w) {{
  zero = Constant<value_float = 0.0>()
  c = Greater(x, zero)
  z = If (c) <then_branch = yes () => (float[6] t) {{ {_FITS} }}, else_branch = no () => (float[6] e) {{ {_FAILS} }}>
  f = Exp(q) g = ReduceSum<keepdims = 0>(f) h = Cast<to = 1>(c) w = Mul(h, g)
}}"""
FLAG_AND_VALUE = f"""
flagged (bool c, float p, float[2,3] q, float[4] y) => (float[6] w) {{
  k, z = If (c) <
    then_branch = yes () => (bool i, float[6] t) {{ {_FITS} o = Constant<value_float = 0.0>() i = Greater(p, o) }},
    else_branch = no () => (bool j, float[6] e) {{ {_FAILS} o = Constant<value_float = 0.5>() j = Greater(p, o) }}
  >
  w = If (k) <then_branch = one () => (float[6] m) {{ m = Neg(z) }}, else_branch = two () => (float[6] t) {{ {_FITS} }}>
}}"""
TWINS = f"""
twins (bool c, bool d, float[2,3] q, float[4] y) => (float[6] z, float[6] w) {{
  z = If (c) <then_branch = a () => (float[6] t) {{ {_FITS} }}, else_branch = b () => (float[6] e) {{ {_FAILS} }}>
  w = If (d) <then_branch = f () => (float[6] n) {{ {_FITS} n = Neg(t) }}, else_branch = g () => (float[6] e) {{ {_FAILS} }}>
}}"""
INDEX = """
index (float[6] x, bool c) => (float[2] y) {
  y = If (c) <
    then_branch = yes () => (float[2] t) { i = Constant<value_ints = [0, 1]>() t = Gather(x, i) },
    else_branch = no () => (float[2] e) { j = Constant<value_ints = [0, 100]>() e = Gather(x, j) }
  >
}"""

# The same, where that is known only once other passes ran: the index is computed from codes, or the
# axis is that of what another If gives.
COMPUTED_INDEX = """
computed (float[6] x, bool c) => (float[2] y) <uint8[2] codes = {0, 100}, float scale = {1.0}, int64[2] i = {0, 1}> {
  y = If (c) <
    then_branch = yes () => (float[2] t) { t = Gather(x, i) },
    else_branch = no () => (float[2] e) { j = DequantizeLinear(codes, scale) k = Cast<to = 7>(j) e = Gather(x, k) }
  >
}"""
LATE_AXIS = """
axis (float[6] x, bool c, bool d, float[2,3] v) => (float[2] y) <int64[2] i = {0, 1}, int64[2] j = {0, 100}, int64[1] k = {-1}> {
  z = If (d) <
    then_branch = a () => (float[n] p) { p = Relu(x) },
    else_branch = b () => (float[m] q) { r = Abs(x) s = MatMul(v, r) q = Reshape(s, k) }
  >
  y = If (c) <then_branch = yes () => (float[2] t) { t = Gather(z, i) }, else_branch = no () => (float[2] e) { e = Gather(z, j) }>
}"""


def _chain(length: int) -> str:
    """As many conditions one after the other, of which the first has a branch that fails."""
    given = ", ".join(f"bool c{number}" for number in range(length))
    first = (
        f"z0 = If (c0) <then_branch = a () => (float[6] t) {{ {_FITS} }}, else_branch = b () =>"
        f" (float[6] e) {{ {_FAILS} }}>"
    )
    branches = (
        "then_branch = t{k} () => (float[6] u) {{ u = Exp({z}) }}, else_branch = e{k} () =>"
        " (float[6] v) {{ v = Abs({z}) }}"
    )
    rest = " ".join(
        f"z{k} = If (c{k}) <{branches.format(k=k, z=f'z{k - 1}')}>" for k in range(1, length)
    )
    return (
        f"chain ({given}, float[2,3] q, float[4] y) => (float[6] w) {{ {first} {rest} w ="
        f" Neg(z{length - 1}) }}"
    )


SEQUENCE = """
sequence (float[4] x, bool c) => (float[n] y) {
  s = If (c) <
    then_branch = a () => (seq(float[4]) p) { p = SequenceConstruct(x) },
    else_branch = b () => (seq(float[4]) q) { q = SequenceConstruct(x, x) }
  >
  y = ConcatFromSequence<axis = 0>(s)
}"""


def _compared(graph: Graph, engine: Engine, *runs: list[np.ndarray]) -> Program:
    """The program, which gave what the interpreter gives, run after run."""
    model = compile_model(graph, engine=engine)
    for given in (*runs, *runs):
        assert_same(outputs(model(*given)), graph.run(given))
    (program,) = model.programs
    return program


def test_captures_and_values_that_are_handed_through(engine: Engine) -> None:
    program = _compared(parsed(CAPTURES), engine, [X, np.array(True)], [X, np.array(False)])
    assert program.plan.is_native
    assert len(program.actions) == 1


def test_a_condition_in_a_condition(engine: Engine) -> None:
    runs = [
        [X, np.array(taken), np.array(limit, np.float32)]
        for taken in (True, False)
        for limit in (-1e9, 1e9)
    ]
    program = _compared(parsed(NESTED), engine, *runs)
    assert program.plan.is_native
    (segment,) = program.actions
    assert isinstance(segment, Segment)
    assert max(step.n_guards for step in segment.plan.steps[: segment.plan.n_steps]) == 2


def test_a_condition_in_a_loop(engine: Engine) -> None:
    program = _compared(parsed(LOOP), engine, [X, np.array(5)])
    (body,) = cpu_backend(engine).bodies(program)._known.values()
    assert body is not None
    assert all(each.plan.is_native for each in body._executable.programs)


@pytest.mark.parametrize(
    "kind", ["float", "double", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]
)
@pytest.mark.parametrize("shape", ["", "[3]", "[2,0]"])
def test_types(kind: str, shape: str, engine: Engine) -> None:
    text = f"""types ({kind}{shape} x, {kind}{shape} z, bool[1] c) => ({kind}{shape} y) {{
      y = If (c) <
        then_branch = a () => ({kind}{shape} p) {{ p = Identity(x) }}, else_branch = b () => ({kind}{shape} q) {{ q = Identity(z) }}
      >
    }}"""
    graph = parsed(text)
    dtype = graph.inputs[0].type.dtype.numpy  # type: ignore[union-attr]
    size = {"": (), "[3]": (3,), "[2,0]": (2, 0)}[shape]
    x, z = np.ones(size, dtype), np.zeros(size, dtype)
    for taken in (True, False):
        (y,) = outputs(compile_model(graph, engine=engine)(x, z, np.array([taken])))
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, x if taken else z)


def test_a_branch_that_must_fail(engine: Engine) -> None:
    graph = parsed(FAILING)
    x, v = np.array([-1, 2, -3, 4], np.float32), np.ones((2, 3), np.float32)
    model = compile_model(graph, engine=engine)
    for _ in range(2):
        assert_same(outputs(model(x, np.array(True), v)), [np.maximum(x, 0)])
        with pytest.raises(WhenceError, match=r"operator 'y' \(If\): operator 'q' \(MatMul\): "):
            model(x, np.array(False), v)
    (program,) = model.programs
    assert len(program.actions) == 1, "what fails does not divide native code"


def test_a_branch_that_native_code_cannot_do(engine: Engine) -> None:
    x = np.array([0.5, 2, -3, 4], np.float32)
    program = _compared(parsed(ASIDE), engine, [x, np.array(True)], [x, np.array(False)])
    assert program.plan.references
    assert len(program.actions) == 1


def test_sequences_are_left_to_the_interpreter(engine: Engine) -> None:
    program = _compared(parsed(SEQUENCE), engine, [X[0], np.array(True)], [X[0], np.array(False)])
    assert "If" in program.graph.op_counts


def test_what_is_not_taken_does_not_run(engine: Engine) -> None:
    """An index that is out of bounds is no error where nobody asks for it."""
    text = """lookup (float[4] x, int64 i, bool c) => (float y) {
      y = If (c) <then_branch = a () => (float p) { p = Gather(x, i) }, else_branch = b () => (float q) { q = ReduceSum<keepdims = 0>(x) }>
    }"""
    graph = parsed(text)
    given = [X[0], np.array(1 << 40), np.array(False)]
    _compared(graph, engine, given)
    assert_same(prepare(graph.copy()).run(given), graph.run(given))


SIX = RNG.standard_normal(6).astype(np.float32)
Q, Y = RNG.standard_normal((2, 3)).astype(np.float32), RNG.standard_normal(4).astype(np.float32)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (LATE, [np.array(1, np.float32), Q, Y]),
        (FLAG_AND_VALUE, [np.array(True), np.array(1, np.float32), Q, Y]),
        (FLAG_AND_VALUE, [np.array(True), np.array(-1, np.float32), Q, Y]),
        (TWINS, [np.array(True), np.array(True), Q, Y]),
        (_chain(40), [*[np.array(True)] + [np.array(False)] * 39, Q, Y]),
        (INDEX, [SIX, np.array(True)]),
        (COMPUTED_INDEX, [SIX, np.array(True)]),
        (LATE_AXIS, [SIX, np.array(True), np.array(True), Q]),
    ],
    ids=[
        "a condition that is also read late",
        "a flag with a value",
        "and where it is not set",
        "equal branches",
        "many conditions",
        "an index",
        "an index that is computed",
        "an axis of something chosen",
    ],
)
def test_what_would_fail_does_not_run(text: str, given: list[np.ndarray], engine: Engine) -> None:
    _compared(parsed(text), engine, given)


@pytest.mark.parametrize(
    ("text", "more"),
    [(COMPUTED_INDEX, []), (LATE_AXIS, [np.array(True), Q])],
    ids=["a computed index", "a late axis"],
)
def test_an_index_outside_its_axis_is_an_error_where_it_is_needed(
    text: str, more: list[np.ndarray], engine: Engine
) -> None:
    model = compile_model(parsed(text), engine=engine)
    for _ in range(2):
        np.testing.assert_array_equal(
            outputs(model(SIX, np.array(True), *more))[0],
            parsed(text).run([SIX, np.array(True), *more])[0],
        )
        with pytest.raises(
            ModelError,
            match=r"^operator 'e' \(Gather\): index 100 is outside an axis of 6$",
        ):
            model(SIX, np.array(False), *more)


def test_an_index_that_every_run_needs_is_an_error_at_once(engine: Engine) -> None:
    text = "always (float[6] x) => (float[2] y) <int64[2] j = {0, 100}> { y = Gather(x, j) }"
    with pytest.raises(
        ModelError, match=r"^operator 'y' \(Gather\): index 100 is outside an axis of 6$"
    ):
        compile_model(parsed(text), engine=engine)


def test_what_is_made_in_place_in_a_branch_that_is_not_taken_does_not_run(engine: Engine) -> None:
    given = RNG.standard_normal((1, 16)).astype(np.float32)
    program = _compared(parsed(PARTS), engine, [given, np.array(True)], [given, np.array(False)])
    (segment,) = (action for action in program.plan.actions if isinstance(action, Segment))
    guarded = [segment.plan.steps[number].n_guards for number in range(segment.plan.n_steps)]
    # Nothing copies: a product and something else for each branch, then the choice and what follows
    # it.
    assert guarded == [1, 1, 1, 1, 0, 0]


def test_the_profile_has_what_ran_and_adds_up(engine: Engine) -> None:
    model = compile_model(parsed(CAPTURES), engine=engine)
    found = profile_executable(
        model, {"x": X, "c": np.array(True)}, runs=5, warmup=1, model="captures"
    )
    assert found.coverage.lost == 0
    assert [row.id for row in found.sources] == list(range(1, found.coverage.source_ops + 1))
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    times = {row.name: (row.time_ns, row.fate) for row in found.sources}
    assert sum(time for time, _ in times.values()) == found.attributed_ns
    calls = {row.name: row.calls for row in found.kernels}
    assert sum(calls[name] == 0 for name in calls) == 2, (
        "the product and the softmax of the other branch"
    )
    products = [row for row in found.sources if row.op == "MatMul"]
    assert sorted(row.time_ns > 0 for row in products) == [False, True]
    assert {row.fate for row in products} == {"live"}


def test_threads_that_take_different_branches(engine: Engine) -> None:
    graph = parsed(CAPTURES)
    model = compile_model(graph, engine=engine)
    expected = {taken: graph.run([X, np.array(taken)]) for taken in (True, False)}
    failures: list[BaseException] = []

    def run(taken: bool) -> None:
        try:
            for _ in range(200):
                assert_same(outputs(model(X, np.array(taken))), expected[taken])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(taken,)) for taken in (True, False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_model_that_was_compiled_before(tmp_path: Path, engine: Engine) -> None:
    x, v = np.array([-1, 2, -3, 4], np.float32), np.ones((2, 3), np.float32)
    for name, text, given in (
        ("captures", CAPTURES, [X]),
        ("aside", ASIDE, [np.abs(x)]),
        ("failing", FAILING, [x]),
    ):
        path = tmp_path / f"{name}.onnx"
        onnx.save(onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>' + text), path)
        more = [v] if name == "failing" else []
        for taken in (True,) if name == "failing" else (True, False):
            first = outputs(compile_model(path, engine=engine)(*given, np.array(taken), *more))
            assert_same(
                outputs(compile_model(path, engine=engine)(*given, np.array(taken), *more)), first
            )


def test_a_condition_leaves_python(tmp_path: Path, engine: Engine) -> None:
    program = build_program(prepare(parsed(NESTED)), cpu_backend(engine).toolchain, load=False)
    files = export(program, cpu_backend(engine).toolchain, tmp_path, "nested")
    assert all(file.exists() for file in files)
