from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.ops.oracle import (
    assert_close,
    assert_infers,
    case_name,
    check_node_case,
    evaluate,
    flops,
    onnxruntime_outputs,
    parameters,
)
from whence import api
from whence.errors import ModelError
from whence.graph.builder import GraphBuilder
from whence.ops.neural.pool import OPS
from whence.types import DType

DEFINITIONS = {definition.name: definition for definition in OPS}
CASES = {
    "MaxPool": "maxpool",
    "AveragePool": "averagepool",
    "LpPool": "lppool",
    "GlobalAveragePool": "globalaveragepool",
    "GlobalMaxPool": "globalmaxpool",
    "MaxUnpool": "maxunpool",
    "RoiAlign": "roialign",
}
# These cases state their answers to four decimals.
PRINTED = {
    "test_averagepool_2d_ceil_last_window_starts_on_pad",
    "test_roialign_aligned_false",
    "test_roialign_aligned_true",
}
# The indices here count positions in a 4×4 tensor, though a 5×5 one is asked for; see
# `test_unpool_undoes_pool`.
MISTAKEN = {"test_maxunpool_export_with_output_shape"}


@pytest.mark.parametrize(
    "case", [case for case in parameters(CASES) if case.name not in MISTAKEN], ids=case_name
)
def test_onnx_node_cases(case):
    definition = DEFINITIONS[case.model.graph.node[0].op_type]
    check_node_case(definition, case, atol=1e-4 if case.name in PRINTED else 1e-5)


def random_pool(seed):
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    rank = pick.choice([1, 2, 2, 3])
    kernel = tuple(pick.randint(1, 4) for _ in range(rank))
    attrs = {
        "kernel_shape": kernel,
        "strides": tuple(pick.randint(1, 3) for _ in kernel),
        "ceil_mode": pick.randint(0, 1),
    }
    padding = pick.choice(["pads", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if padding == "pads":
        attrs["pads"] = tuple(pick.randint(0, size - 1) for size in kernel * 2)
    else:
        attrs["auto_pad"] = padding
    # ONNX Runtime leaves dilation out of the reckoning for SAME.
    if not padding.startswith("SAME"):
        attrs["dilations"] = tuple(pick.randint(1, 2) for _ in kernel)
    x = rng.standard_normal(
        (pick.choice([1, 2]), 3, *(pick.randint(7, 11) for _ in kernel)), dtype=np.float32
    )
    return pick, attrs, x


@pytest.mark.parametrize("seed", range(40))
def test_max_pool_like_onnxruntime(seed):
    pick, attrs, x = random_pool(seed)
    (actual,) = evaluate(DEFINITIONS["MaxPool"], attrs, [x])
    assert_infers(DEFINITIONS["MaxPool"], attrs, [x], [actual])
    attrs = {**attrs, "storage_order": pick.randint(0, 1)}
    values, indices = evaluate(DEFINITIONS["MaxPool"], attrs, [x], 2)
    expected = onnxruntime_outputs("MaxPool", attrs, [x], 2)
    np.testing.assert_array_equal(actual, values)
    assert_close(values, expected[0])
    assert_close(indices, expected[1])
    assert_infers(DEFINITIONS["MaxPool"], attrs, [x], [values, indices])
    small = (x * 40).astype(np.int8)
    assert_close(
        evaluate(DEFINITIONS["MaxPool"], attrs, [small])[0],
        onnxruntime_outputs("MaxPool", attrs, [small])[0],
    )


@pytest.mark.parametrize("seed", range(40))
def test_average_and_lp_pool_like_onnxruntime(seed):
    pick, attrs, x = random_pool(seed)
    for op, extra in (
        ("AveragePool", {"count_include_pad": pick.randint(0, 1)}),
        ("LpPool", {"p": pick.randint(1, 3)}),
    ):
        (actual,) = evaluate(DEFINITIONS[op], {**attrs, **extra}, [x])
        assert_close(actual, onnxruntime_outputs(op, {**attrs, **extra}, [x])[0])
        assert_infers(DEFINITIONS[op], {**attrs, **extra}, [x], [actual])


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 4, 6, 7), (2, 2, 3, 4, 5)])
def test_global_pools_like_onnxruntime(rng, shape):
    x = rng.standard_normal(shape, dtype=np.float32)
    for op, attrs, opset in (
        ("GlobalAveragePool", {}, 22),
        ("GlobalMaxPool", {}, 22),
        ("GlobalLpPool", {"p": 3}, 21),
    ):
        (actual,) = evaluate(DEFINITIONS[op], attrs, [x])
        assert_close(actual, onnxruntime_outputs(op, attrs, [x], opset=opset)[0])
        assert_infers(DEFINITIONS[op], attrs, [x], [actual])


