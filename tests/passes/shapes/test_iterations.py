"""What is known of a loop's results before it runs: sizes that iterations keep, and how many
iterations there are.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from tests.passes.rewriting import only
from whence.frontends.onnx.reader import read_onnx
from whence.graph import Graph
from whence.passes.manager import run_passes
from whence.passes.pipeline import PORTABLE
from whence.passes.shapes.propagate_types import PropagateTypes, fix_input_shapes
from whence.types import DType, TensorType, ValueType

F32 = DType.F32
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def read(text: str) -> Graph:
    return read_onnx(parser.parse_model(HEAD + text))


def loop_types(graph: Graph, op: str = "Loop", **shapes: tuple[int, ...]) -> list[ValueType]:
    fix_input_shapes(graph, shapes)
    run_passes(graph, PORTABLE)
    return list(only(graph, op).outputs)


def carrying(step: str) -> Graph:
    return read(
        f"""
carrying (float[n,k] x, float[n2,k2] y, int64 m) => (float[p,q] a, float[r,s] b)
<bool yes = {{1}}> {{
  a, b = Loop (m, yes, x, y) <body = iteration (int64 i, bool c, float[p,q] h, float[r,s] g)
   => (bool go, float[p1,q1] h1, float[r1,s1] g1) {{
    go = Identity(c)
    {step}
  }}>
}}"""
    )


@pytest.mark.parametrize(
    ("step", "first", "second"),
    [
        ("h1 = Tanh(h)\n g1 = Add(g, h)", (1, 4), (1, 4)),
        ("h1 = Concat<axis = 0>(h, g)\n g1 = Tanh(g)", (None, 4), (1, 4)),
        # What the first loses, the second loses an iteration later.
        ("h1 = Concat<axis = 0>(h, h)\n g1 = Add(g, h)", (None, 4), (None, 4)),
        ("h1 = Transpose(h)\n g1 = Tanh(g)", (None, None), (1, 4)),
    ],
)
def test_a_carried_value_keeps_the_sizes_that_an_iteration_makes_again(
    step: str, first: tuple[int | None, ...], second: tuple[int | None, ...]
) -> None:
    graph = carrying(step)
    assert loop_types(graph, x=(1, 4), y=(1, 4)) == [
        TensorType(F32, first),
        TensorType(F32, second),
    ]
    loop = only(graph, "Loop")
    entries = loop.bodies["body"].inputs[2:4]
    assert [entry.type for entry in entries] == list(loop.outputs)


def test_values_of_different_sizes_that_change_places_have_none() -> None:
    graph = carrying("h1 = Identity(g)\n g1 = Identity(h)")
    assert loop_types(graph, x=(1, 4), y=(2, 4)) == [TensorType(F32, (None, 4))] * 2


def test_a_body_of_which_the_file_says_otherwise_is_left_alone() -> None:
    graph = carrying("h1 = Tanh(h)\n g1 = Tanh(g)")
    loop = only(graph, "Loop")
    body = loop.bodies["body"]
    body.set_types(body.inputs[2], [TensorType(F32, (7, None))])
    before = loop.outputs
    graph.set_types(graph.inputs[0], [TensorType(F32, (1, 4))])
    run_passes(graph, [PropagateTypes()])
    assert loop.outputs == before


def counting(body: str, *, most: str = "", first: str = "yes") -> Graph:
    return read(
        f"""
counting (float[n] x) => (float[t] rows)
<bool yes = {{1}}, bool no = {{0}}, int64 seven = {{7}}, int64 none = {{0}}, int64 minus = {{-3}},
 int32 start = {{0}}, int32 high = {{11}}, int32 ten = {{10}}> {{
  sizes = Shape(x)
  long = Squeeze(sizes)
  length = Cast<to = 6>(long)
  down, up, same, rows = Loop ({most}, {first}, high, start, length) <body =
   iteration (int64 i, bool c, int32 d, int32 u, int32 n) =>
    (bool go, int32 d1, int32 u1, int32 n1, float row) {{
    three = Constant<value = int32 {{3}}>()
    one = Constant<value = int32 {{1}}>()
    half = Constant<value = float {{0.5}}>()
    d1 = Sub(d, three)
    u1 = Add(one, u)
    n1 = Identity(n)
    row = Cast<to = 1>(u)
    {body}
  }}>
}}"""
    )


_AS_FLOATS = """
    a = Cast<to = 1>(u1)
    b = Cast<to = 1>(n)
    f = Cast<to = 1>(i)
    e = Less(f, b)
    g = Less(a, b)
    go = And(e, g)
