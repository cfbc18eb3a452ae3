"""Iterations of loops run in native code, and do what the interpreter and ONNX Runtime do."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

from tests.cpu_backend import cpu_backend
from tests.runtime.models import assert_same, outputs
from whence.api import compile_model
from whence.attribution import profile_executable
from whence.backends.cpu import native_iterations as module
from whence.errors import ModelError
from whence.frontends.onnx.reader import read_onnx
from whence.runtime import bodies
from whence.runtime.engine import Engine
from whence.types import DType, TensorType

RNG = np.random.default_rng(3)
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

# Eight operators: what is shorter is not worth compiling.
COUNTS = """
  n = Add(i, one)
  q = Mul(n, n)
  p = Sub(q, n)
  z = Sub(p, p)
  o = Abs(z)
"""
WHILE = f"""
run_while (float[2,3] x, int64 m, bool first, float limit) => (float[2,3] last, int64 iterations, float[t,2,3] all, int64[t] numbers)
<int64 one = {{1}}, int64 zero = {{0}}> {{
  last, iterations, all, numbers = Loop (m, first, x, zero) <body =
   iteration (int64 i, bool c, float[2,3] h, int64 k) =>
    (bool go, float[2,3] g, int64 j, float[2,3] s, int64 number) {{
    {COUNTS}
    w = Add(h, x)
    r = Tanh(w)
    g = Add(r, h)
    top = ReduceMax<keepdims = 0>(g)
    go = Less(top, limit)
    j = Add(k, one)
    s = Neg(g)
    number = Add(i, o)
  }}>
}}"""
SWAPPED = """
swapped (float[4] x, float[4] y, int64 m) => (float[4] a, float[4] b, float[4] c, float[t,4] all, float[t] same)
<bool yes = {1}, float fixed = {7}> {
  a, b, c, all, same = Loop (m, yes, x, y, x) <body =
   iteration (int64 i, bool g, float[4] p, float[4] q, float[4] r) =>
    (bool go, float[4] u, float[4] v, float[4] w, float[4] s, float o) {
    go = Identity(g)
    a1 = Add(p, q)
    a2 = Tanh(a1)
    a3 = Sub(a2, r)
    a4 = Abs(a3)
    a5 = Neg(a4)
    a6 = Exp(a5)
    a7 = Mul(a6, p)
    a8 = Softmax(a7)
    u = Identity(q)
    v = Identity(a8)
    w = Identity(p)
    s = Identity(r)
    o = Identity(fixed)
  }>
}"""
SCAN = """
scanned (float[3] h, float[5,2,3] x, float[2,5] y, float[3] k) => (float[3] last, float[2,5,3] a, float[5,2] b) {
  last, a, b = Scan <num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [1, 0],
   scan_output_axes = [1, 0], scan_output_directions = [1, 0],
   body = iteration (float[3] s, float[2,3] r, float[2] q) => (float[3] t, float[2,3] u, float[2] v) {
    a1 = Add(r, s)
    a2 = Tanh(a1)
    a3 = Mul(a2, k)
    a4 = Neg(q)
    a5 = Exp(a4)
    a6 = Abs(a5)
    axis = Constant<value_ints = [0]>()
    t = ReduceSum<keepdims = 0>(a3, axis)
    u = Sub(a3, s)
    v = Add(a6, q)
  }>(h, x, y)
}"""
NESTED = """
nested (float[3] x, int64 m, int64 n) => (float[3] y, float[t,3] all) <bool yes = {1}> {
  y, all = Loop (m, yes, x) <body = outer (int64 i, bool c, float[3] h) => (bool go, float[3] g, float[3] s) {
    go = Identity(c)
    inner = Loop (n, yes, h) <body = iteration (int64 j, bool d, float[3] p) => (bool on, float[3] q) {
      on = Identity(d)
      b1 = Add(p, x)
      b2 = Tanh(b1)
      b3 = Neg(b2)
      b4 = Exp(b3)
      b5 = Abs(b4)
      b6 = Sub(b5, h)
      b7 = Softmax(b6)
      q = Add(b7, h)
    }>
    g = Tanh(inner)
    s = Softmax(g)
  }>
}"""


def _run(text: str, engine: Engine, *calls: dict[str, np.ndarray], native: bool = True) -> Any:
    """Compiled, and the same as both others for all calls; `native` says whether iterations are."""
    proto = parser.parse_model(HEAD + text)
    graph, peer = read_onnx(proto), ort.InferenceSession(proto.SerializeToString())
    model = compile_model(graph, engine=engine)
    for feeds in calls:
        given = [feeds[port.name] for port in model.inputs]
        got = outputs(model(*given))
        assert_same(got, graph.run(given))
        assert_same(got, peer.run(None, feeds))
    assert all(_native(model)) is native
    return model


def _native(model: Any) -> list[bool]:
    """Of the bodies that ran: did native code run their iterations?"""
    return [
        not any(isinstance(each, str) for each in instance.iterations.values())
        for program in model.programs
        for body in cpu_backend(model.engine).bodies(program)._known.values()
        if body is not None
        for prepared in body._executable._programs._prepared.values()
        for instance in prepared.free
    ]


def _while(iterations: int, *, first: bool = True, limit: float = 1e9) -> dict[str, np.ndarray]:
    return {
        "x": RNG.standard_normal((2, 3)).astype(np.float32),
        "m": np.array(iterations),
        "first": np.array(first),
        "limit": np.array(limit, np.float32),
    }


def test_as_many_iterations_as_are_asked_for(engine: Engine) -> None:
    counted = [_while(iterations) for iterations in (1, 2, 7, 300, 0)]
    _run(WHILE, engine, *counted, _while(5, first=False))


def test_a_condition_that_becomes_false(engine: Engine) -> None:
    calls = [_while(1 << 62, limit=limit) for limit in (-50.0, 3.0, 8.0, 20.0)]
    _run(WHILE, engine, *calls)


def test_values_that_change_places(engine: Engine) -> None:
    feeds = {name: RNG.standard_normal(4).astype(np.float32) for name in "xy"}
    _run(SWAPPED, engine, *({**feeds, "m": np.array(iterations)} for iterations in (1, 2, 5)))


def test_scans_backwards_and_along_other_axes(engine: Engine) -> None:
    shapes = {"h": (3,), "x": (5, 2, 3), "y": (2, 5), "k": (3,)}
    feeds = {name: RNG.standard_normal(shape) for name, shape in shapes.items()}
    _run(SCAN, engine, {name: value.astype(np.float32) for name, value in feeds.items()})


def test_loops_in_loops(engine: Engine) -> None:
    x = RNG.standard_normal(3).astype(np.float32)
    calls = [{"x": x, "m": np.array(m), "n": np.array(n)} for m, n in ((3, 4), (1, 0), (2, 1))]
    proto = parser.parse_model(HEAD + NESTED)
    graph, peer = read_onnx(proto), ort.InferenceSession(proto.SerializeToString())
    model = compile_model(graph, engine=engine)
    for feeds in calls:
        got = outputs(model(**feeds))
        assert_same(got, graph.run(feeds))
        assert_same(got, peer.run(None, feeds))


def test_every_type_is_carried(engine: Engine) -> None:
    kinds = {
        name: np.dtype({"float": "float32", "double": "float64"}.get(name, name))
        for name in (
            *("float", "double", "float16", "bool", "int8", "int16", "int32", "int64"),
            *("uint8", "uint16", "uint32", "uint64"),
        )
    }

    def each(pattern: str) -> str:
        return ", ".join(pattern.replace("@", kind) for kind in kinds)

    steps = "\n".join(
        f"f_{kind} = Cast<to = 7>(h_{kind})\n a_{kind} = Add(f_{kind}, n)\n"
        f"g_{kind} = CastLike(a_{kind}, h_{kind})\n s_{kind} = Identity(h_{kind})"
        for kind in kinds
    )
    text = f"""
