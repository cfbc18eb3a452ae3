"""Weights with a scale for each block of neighbours, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import whence
from tests.frontends.tflite.making import Model, read, run_litert, run_whence
from tests.frontends.tflite.runtimes import convert, operators
from whence.errors import ModelError

RNG = np.random.default_rng(12)
OUT, DEPTH, BLOCK = 8, 64, 32


def blockwise(
    codes: np.ndarray, scales: np.ndarray, *, size: int = BLOCK, keep: bool = False
) -> Model:
    """A fully connected layer whose weights are 4-bit codes."""
    model = Model()
    x = model.input((2, 3, DEPTH) if keep else (2, DEPTH))
    nybbles = codes.reshape(-1).view(np.uint8) & 15
    w = model.tensor(
        codes.shape, np.int8, type_name="INT4", data=(nybbles[::2] | nybbles[1::2] << 4).tobytes()
    )
    details = schema.BlockwiseQuantizationT()
    details.scales, details.zeroPoints, details.blockSize = model.const(scales), -1, size
    quantised = schema.QuantizationParametersT()
    quantised.quantizedDimension, quantised.details = 0, details
    quantised.detailsType = schema.QuantizationDetails.BlockwiseQuantization
    model.made.tensors[w].quantization = quantised
    shape = (2, 3, OUT) if keep else (2, OUT)
    model.output(model.op("FULLY_CONNECTED", [x, w, -1], shape, keep_num_dims=keep, version=12))
    return model


@pytest.mark.parametrize("keep", [False, True])
def test_fully_connected(keep):
    codes = RNG.integers(-8, 8, (OUT, DEPTH)).astype(np.int8)
    scales = (0.01 + 0.02 * RNG.random((OUT, DEPTH // BLOCK))).astype(np.float16)
    model = blockwise(codes, scales, keep=keep)
    x = RNG.normal(size=(2, 3, DEPTH) if keep else (2, DEPTH)).astype(np.float32)
    weights = codes * np.repeat(scales.astype(np.float32), BLOCK, axis=1)
    exact = x.astype(np.float64) @ weights.T.astype(np.float64)
    np.testing.assert_allclose(run_whence(model, [x])[0], exact, atol=1e-5)
    np.testing.assert_allclose(whence.compile(read(model))(x), exact, atol=1e-5)
    # LiteRT quantises the activations as well, to 8 bits.
    (theirs,) = run_litert(model, [x], reference=False)
    assert np.abs(theirs - exact).max() < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize(("columns", "size"), [(1, 32), (2, 16), (2, 0)])
def test_scales_that_do_not_fit_are_refused(columns, size):
    codes = np.zeros((OUT, DEPTH), np.int8)
    with pytest.raises(ModelError, match="blocks of"):
        read(blockwise(codes, np.ones((OUT, columns), np.float16), size=size))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("suffix", [".tflite", ".circle"])
def test_written_back(keep, suffix, tmp_path):
    codes = RNG.integers(-8, 8, (OUT, DEPTH)).astype(np.int8)
    scales = (0.01 + 0.02 * RNG.random((OUT, DEPTH // BLOCK))).astype(np.float16)
    model = blockwise(codes, scales, keep=keep)
    path = tmp_path / f"again{suffix}"
    record = convert(model, path)
    assert operators(record) == ["FULLY_CONNECTED"]
    (weights,) = [each for each in record.subgraphs[0].tensors if each.type == "INT4"]
    assert weights.quantisation is not None
    assert weights.quantisation.blocks is not None
    x = RNG.normal(size=(2, 3, DEPTH) if keep else (2, DEPTH)).astype(np.float32)
    np.testing.assert_array_equal(
        whence.compile(whence.load(path))(x), whence.compile(read(model))(x)
    )
    if suffix == ".tflite":
        (before,), (after,) = (
            run_litert(each, [x], reference=False) for each in (model, path.read_bytes())
        )
        np.testing.assert_array_equal(after, before)
