"""On a device as on the processor, an index outside its axis is an error that names the
operator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from tests.backends.opencl.test_c_opencl import DeviceModel, _queue
from tests.runtime import test_indices as on_processor
from tests.runtime.models import assert_same
from tests.runtime.test_c_api import RUNTIME_ERROR, SUCCESS
from whence.graph.builder import GraphBuilder
from whence.interop.opencl import get_device
from whence.runtime.engine import Engine
from whence.types import DType


@pytest.mark.parametrize("fused", [False, True], ids=["given", "computed"])
@pytest.mark.parametrize("op", on_processor.OPS)
def test_an_index_outside_its_axis_is_an_error(op: str, fused: bool, engine: Engine) -> None:
    on_processor.test_an_index_outside_its_axis_is_an_error(op, fused, engine)


@pytest.mark.parametrize(
    "case",
    [
        on_processor.test_indices_of_32_bits,
        on_processor.test_one_hot_has_no_place_for_it,
        on_processor.test_lengths_of_sequences,
        on_processor.test_positions_of_an_embedding,
        on_processor.test_many_rows_on_several_threads,
        on_processor.test_a_branch_that_is_not_taken_looks_nowhere,
    ],
)
def test_other_indices(case: Any, engine: Engine) -> None:
    case(engine)


def test_in_c(engine: Engine, tmp_path: Path) -> None:
    """Whoever waits is told, once, and the next execution is as good as new."""
    context = cl.Context([get_device(engine)])
    build = GraphBuilder("lookup")
    x, i = build.input("x", DType.F32, [5, 3]), build.input("i", DType.I64, [2, 3])
    build.output("y", build.op("GatherElements", x, i))
    model = DeviceModel(build.finish(), context, tmp_path)
    _, stream = model.on(_queue(context))
    data = np.arange(15, dtype=np.float32).reshape(5, 3)
    good, bad = np.full((2, 3), -1), np.full((2, 3), 7)
    for _ in range(2):
        assert model.execute(stream, (data, bad))[0] == SUCCESS
        assert model.execute(stream, (data, good))[0] == SUCCESS
        assert model.code.whence_stream_wait(stream) == RUNTIME_ERROR
        assert model.code.whence_stream_wait(stream) == SUCCESS
        assert_same(model.run(stream, data, good), model.graph.run([data, good]))
    model.code.whence_stream_destroy(stream)
    model.close()