carry ({each("@[3] x_@")}, int64 m) => ({each("@[3] y_@")}, {each("@[t,3] z_@")})
<bool yes = {{1}}, int64 one = {{1}}> {{
  {each("y_@")}, {each("z_@")} = Loop (m, yes, {each("x_@")}) <body = iteration (int64 i, bool c, {each("@[3] h_@")})
    => (bool go, {each("@[3] g_@")}, {each("@[3] s_@")}) {{
    n = Add(i, one)
    go = Identity(c)
    {steps}
  }}>
}}"""
    given = {f"x_{kind}": np.array([0, 1, 3]).astype(dtype) for kind, dtype in kinds.items()}
    _run(text, engine, {**given, "m": np.array(5)})


def test_a_body_that_changes_the_size_of_what_it_carries_stays_in_python(engine: Engine) -> None:
    text = f"""
grow (float[1,4] x, int64 m) => (float[n,4] y) <bool yes = {{1}}, int64 one = {{1}}> {{
  y = Loop (m, yes, x) <body = iteration (int64 i, bool c, float[r,4] h) => (bool go, float[q,4] k) {{
    {COUNTS}
    e = Equal(o, p)
    go = Or(e, c)
    s = Softmax(h)
    k = Concat<axis = 0>(h, s)
  }}>
}}"""
    feeds = {"x": RNG.standard_normal((1, 4)).astype(np.float32), "m": np.array(4)}
    model = _run(text, engine, feeds, native=False)
    (loop,) = (
        row
        for row in profile_executable(model, feeds, runs=1, warmup=0).kernels
        if "Loop" in row.ops
    )
    assert loop.why_reference == "it carries [1, 4], and [2, 4] after an iteration"


def test_rows_get_more_room_as_iterations_make_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROWS_BYTES", 64)
    _run(WHILE, engine, _while(50), _while(1 << 62, limit=9.0))


def test_an_index_outside_its_axis_is_told(engine: Engine) -> None:
    text = f"""
