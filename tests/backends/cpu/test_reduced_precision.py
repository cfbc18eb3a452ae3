"""Matrix units are used only where the outputs do not show it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_backend import cpu_backend
from whence.api import compile_model, prepare
from whence.attribution.measure import profile_executable
from whence.attribution.policy import REDUCED_PRECISION
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.reduced_precision import LIMIT
from whence.codegen.target import Feature, Target
from whence.errors import InputError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.equivalence import difference
from whence.runtime.engine import Engine
from whence.types import DType

RNG = np.random.default_rng(0)
SHAPE = (1, 256, 28, 28)
has_units = pytest.mark.skipif(
    not Target.default().has(Feature.AMX_BF16),
    reason="this machine has no matrix units for bfloat16",
)


def _graph(*, amplified: bool) -> Graph:
    """A large pointwise convolution; amplified, what differs between two that are the same but for
    rounding.
    """
    build = GraphBuilder("pointwise")
    x = build.input("x", DType.F32, SHAPE)
    weights = RNG.standard_normal((256, 256, 1, 1)).astype(np.float32)

    def conv(scale: float) -> Symbol:
        return build.op("Conv", x, build.const(weights * np.float32(scale)), kernel_shape=(1, 1))

    y = conv(1.0)
    build.output(
        "y",
        build.op("Sub", y, build.op("Mul", conv(1 / 3), build.const(np.float32(2.999))))
        if amplified
        else y,
    )
    return build.finish()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(threads=1)


@has_units
def test_a_model_that_does_not_notice(engine: Engine) -> None:
    graph = _graph(amplified=False)
    model = compile_model(graph, engine=engine)
    (program,) = model.programs
    assert program.details.reduced_precision
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    assert 1e-7 < difference(np.asarray(model(x)), np.asarray(graph.run([x])[0])) < LIMIT
    assert (
        REDUCED_PRECISION
        in profile_executable(model, {"x": x}, runs=1, warmup=0, model="pointwise").notes
    )


@has_units
def test_a_model_that_amplifies_what_rounding_leaves(engine: Engine) -> None:
    (program,) = compile_model(_graph(amplified=True), engine=engine).programs
    assert not program.details.reduced_precision
    assert not program.details.tile.bf16x2


def test_precise(engine: Engine) -> None:
    (program,) = compile_model(
        _graph(amplified=False), engine=Engine(threads=1, precise=True)
    ).programs
    assert not program.details.reduced_precision


def test_exported_code_is_as_exact_as_can_be(engine: Engine) -> None:
    assert not build_program(
        prepare(_graph(amplified=False)), cpu_backend(engine).toolchain, load=False
    ).details.reduced_precision


def test_an_engine_is_precise_or_not() -> None:
    with pytest.raises(InputError, match="precise"):
        compile_model(_graph(amplified=False), engine=Engine(threads=1), precise=True)