def test_a_window_of_minus_infinities_points_at_data():
    x = np.full((1, 1, 3), -np.inf, np.float32)
    values, indices = evaluate(
        DEFINITIONS["MaxPool"], {"kernel_shape": (2,), "pads": (1, 1)}, [x], 2
    )
    np.testing.assert_array_equal(values, np.full((1, 1, 4), -np.inf))
    np.testing.assert_array_equal(indices, [[[0, 0, 1, 2]]])


@pytest.mark.parametrize("with_shape", [False, True])
def test_unpool_undoes_pool(rng, with_shape):
    x = rng.standard_normal((2, 3, 6, 9 if with_shape else 8), dtype=np.float32)
    attrs = {"kernel_shape": (2, 2), "strides": (2, 2)}
    values, indices = evaluate(DEFINITIONS["MaxPool"], attrs, [x], 2)
    inputs = [values, indices, np.array(x.shape)] if with_shape else [values, indices]
    (actual,) = evaluate(DEFINITIONS["MaxUnpool"], attrs, inputs)
    assert_close(actual, onnxruntime_outputs("MaxUnpool", attrs, inputs)[0])
    np.testing.assert_array_equal(actual[actual != 0], x[actual != 0])
    assert np.count_nonzero(actual) == values.size


@pytest.mark.parametrize("seed", range(24))
def test_regions_like_onnxruntime(seed):
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    x = rng.standard_normal((2, 3, pick.randint(4, 12), pick.randint(4, 12)), dtype=np.float32)
    rois = np.sort(rng.uniform(-3, 30, (5, 2, 2)), axis=1).reshape(5, 4).astype(np.float32)
    rows, columns, scale = pick.randint(1, 4), pick.randint(1, 4), pick.choice([0.25, 0.5, 1.0])
    attrs: dict[str, Any] = {
        "output_height": rows,
        "output_width": columns,
        "sampling_ratio": pick.randint(0, 3),
        "spatial_scale": scale,
    }
    attrs["mode"] = pick.choice(["avg", "max"])
    attrs["coordinate_transformation_mode"] = pick.choice(["half_pixel", "output_half_pixel"])
    inputs: list[Any] = [x, rois, rng.integers(0, 2, 5)]
    assert_close(
        evaluate(DEFINITIONS["RoiAlign"], attrs, inputs)[0],
        onnxruntime_outputs("RoiAlign", attrs, inputs, opset=16)[0],
    )
    attrs = {"pooled_shape": (rows, columns), "spatial_scale": scale}
    inputs = [
        x,
        np.concatenate((rng.integers(0, 2, (5, 1)), np.abs(rois)), axis=1).astype(np.float32),
    ]
    assert_close(
        evaluate(DEFINITIONS["MaxRoiPool"], attrs, inputs)[0],
        onnxruntime_outputs("MaxRoiPool", attrs, inputs, opset=16)[0],
    )


def test_flops():
    x, y = np.ones((1, 4, 8, 8)), np.ones((1, 4, 4, 4))
    assert flops(DEFINITIONS["MaxPool"], {"kernel_shape": (3, 2)}, [x], [y]) == 4 * 16 * 6
    assert flops(DEFINITIONS["GlobalAveragePool"], {}, [x], [np.ones((1, 4, 1, 1))]) == 4 * 64


@pytest.mark.parametrize("shape", [(1, 0, 1, 3), (1, 2, 0, 3)])
def test_the_largest_of_no_elements(shape):
    (found,) = evaluate(DEFINITIONS["GlobalMaxPool"], {}, [np.zeros(shape, np.float32)])
    np.testing.assert_array_equal(found, np.full((*shape[:2], 1, 1), -np.inf, np.float32))


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("AveragePool", {"kernel_shape": (2**31, 2), "auto_pad": "SAME_LOWER"}),
        ("MaxPool", {"kernel_shape": (2, 2), "strides": (1, 2**40)}),
        ("ConvTranspose", {"output_shape": (10, 8), "output_padding": (1, 2**63 - 1)}),
    ],
)
def test_a_window_beyond_every_address_is_refused(op, attrs):
    graph = GraphBuilder("far")
    x = graph.input("x", DType.F32, [1, 1, 3, 3])
    weights = [graph.const(np.ones((1, 2, 3, 3), np.float32))] if op == "ConvTranspose" else []
    graph.output("y", graph.op(op, x, *weights, **attrs))
    with pytest.raises(ModelError, match="beyond 2147483647"):
        api.compile_model(graph.finish())