walk (float[4,2] x, int64 m) => (float[2] y) <bool yes = {{1}}, float[2] none = {{0, 0}}, int64 one = {{1}}> {{
  y = Loop (m, yes, none) <body = iteration (int64 i, bool c, float[2] h) => (bool go, float[2] g) {{
    {COUNTS}
    e = Equal(o, p)
    go = Or(e, c)
    r = Gather(x, i)
    g = Add(h, r)
  }}>
}}"""
    model = _run(text, engine, {"x": np.ones((4, 2), np.float32), "m": np.array(4)})
    with pytest.raises(ModelError, match=r"Gather.*outside its axis"):
        model(np.ones((4, 2), np.float32), np.array(5))


def test_the_steps_of_the_body_are_in_the_profile(engine: Engine) -> None:
    model = compile_model(read_onnx(parser.parse_model(HEAD + WHILE)), engine=engine)
    found = profile_executable(model, _while(20), runs=3, warmup=1)
    steps = [row for row in found.kernels if row.native and row.calls == 3 * 20]
    assert steps
    (loop,) = (row for row in found.kernels if "Loop" in row.ops)
    assert loop.calls == 3 * 2, "before the iterations, and after them"
    assert "its iterations are native code" in loop.why_reference
    assert sum(row.time_ns for row in found.kernels) + sum(found.residual_ns.values()) == (
        found.wall_ns
    )


def test_a_loop_that_never_ends_can_be_interrupted(engine: Engine) -> None:
    text = f"""
