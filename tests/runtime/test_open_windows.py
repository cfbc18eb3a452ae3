"""Convolutions, pools and what else slides over images: compiled once for images of any size, equal
to ONNX Runtime's for each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.runtime.windows import MODELS, SHAPES, image, tolerance
from whence import api
from whence.runtime.engine import Engine


@pytest.mark.parametrize("name", MODELS)
def test_one_compilation_serves_images_of_any_size(
    engine: Engine, tmp_path: Path, name: str
) -> None:
    graph, path = MODELS[name](), tmp_path / "m.onnx"
    api.save(graph, path)
    peer = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    model = api.compile_model(graph, engine=engine)
    for shape in SHAPES:
        x = image(graph, shape)
        made = model(x)
        for got, want in zip(
            made if isinstance(made, tuple) else (made,), peer.run(None, {"x": x}), strict=True
        ):
            np.testing.assert_allclose(
                got, want, rtol=1e-4, atol=tolerance(name), err_msg=str(shape)
            )
    assert model.compilations == 1