"""
COUNTED = {
    "to the number of iterations": ("go = Identity(c)", "seven", 7),
    "never": ("go = Identity(c)", "none", 0),
    "a negative number of iterations": ("go = Identity(c)", "minus", 0),
    "to the length": ("go = Less(u1, n)", "", 5),
    "to the length, as floats": (_AS_FLOATS, "long", 5),
    "past the length": ("go = LessOrEqual(u, n)", "", 7),
    "an iteration less": ("go = Greater(n, u1)", "", 5),
    "at least": ("go = GreaterOrEqual(n, u1)", "", 6),
    "down by threes": ("go = Greater(d1, one)", "", 4),
    "down by threes, to what is met": ("two = Add(one, one)\n go = Greater(d1, two)", "", 3),
    "the smaller": ("go = Less(u1, n)", "seven", 5),
    "the number of iterations first": ("go = Less(u1, ten)", "seven", 7),
    "once": ("go = Less(u1, one)", "", 1),
    "the number of the iteration": ("k = Cast<to = 6>(i)\n go = Less(k, n)", "", 6),
    "one goes up, one down": ("go = Less(u1, d1)", "", 3),
    "a sum of what goes up and down": ("k = Add(d, u)\n go = Greater(k, ten)", "seven", 2),
    "a constant that is false": ("go = Identity(no)", "seven", 1),
    "it never becomes false": ("go = Less(d1, ten)", "seven", 7),
}
DECIDED_BY_THE_RUN = {
    "no end": ("go = Identity(c)", ""),
    "any other operator": ("k = Mul(u1, u1)\n go = Less(k, n)", ""),
    "no whole number": ("k = Cast<to = 1>(u1)\n j = Add(k, half)\n q = Cast<to = 1>(n)\n go = Less(j, q)", ""),
    "numbers that wrap": ("k = Cast<to = 3>(u1)\n m = Cast<to = 3>(n)\n go = Less(k, m)", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", COUNTED)
def test_a_loop_that_counts_has_as_many_rows_as_iterations(case: str) -> None:
    body, most, iterations = COUNTED[case]
    graph = counting(body, most=most)
    (rows,) = graph.run([np.zeros(5, np.float32)])
    assert len(rows) == iterations
    assert loop_types(graph, x=(5,))[3] == TensorType(F32, (iterations,))


@pytest.mark.parametrize("case", DECIDED_BY_THE_RUN)
def test_what_is_more_than_counting_is_left_to_the_run(case: str) -> None:
    body, most = DECIDED_BY_THE_RUN[case]
    assert loop_types(counting(body, most=most), x=(5,))[3] == TensorType(F32, (None,))


def test_a_loop_that_does_not_begin_has_no_rows() -> None:
    assert loop_types(counting("go = Less(u1, n)", first="no"), x=(5,))[3] == TensorType(F32, (0,))


def test_a_condition_as_wide_as_it_is_deep_takes_no_time() -> None:
    tower = "".join(f"c{at + 1} = And(c{at}, c{at})\n" for at in range(200))
    graph = counting(f"c0 = Less(u1, n)\n {tower} go = Identity(c200)")
    assert loop_types(graph, x=(5,))[3] == TensorType(F32, (None,))


def test_rows_of_a_scan_follow_what_it_reads() -> None:
    graph = read(
        """
scanned (float[k] h, float[n,k,t] x) => (float[q] last, float[a,b,c] rows) {
  last, rows = Scan <num_scan_inputs = 1, scan_input_axes = [2], scan_output_axes = [-1],
   body = iteration (float[k1] s, float[n1,k2] r) => (float[k3] s1, float[n2,k4] u) {
    s1 = Tanh(s)
    u = Add(r, s)
  }>(h, x)
}"""
    )
    found = loop_types(graph, "Scan", h=(3,), x=(2, 3, 5))
    assert found == [TensorType(F32, (3,)), TensorType(F32, (2, 3, 5))]


def test_loops_in_loops_learn_once() -> None:
    """Each tries what an iteration makes of sizes, and the loops in it with it."""
    depth, inner = 24, "o24 = Tanh(h24)"
    for at in range(depth, 0, -1):
        begin = "x" if at == 1 else f"h{at - 1}"
        inner = f"""o{at - 1} = Loop (m, yes, {begin}) <body = iteration{at}
           (int64 i{at}, bool c{at}, float[p{at},q{at}] h{at}) => (bool g{at}, float[r{at},s{at}] o{at}) {{
            g{at} = Identity(c{at})
            {inner}
        }}>"""
    graph = read(
        f"deep (float[a,b] x, int64 m) => (float[y,z] o0) <bool yes = {{1}}> {{ {inner} }}"
    )
    assert loop_types(graph, x=(2, 3)) == [TensorType(F32, (2, 3))]
    while any(node.bodies for node in graph):
        graph = only(graph, "Loop").bodies["body"]
        assert graph.inputs[2].type == TensorType(F32, (2, 3))