ever (float[2] x) => (float[2] y) <int64 one = {{1}}, bool yes = {{1}}> {{
  y = Loop (, yes, x) <body = iteration (int64 i, bool c, float[2] h) => (bool go, float[2] g) {{
    {COUNTS}
    go = Identity(c)
    a = Tanh(h)
    b = Add(a, h)
    g = Softmax(b)
  }}>
}}"""
    model = compile_model(read_onnx(parser.parse_model(HEAD + text)), engine=engine)
    main = threading.get_ident()
    timer = threading.Timer(2.0, lambda: signal.pthread_kill(main, signal.SIGINT))
    # A shell lets what runs in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            model(np.zeros(2, np.float32))
        assert time.monotonic() - began < 60
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_interpreter_is_asked_where_no_native_code_runs_iterations(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_FEWEST", 1000)
    graph = read_onnx(parser.parse_model(HEAD + WHILE))
    model = compile_model(graph, engine=engine)
    feeds = _while(3)
    assert_same(outputs(model(**feeds)), graph.run(feeds))


KNOWN = f"""
known (float[2,3] x, int64 m, bool first, float limit) => (float[2,3] last, int64 iterations, float[2,3] same)
<int64 one = {{1}}, int64 zero = {{0}}> {{
  last, iterations, same, unread = Loop (m, first, x, zero, x) <body =
   iteration (int64 i, bool c, float[2,3] h, int64 k, float[2,3] w) =>
    (bool go, float[2,3] g, int64 j, float[2,3] v, float[2,3] s) {{
    {COUNTS}
    a = Add(h, x)
    r = Tanh(a)
    g = Add(r, h)
    top = ReduceMax<keepdims = 0>(g)
    go1 = Less(top, limit)
    go = And(go1, c)
    j = Add(k, one)
    s = Neg(g)
    v = Identity(w)
  }}>
}}"""
ROWS = """
rows (float[3] h, float[5,2,3] x, float[3] k) => (float[3] last, float[5,2,3] a) {
  last, a, b = Scan <num_scan_inputs = 1, body = iteration (float[3] s, float[2,3] r) => (float[3] t, float[2,3] u, float[2,3] v) {
    a1 = Add(r, s)
    a2 = Tanh(a1)
    a3 = Mul(a2, k)
    a4 = Neg(r)
    a5 = Exp(a4)
    v = Abs(a5)
    axis = Constant<value_ints = [0]>()
    t = ReduceSum<keepdims = 0>(a3, axis)
    u = Sub(a3, s)
  }>(h, x)
}"""


def _is_step(model: Any) -> bool:
    """Do the iterations of all its loops work in the program's own memory?"""
    steps = [
        step
        for prepared in model._programs._prepared.values()
        for instance in prepared.free
        for step in instance._loop_steps.values()
    ]
    return bool(steps) and None not in steps


def test_loops_of_known_sizes_work_in_the_memory_of_the_program(engine: Engine) -> None:
    calls = [_while(iterations) for iterations in (3, 1, 0, 8)]
    calls += [_while(5, first=False), *(_while(1 << 62, limit=limit) for limit in (2.0, 9.0))]
    assert _is_step(_run(KNOWN, engine, *calls))
    shapes = {"h": (3,), "x": (5, 2, 3), "k": (3,)}
    feeds = {name: RNG.standard_normal(shape) for name, shape in shapes.items()}
    call = {name: value.astype(np.float32) for name, value in feeds.items()}
    assert _is_step(_run(ROWS, engine, call, call))
    # Rows that are as many as there are iterations have places of their own.
    assert not _is_step(_run(WHILE, engine, _while(3)))


