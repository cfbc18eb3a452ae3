"""What a file declares of the values its operators make is a claim: shapes follow from operands,
and one that says otherwise is refused or does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from whence.api import compile_model, load
from whence.errors import ModelError
from whence.ops.definition import Call
from whence.ops.registry import evaluate
from whence.runtime.engine import Engine

X = np.arange(12, dtype=np.float32).reshape(3, 4)
# An operator, its first operand, the operands that decide its output's shape, and those after them.
CASES: dict[str, tuple[Mapping[str, Any], Sequence[Any], Sequence[Any], Sequence[Any]]] = {
    "Reshape": ({}, [X], [np.array([4, 3])], []),
    "Expand": ({}, [X[:1]], [np.array([2, 4])], []),
    "Slice": ({}, [X], [np.array([0]), np.array([2])], []),
    "Tile": ({}, [X], [np.array([2, 1])], []),
    "Pad": ({}, [X], [np.array([1, 0, 1, 0])], []),
    "Unsqueeze": ({}, [X], [np.array([1])], []),
    "Squeeze": ({}, [X[None]], [np.array([0])], []),
    "ConstantOfShape": ({}, [], [np.array([2, 3])], []),
    "Range": ({}, [], [np.array(0), np.array(5), np.array(1)], []),
    "OneHot": ({}, [np.array([1, 2])], [np.array(4)], [np.array([0, 1], np.float32)]),
    "Resize": (
        {"mode": "nearest"},
        [X[None, None], None, None],
        [np.array([1, 1, 6, 8])],
        [],
    ),
    "TopK": ({}, [X], [np.array([2])], []),
    "Trilu": ({}, [X], [np.array(1)], []),
    "Split": ({"axis": 1}, [X], [np.array([1, 3])], []),
    "ReduceSum": ({"keepdims": 0}, [X], [np.array([1])], []),
}
OUTPUTS = {"TopK": 2, "Split": 2}
LIES = [(2, 100_000_000), (1, 1, 1)]


def _truth(op: str) -> tuple[Any, ...]:
    attrs, first, deciding, rest = CASES[op]
    return evaluate(Call(op, attrs, (*first, *deciding, *rest), OUTPUTS.get(op, 1)))


def _model(op: str, declared: Sequence[int], *, at_run_time: bool) -> tuple[ModelProto, Any]:
    """The operator behind a Transpose pair. The operands that decide its shape are inputs, or
    computed from constants, which is not known when the file is read.
    """
    attrs, first, deciding, rest = CASES[op]
    operands = [*first, *deciding, *rest]
    late = range(len(first), len(first) + len(deciding))
    given, constants, nodes, names = {}, [], [], []
    for place, value in enumerate(operands):
        name = f"v{place}"
        names.append("" if value is None else name)
        if value is None:
            continue
        if place in late and not at_run_time:
            constants.append(numpy_helper.from_array(value, f"c{place}"))
            constants.append(numpy_helper.from_array(np.zeros_like(value), f"zero{place}"))
            nodes.append(helper.make_node("Add", [f"c{place}", f"zero{place}"], [name]))
        elif place in late or value.dtype == np.float32:
            given[name] = value
        else:
            constants.append(numpy_helper.from_array(value, name))
    truth = _truth(op)
    made = [f"y{number}" for number in range(len(truth))]
    nodes.append(helper.make_node(op, names, made, name="liar", **attrs))
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in given.items()}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kinds[name], given[name].shape) for name in given],
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), declared
            )
            for name, value in zip(made, truth, strict=True)
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, given


def _written(model: ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _same(made: Any, truth: Sequence[Any]) -> None:
    for found, wanted in zip(made if isinstance(made, tuple) else (made,), truth, strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("op", CASES)
def test_a_shape_that_constants_decide(
    op: str, lie: Sequence[int], engine: Engine, tmp_path: Path
) -> None:
    """The error names the operator, what it makes and what the file says; where it was clear from
    the start what the operator makes, the file's word does not matter.
    """
    model, given = _model(op, lie, at_run_time=False)
    path = _written(model, tmp_path)
    refusal = ""
    try:
        made = compile_model(load(path), engine=engine)(**given)
    except ModelError as error:
        refusal = str(error)
    if not refusal:
        _same(made, _truth(op))
        return
    assert refusal.startswith(f"operator 'liar' ({op}) makes ")
    assert f"[{','.join(map(str, lie))}]" in refusal
    assert "\n" not in refusal


@pytest.mark.parametrize("op", ["Reshape", "Slice", "Unsqueeze", "Tile", "Expand", "OneHot"])
def test_a_contradiction_is_refused(op: str, engine: Engine, tmp_path: Path) -> None:
    model, _ = _model(op, (1000, 4), at_run_time=False)
    shape = ",".join(map(str, _truth(op)[0].shape))
    with pytest.raises(
        ModelError,
        match=rf"^operator 'liar' \({op}\) makes f32\[{shape}\], and the model declares"
        r" f32\[1000,4\]$",
    ):
        compile_model(load(_written(model, tmp_path)), engine=engine)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("op", CASES)
def test_a_shape_that_the_call_decides(
    op: str, lie: Sequence[int], engine: Engine, tmp_path: Path
) -> None:
    """As in ONNX Runtime: the operand given at run time decides."""
    model, given = _model(op, lie, at_run_time=True)
    _same(compile_model(load(_written(model, tmp_path)), engine=engine)(**given), _truth(op))


def test_sizes_of_another_call_are_no_contradiction(engine: Engine, tmp_path: Path) -> None:
    """Exporters leave the sizes they traced with beside open inputs."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Concat", ["s", "minus"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 2, 2])],
        [helper.make_tensor_value_info("y", 1, [1, 4])],
        [numpy_helper.from_array(np.array([-1]), "minus")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    path = _written(model, tmp_path)
    for run in (compile_model(path, engine=engine), compile_model(load(path), engine=engine)):
        np.testing.assert_array_equal(run(x), x.reshape(3, 4))


def test_what_a_loop_carries_has_the_shape_it_has(engine: Engine, tmp_path: Path) -> None:
    """A body that grows its value, and declares that it does not."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["v", "v"], ["grown"], axis=0),
            helper.make_node("Identity", ["c"], ["go"]),
        ],
        "body",
        [value("i", 7, []), value("c", 9, []), value("v", 1, [1])],
        [value("go", 9, []), value("grown", 1, [1])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
        "g",
        [value("n", 7, []), value("x", 1, [1])],
        [value("y", 1, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    run = compile_model(load(_written(model, tmp_path)), engine=engine)
    np.testing.assert_array_equal(run(np.array(3), np.ones(1, np.float32)), np.ones(8, np.float32))
