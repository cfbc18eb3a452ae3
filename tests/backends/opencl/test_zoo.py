"""Small real models on a device, against ONNX Runtime: convolutional, recurrent and both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import whence
from whence.passes.equivalence import difference
from whence.runtime.engine import Engine
from zoo.inputs import random_inputs

_TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mnist_conv", "mtcnn_pnet", "chars2vec_en300", "silero_vad_16k_op15", "magika_v3_3"]
)
def test_equals_onnxruntime(name: str, engine: Engine, zoo_model: Callable[[str], Path]) -> None:
    path = zoo_model(name)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = random_inputs(
        name, [(each.name, _TYPES[each.type], each.shape) for each in session.get_inputs()], seed=0
    )
    model = whence.compile(
        path, engine=engine, shapes={name: value.shape for name, value in inputs.items()}
    )
    made = model(**inputs)
    results = made if isinstance(made, tuple) else (made,)
    gaps = [
        difference(np.asarray(was), np.asarray(now))
        for was, now in zip(session.run(None, inputs), results, strict=True)
    ]
    assert max(gaps) <= 1e-4
    (program,) = model.programs
    assert sum(bool(step.symbol) for step in program.steps) > 2