# As exporters write a recurrent layer: nothing says what is carried, and the condition counts.
TEXT = """
text (float[b,t,4] x) => (float[b1,t1,4] all, float[b2,4] last) <int32 start = {0}, float zero = {0}, int64[1] four = {4}> {
  by_time = Transpose<perm = [1, 0, 2]>(x)
  sizes = Shape(by_time)
  long = Shape<start = 0, end = 1>(by_time)
  batch = Shape<start = 1, end = 2>(by_time)
  length1 = Cast<to = 6>(long)
  length = Squeeze(length1)
  begin = Concat<axis = 0>(batch, four)
  h0 = Expand(zero, begin)
  yes = Less(start, length)
  n, last, m, rows = Loop (, yes, start, h0, length) <body = iteration (int64 i, bool c, int32 k, float[p,q] h, int32 l)
   => (bool go, int32 k1, float[p1,q1] h1, int32 l1, float[p2,q2] s) {
    one = Constant<value = int32 {1}>()
    k1 = Add(k, one)
    row = Gather(by_time, k)
    a1 = Add(row, h)
    a2 = Tanh(a1)
    a3 = Exp(a2)
    a4 = Mul(a3, row)
    h1 = Tanh(a4)
    s = Neg(h1)
    l1 = Identity(l)
    f1 = Cast<to = 1>(k1)
    f2 = Cast<to = 1>(l)
    go = Less(f1, f2)
  }>
  all = Transpose<perm = [1, 0, 2]>(rows)
}"""


def test_a_loop_over_a_text_of_any_length_works_in_the_memory_of_the_program(
    engine: Engine,
) -> None:
    calls = [
        {"x": RNG.standard_normal((batch, length, 4)).astype(np.float32)}
        for batch, length in ((1, 5), (1, 9), (1, 2), (1, 1), (3, 5), (1, 9))
    ]
    model = _run(TEXT, engine, *calls)
    assert _is_step(model)
    assert model.compilations == 3, "of one text, of a text of one word, and of several texts"
    found = profile_executable(model, calls[0], runs=1, warmup=0)
    assert not any(row.calls for row in found.kernels if not row.native)


def test_rows_that_are_not_as_many_as_was_said(engine: Engine) -> None:
    graph = read_onnx(parser.parse_model(HEAD + WHILE))
    (loop,) = (node for node in graph if node.op == "Loop")
    rows = [TensorType(DType.F32, (4, 2, 3)), TensorType(DType.I64, (4,))]
    graph.set_types(loop, [*loop.outputs[:2], *rows])
    model = compile_model(graph, engine=engine)
    feeds = _while(4)
    for other in (_while(3), _while(5), _while(0), _while(9, limit=-50.0)):
        assert_same(outputs(model(**feeds)), graph.run(feeds))
        with pytest.raises(ModelError, match="4"):
            model(**other)
    assert _is_step(model)


def test_results_of_another_size_than_was_said(engine: Engine) -> None:
    graph = read_onnx(parser.parse_model(HEAD + KNOWN))
    (loop,) = (node for node in graph if node.op == "Loop")
    graph.set_types(loop, [TensorType(DType.F32, (64, 64)), *loop.outputs[1:]])
    model = compile_model(graph, engine=engine)
    with pytest.raises(ModelError, match=r"f32\[2,3\] where the model says f32\[64,64\]"):
        model(**_while(4))


def test_rows_of_different_lengths(engine: Engine) -> None:
    graph = read_onnx(parser.parse_model(HEAD + WHILE))
    (loop,) = (node for node in graph if node.op == "Loop")
    rows = [TensorType(DType.F32, (2, 2, 3)), TensorType(DType.I64, (4,))]
    graph.set_types(loop, [*loop.outputs[:2], *rows])
    model = compile_model(graph, engine=engine)
    with pytest.raises(ModelError, match=r"f32\[4,2,3\] where the model says f32\[2,2,3\]"):
        model(**_while(4))
    lengths = ROWS.replace("float[5,2,3] x,", "float[5,2,3] x, float[3,2,3] z,")
    lengths = lengths.replace("num_scan_inputs = 1", "num_scan_inputs = 2").replace(
        "(h, x)", "(h, x, z)"
    )
    lengths = lengths.replace("float[2,3] r)", "float[2,3] r, float[2,3] q)").replace(
        "Neg(r)", "Neg(q)"
    )
    build = read_onnx(parser.parse_model(HEAD + lengths))
    shapes = {"h": (3,), "x": (5, 2, 3), "z": (3, 2, 3), "k": (3,)}
    feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(ModelError, match=r"different lengths: \[3, 5\]"):
        compile_model(build, engine=engine)(**feeds)
