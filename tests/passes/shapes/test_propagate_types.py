"""Types follow what became known, forwards, into nested graphs and out of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.passes.control.nested import read_text
from tests.passes.rewriting import only
from whence.api import compile_model
from whence.errors import ModelError
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder
from whence.ops.types.inference import Inference
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.shapes.propagate_types import PropagateTypes, TypeRefresher, has_gap
from whence.types import DType, OptionalType, SequenceType, TensorType

F32 = DType.F32


def chain(length: int = 3) -> Graph:
    build = GraphBuilder()
    value = build.input("x", F32, None)
    for _ in range(length):
        value = build.op("Relu", value)
    build.output("y", build.op("Transpose", value, perm=(1, 0)))
    return build.finish()


def test_what_an_input_learnt_reaches_the_end() -> None:
    graph = chain()
    graph.set_types(graph.inputs[0], [TensorType(F32, ("n", 3))])
    (report,) = run_passes(graph, [PropagateTypes()], check=CheckLevel.INVARIANTS)
    assert report.rules == {"a type follows from the types of the inputs": 4}
    assert only(graph, "Transpose").type == TensorType(F32, (3, "n"))
    assert run_passes(graph, [PropagateTypes()])[0].changes == 0


def test_nothing_known_is_forgotten_or_contradicted() -> None:
    build = GraphBuilder()
    x = build.input("x", F32, [None, 3])
    build.output("y", build.op("Abs", build.op("Relu", x)))
    graph = build.finish()
    graph.set_types(only(graph, "Relu"), [TensorType(F32, ("n", None))])
    graph.set_types(only(graph, "Abs"), [TensorType(F32, (None, 4))])
    run_passes(graph, [PropagateTypes()])
    assert only(graph, "Relu").type == TensorType(F32, ("n", 3))
    assert only(graph, "Abs").type == TensorType(F32, (None, 4))


def test_what_does_not_fit_together_is_left_to_fail_at_run_time() -> None:
    build = GraphBuilder()
    x, z = build.input("x", F32, None), build.input("z", F32, [2])
    build.output("y", build.op("Add", x, z))
    graph = build.finish()
    graph.set_types(graph.inputs[0], [TensorType(F32, (3,))])
    assert run_passes(graph, [PropagateTypes()])[0].changes == 0


@pytest.mark.parametrize(
    "op",
    ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Mod", "Equal", "Less", "And",
     "Greater", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "Where", "MatMul"],
)  # fmt: skip
@pytest.mark.parametrize("open_shape", [["m", 6, 6], [None, 6, 6], None])
def test_shapes_of_a_call_that_do_not_fit_are_refused(op: str, open_shape: Any) -> None:
    """Also where only the rank of the result is used, so that nobody would compute it."""
    dtype = DType.BOOL if op in ("And", "Or", "Xor") else DType.U8 if "Bit" in op else F32
    build = GraphBuilder()
    x, y = build.input("x", dtype, [3, 17, 6, 6]), build.input("y", dtype, open_shape)
    inputs = [x, y] if op != "Where" else [build.const(np.array(True)), x, y]
    attrs: dict[str, Any] = {"direction": "LEFT"} if op == "BitShift" else {}
    made = build.op(op, *inputs, name="wrong", **attrs)
    build.output("size", build.op("Size", build.op("Shape", made)))
    model = compile_model(build.finish())
    with pytest.raises(ModelError, match=f"operator 'wrong' .{op}.: .*17 and 4"):
        model(np.ones((3, 17, 6, 6), dtype.numpy), np.ones((4, 6, 6), dtype.numpy))


def test_only_those_concerned_are_asked(monkeypatch) -> None:
    build = GraphBuilder()
    x, z = build.input("x", F32, [4]), build.input("z", F32, None)
    value = x
    for _ in range(200):
        value = build.op("Relu", value)
    build.output("y", build.op("Add", value, build.op("Neg", z)))
    graph = build.finish()
    graph.set_types(graph.inputs[1], [TensorType(F32, (4,))])
    asked = 0
    infer = Inference.infer

    def counting(self: Inference, query: Any) -> Any:
        nonlocal asked
        asked += 1
        return infer(self, query)

    monkeypatch.setattr(Inference, "infer", counting)
    PropagateTypes().run(Rewriter(graph, "test"))
    assert asked == 2
    assert only(graph, "Add").type == TensorType(F32, (4,))


BRANCH = """
<ir_version: 10, opset_import: ["" : 21]>
main (bool c, float[n, m] x, int64[2] s) => (float[p, q] y) {
    a = Reshape(x, s)
    b = If (c) <
        then_branch = yes () => (float[r, t] u) { u = Relu(a) },
        else_branch = no () => (float[r, t] v) { v = Neg(a) }
    >
    y = Abs(b)
}
"""


def test_nested_graphs_learn_what_they_capture_and_an_if_what_its_branches_agree_on(
    tmp_path: Path,
) -> None:
    graph = read_text(BRANCH, tmp_path)
    branch = only(graph, "If")
    graph.set_types(only(graph, "Reshape"), [TensorType(F32, (4, 5))])
    types = TypeRefresher(graph)
    types.learnt.add(only(graph, "Reshape").id)
    for node in graph:
        types.visit(node)
    assert [
        only(body, op).type
        for body, op in zip(branch.bodies.values(), ("Relu", "Neg"), strict=True)
    ] == [TensorType(F32, (4, 5))] * 2
    assert branch.type == TensorType(F32, (4, 5))
    assert only(graph, "Abs").type == TensorType(F32, (4, 5))


def test_constants_count_as_news() -> None:
    build = GraphBuilder()
    x, s = build.input("x", F32, [6]), build.const(np.array([2, 3]))
    build.output("y", build.op("Reshape", x, s))
    graph = build.finish()
    reshape, constant = only(graph, "Reshape"), only(graph, "Const")
    graph.set_types(reshape, [TensorType(F32, (None, None))])
    types = TypeRefresher(graph)
    types.visit(reshape)
    assert reshape.type == TensorType(F32, (None, None))
    types.learnt.add(constant.id)
    types.visit(reshape)
    assert reshape.type == TensorType(F32, (2, 3))
    assert types.learnt == {constant.id, reshape.id}


def test_gaps() -> None:
    assert has_gap(TensorType(F32))
    assert has_gap(TensorType(F32, (1, None)))
    assert has_gap(TensorType(DType.UNDEFINED, (1,)))
    assert not has_gap(TensorType(F32, ("n", 1)))
    assert not has_gap(SequenceType(TensorType(F32)))
    assert not has_gap(OptionalType(TensorType(F32)))
