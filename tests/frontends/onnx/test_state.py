"""Models with state as ONNX files: their variables are inputs and outputs, and variables again when
whence reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import whence
from tests.runtime.stateful import GRAPHS, calls, counter, interpreted
from whence.errors import ModelError
from whence.graph import Graph
from whence.graph.state import initial_state


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS.keys())
def test_other_runtimes_are_handed_the_state(make: Callable[[], Graph], tmp_path: Path) -> None:
    graph, file = make(), tmp_path / "model.onnx"
    whence.save(graph, file)
    session = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    outputs = [each.name for each in session.get_outputs()]
    properties = session.get_modelmeta().custom_metadata_map
    pairs = dict(json.loads(properties["whence.state"]))
    assert pairs == {node.name: f"{node.name}_next" for node in graph.variables}
    inputs = calls(graph, 10)
    # The first call leaves the state out: its default is what the model begins with.
    state: dict[str, np.ndarray] = {}
    for given, expected in zip(inputs, interpreted(graph, inputs), strict=True):
        feeds = dict(zip((node.name for node in graph.inputs), given, strict=True))
        found = dict(zip(outputs, session.run(None, feeds | state), strict=True))
        state = {name: found[after] for name, after in pairs.items()}
        for node, wanted in zip(graph.outputs, expected, strict=True):
            np.testing.assert_allclose(found[node.name], wanted, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS.keys())
def test_whence_reads_variables_again(make: Callable[[], Graph], tmp_path: Path) -> None:
    graph, file = make(), tmp_path / "model.onnx"
    whence.save(graph, file)
    again = whence.load(file)
    assert [node.name for node in again.inputs] == [node.name for node in graph.inputs]
    assert [node.name for node in again.outputs] == [node.name for node in graph.outputs]
    before, after = initial_state(graph), initial_state(again)
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])
    inputs = calls(graph, 10)
    for ours, theirs in zip(interpreted(again, inputs), interpreted(graph, inputs), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
    model = whence.compile(file, threads=1)
    made = [model(*given) for given in inputs]
    assert len(made) == len(inputs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7", "should be a list"),
        ("[" * 100_000, "is not JSON"),
        ('[["x"]]', "is malformed at entry 1"),
        ('[["x", "y"]]', "are not an input with a default and an output"),
        ('[["n", "nothing"]]', "are not an input with a default and an output"),
    ],
)
def test_wrong_properties_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    whence.save(counter(), file)
    model = onnx.load(file)
    for entry in model.metadata_props:
        if entry.key == "whence.state":
            entry.value = text
    onnx.save(model, file)
    with pytest.raises(ModelError, match=message):
        whence.load(file)
