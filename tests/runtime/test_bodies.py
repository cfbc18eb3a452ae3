"""Bodies of loops and conditions are compiled, and do what the interpreter does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu_backend import cpu_backend
from tests.runtime.models import assert_same, outputs, parsed
from whence.api import compile_model
from whence.building.program import Program
from whence.graph import Graph
from whence.runtime import bodies as module
from whence.runtime.engine import Engine

RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 4)).astype(np.float32) / 2


def _floats(values: np.ndarray) -> str:
    return ", ".join(str(float(value)) for value in values.reshape(-1))


LOOP = f"""
loop (float[1,4] x, int64 n) => (float[1,4] last, float[m,1,4] all) <float[4,4] w = {{{_floats(W)}}}, bool yes = {{1}}> {{
  last, same, all = Loop (n, yes, x, w) <
   body = iteration (int64 i, bool c, float[1,4] h, float[4,4] v) => (bool go, float[1,4] k, float[4,4] u, float[1,4] s) {{
    go = Identity(c)
    p = MatMul(h, v)
    k = Tanh(p)
    u = Identity(v)
    s = Add(k, h)
  }}>
}}"""
GROWING = """
grow (float[1,4] x, int64 n) => (float[m,4] y) <bool yes = {1}> {
  y = Loop (n, yes, x) <body = iteration (int64 i, bool c, float[r,4] h) => (bool go, float[q,4] k) {
    go = Identity(c)
    p = Softmax(h)
    k = Concat <axis = 0> (h, p)
  }>
}"""
BRANCH = f"""
branch (float[1,4] x, bool c) => (float[n,4] y) <float[4,4] w = {{{_floats(W)}}}> {{
  y = If (c) <
    then_branch = yes () => (float[1,4] a) {{ a = MatMul(x, w) }},
    else_branch = no () => (float[2,4] b) {{ b = Concat<axis = 0>(x, x) }}
  >
}}"""


def _programs(model: Any) -> dict[str, list[Program] | None]:
    """The programs of the compiled bodies; `None` for one that the interpreter runs."""
    (program,) = model.programs
    return {
        name: None if body is None else list(body._executable.programs)
        for (_, name), body in cpu_backend(model.engine).bodies(program)._known.items()
    }


def _compiled(graph: Graph, engine: Engine, given: list[np.ndarray]) -> Any:
    model = compile_model(graph, engine=engine)
    for _ in range(2):
        assert_same(outputs(model(*given)), graph.run(given))
    return model


@pytest.mark.parametrize("iterations", [0, 1, 5])
def test_a_loop(iterations: int, engine: Engine) -> None:
    model = _compiled(
        parsed(LOOP), engine, [RNG.standard_normal((1, 4)).astype(np.float32), np.array(iterations)]
    )
    if iterations:
        (program,) = _programs(model)["body"] or []
        assert program.steps
        assert all(step.symbol for step in program.steps)
        # The weights that every iteration hands on are a constant of the program, and no output of
        # it.
        assert program.weights.nbytes >= W.nbytes
        assert len(program.graph.inputs) == 3
        assert len(program.graph.outputs) == 2, "nor is the condition"


def test_a_loop_whose_shapes_grow_is_compiled_for_open_sizes(engine: Engine) -> None:
    model = _compiled(
        parsed(GROWING), engine, [RNG.standard_normal((1, 4)).astype(np.float32), np.array(6)]
    )
    (body,) = cpu_backend(engine).bodies(model.programs[0])._known.values()
    assert body is not None
    assert len(body._executable.programs) == 6
    # For the first shape, for sizes that differ, and for [4,4].
    assert body._executable.compilations <= 3


def test_a_body_is_not_compiled_for_ever(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_COMPILATIONS", 1)
    model = _compiled(
        parsed(GROWING), engine, [RNG.standard_normal((1, 4)).astype(np.float32), np.array(6)]
    )
    assert len(_programs(model)["body"] or []) == 1


def test_branches_of_different_sizes(engine: Engine) -> None:
    graph = parsed(BRANCH)
    x = RNG.standard_normal((1, 4)).astype(np.float32)
    model = compile_model(graph, engine=engine)
    for choice in (True, False, True):
        given = [x, np.array(choice)]
        assert_same(outputs(model(*given)), graph.run(given))
    found = _programs(model)
    assert found["then_branch"] is not None, "a product"
    assert found["else_branch"] is None, "not worth it"
