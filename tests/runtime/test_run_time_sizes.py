"""What stands behind a size that only a run knows runs in native code, for every such size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

from tests.cpu_backend import cpu_backend
from tests.runtime.models import assert_same, outputs, parsed
from tests.runtime.run_time_sizes import CASES, COMPRESSED, NON_ZERO, RESHAPE, RESIZE, Case
from whence.api import compile_model
from whence.api.prepare import prepare_again
from whence.attribution.measure import profile_executable
from whence.building.program import Program
from whence.errors import WhenceError
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.runtime.stream import Stream, StreamFlags


def _parsed(case: Case) -> onnx.ModelProto:
    return parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>' + case.model)


def _session(case: Case) -> ort.InferenceSession:
    text = _parsed(case).SerializeToString()
    return ort.InferenceSession(text, providers=["CPUExecutionProvider"])


def _behind(engine: Engine, program: Program) -> list[Executable]:
    """What was compiled behind the program's run-time sizes, and behind those in turn."""
    found = []
    for (number, _), body in cpu_backend(engine).bodies(program)._known.items():
        if body is not None and program.graph[number].op == "Continuation":
            found.append(body._executable)
            for each in body._executable.programs:
                found += _behind(engine, each)
    return found


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_only_a_run_knows(name: str, engine: Engine) -> None:
    case = CASES[name]
    session, model = _session(case), compile_model(parsed(case.model), engine=engine)
    for feeds in [*case.calls, case.calls[0]]:
        assert_same(outputs(model(**feeds)), session.run(None, feeds))
    behind = {id(each): each for program in model.programs for each in _behind(engine, program)}
    assert behind
    assert model.compilations == 1
    for each in behind.values():
        assert each.compilations <= case.most_compilations, each


@pytest.mark.parametrize(
    ("case", "wrong", "why"),
    [
        (RESHAPE, {"size": [5, -1, 8]}, r"operator 'r' \(Reshape\).* does not divide"),
        (RESHAPE, {"grown": [4, -3]}, r"operator 'e' \(Expand\).*negative"),
        (
            RESIZE,
            {"size": [1, 2, -4, 8]},
            r"operator 'r' \(Resize\).*axis 2 would have the size -4",
        ),
        (RESIZE, {"size": [1, 3, 4, 8]}, r"^operator 'c' \(Conv\).*f32\[1,3,4,8\]"),
        (COMPRESSED, {"k": [21]}, r"operator 'best' \(TopK\).*k is 21, but axis 0 has 20"),
        (COMPRESSED, {"k": [-1]}, r"operator 'best' \(TopK\).*k is -1"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_sizes_that_cannot_be(
    case: Case, wrong: dict[str, list[int]], why: str, engine: Engine
) -> None:
    model = compile_model(parsed(case.model), engine=engine)
    given = {name: np.array(value) for name, value in wrong.items()}
    with pytest.raises(WhenceError, match=why):
        model(**{**case.calls[0], **given})
    assert_same(outputs(model(**case.calls[1])), _session(case).run(None, case.calls[1]))


def test_a_profile_has_what_is_behind_the_size(engine: Engine) -> None:
    model = compile_model(parsed(NON_ZERO.model), engine=engine)
    found = profile_executable(model, NON_ZERO.calls[0], runs=3, warmup=1)
    assert found.memory is not None
    assert len(found.memory.alive_bytes) == len(found.kernels)
    assert 0 < found.memory.peak_bytes <= found.memory.arena_bytes
    assert found.coverage.lost == 0
    spent = sum(row.time_ns for row in found.sources) + sum(found.residual_ns.values())
    assert spent == found.wall_ns
    assert all(row.native for row in found.kernels)
    behind = {row.name: row for row in found.sources}
    for name in ("a", "b", "y"):
        assert behind[name].kernels, name
        assert "reference" not in behind[name].became
    assert all(row.calls == 3 for row in found.kernels)
    assert {event.kernel for event in found.timeline} == {row.id for row in found.kernels}


def test_operators_left_out_of_a_model_with_such_sizes(engine: Engine) -> None:
    """An exact profile compiles kernels again; what is behind the size runs as it is."""
    graph = parsed(NON_ZERO.model)
    model = compile_model(graph, engine=engine)
    found = profile_executable(
        model, NON_ZERO.calls[0], runs=2, warmup=1, exact=prepare_again(graph, engine=engine)
    )
    spent = sum(row.time_ns for row in found.sources) + sum(found.residual_ns.values())
    assert spent == found.wall_ns


def test_a_profile_of_sizes_that_change_has_each_kernel_once(engine: Engine) -> None:
    model = compile_model(parsed(NON_ZERO.model), engine=engine)
    stream = Stream(engine, StreamFlags.PROFILING)
    for feeds in (NON_ZERO.calls[0], NON_ZERO.calls[1], NON_ZERO.calls[4]):
        model.perform(stream, **feeds)
    assert stream.profiler is not None
    (outer, inner) = stream.profiler.parts(model.programs[0])
    assert inner.first_step == len(outer.program.steps)
    steps = stream.profiler.samples()["step"].tolist()
    # All but the last, which is the entry to what is behind the size.
    ran = [*range(inner.first_step - 1)]
    ran += range(inner.first_step, inner.first_step + len(inner.program.steps))
    assert steps == 3 * ran


def test_from_the_cache(tmp_path: Path, engine: Engine) -> None:
    """Another process finds the program; what is behind the size is prepared anew."""
    path = tmp_path / "picked.onnx"
    onnx.save(_parsed(NON_ZERO), path)
    session = _session(NON_ZERO)
    for _ in range(2):
        model = compile_model(path, engine=engine)
        for feeds in NON_ZERO.calls[:3]:
            assert_same(outputs(model(**feeds)), session.run(None, feeds))


def test_state_behind_such_a_size(engine: Engine) -> None:
    graph = parsed(
        """
counted (float[20] x, float[20,8] rows, float[8] total) => (float[8] sum)
<float zero = {0}, int64[1] first = {0}> {
  m = Greater(x, zero)
  r = Compress <axis = 0> (rows, m)
  n = LayerNormalization(r, total)
  s = ReduceSum <keepdims = 0> (n, first)
  sum = Add(s, total)
}"""
    )
    model = compile_model(graph, engine=engine, state={"total": "sum"})
    total = np.zeros(8, np.float32)
    for feeds in NON_ZERO.calls:
        (total,) = graph.run({**feeds, "total": total})
        model(**feeds)
        np.testing.assert_allclose(model.state["total"], total, rtol=1e-4, atol=1e-5)
