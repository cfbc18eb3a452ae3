"""Every family of kernels on a device, against the reference implementations."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from tests.kernels.harness import Cases
from whence.api import prepare
from whence.building.build import build
from whence.errors import ModelError
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.equivalence import difference
from whence.runtime.engine import Engine
from whence.types import DType


class DeviceCases(Cases):
    """Cases that run on a device."""

    def check_on(
        self, engine: Engine, *, prepared: bool = False, host: frozenset[str] = frozenset()
    ) -> None:
        """`prepared` runs the passes first; `host` are the operators that may run on the host."""
        graph = self.build.finish()
        inputs = [self.feeds[node.name] for node in graph.inputs]
        expected = graph.run(inputs)
        if prepared:
            prepare(graph)
        program = build(graph, engine.backend.generator())
        left = {
            f"{step.name}: {step.why_reference}"
            for step in program.steps
            if not step.symbol and not any(graph[node].op in host for node in step.nodes)
        }
        assert not left, sorted(left)
        results = engine.backend.run(engine.backend.instance(program), inputs)
        pairs = zip(self._limits, expected, results, strict=True)
        gaps = {name: difference(np.asarray(was), np.asarray(now)) for name, was, now in pairs}
        assert not {name: gap for name, gap in gaps.items() if not gap <= self._limits[name]}


def test_elementwise_moves_and_integers(engine: Engine) -> None:
    cases = DeviceCases()
    x, y = cases.normal(3, 5, 40), cases.normal(5, 1)
    cases.expect(cases.op("Tanh", cases.op("Add", x, y)), "broadcast")
    cases.expect(cases.op("Transpose", cases.normal(4, 33, 18), perm=(2, 0, 1)), "turned")
    cases.expect(cases.op("Erf", cases.op("Exp", cases.normal(7))), "functions")
    whole = cases.feed(np.arange(-20, 20).reshape(5, 8))
    cases.expect(
        cases.op("Mul", cases.op("Div", whole, cases.const(np.int64(3))), whole), "integers"
    )
    cases.expect(
        cases.op(
            "Where",
            cases.feed(np.arange(12) % 3 == 0),
            cases.normal(12),
            cases.const(np.float32(-1.0)),
        ),
        "choice",
    )
    cases.expect(
        cases.op("Gather", cases.normal(9, 6), cases.feed(np.array([3, 0, 8], np.int64)), axis=0),
        "gathered",
    )
    cases.expect(cases.op("Concat", cases.normal(2, 3), cases.normal(4, 3), axis=0), "joined")
    cases.check_on(engine)


def test_rows_and_reductions(engine: Engine) -> None:
    cases = DeviceCases()
    x = cases.normal(6, 70)
    cases.expect(cases.op("Softmax", x, axis=-1), "softmax")
    cases.expect(
        cases.op("LayerNormalization", x, cases.weights(70), cases.weights(70), axis=-1), "norm"
    )
    cases.expect(
        cases.op("ReduceMax", x, cases.const(np.array([1], np.int64)), keepdims=0), "max of rows"
    )
    cases.expect(
        cases.op("ReduceSum", x, cases.const(np.array([0], np.int64)), keepdims=1), "sum of columns"
    )
    cases.expect(
        cases.op(
            "ReduceMean",
            cases.normal(2, 5, 300),
            cases.const(np.array([0, 1, 2], np.int64)),
            keepdims=0,
        ),
        "mean of all",
    )
    cases.check_on(engine)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 40, 50), (37, 19, 33), (70, 64, 130)])
def test_products(engine: Engine, rows: int, depth: int, columns: int) -> None:
    cases = DeviceCases()
    cases.expect(
        cases.op(
            "Relu",
            cases.op(
                "Gemm",
                cases.normal(rows, depth),
                cases.weights(columns, depth),
                cases.weights(columns),
                transB=1,
            ),
        ),
        "gemm",
    )
    cases.expect(
        cases.op("MatMul", cases.normal(3, rows, depth), cases.normal(3, depth, columns)), "batched"
    )
    cases.check_on(engine)


def test_convolutions_and_pools(engine: Engine) -> None:
    cases = DeviceCases()

    def conv(x: Symbol, out: int, depth: int, size: int, **attrs: object) -> Symbol:
        return cases.op(
            "Conv", x, cases.weights(out, depth, size, size), cases.weights(out), **attrs
        )

    x = cases.op(
        "Relu", conv(cases.normal(1, 3, 17, 18), 20, 3, 3, pads=(1, 1, 1, 1), strides=(2, 2))
    )
    x = conv(x, 20, 1, 3, pads=(1, 1, 1, 1), group=20)
    y = cases.op("Add", conv(x, 20, 20, 1), x)
    cases.expect(
        cases.op("MaxPool", y, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        "pool",
        limit=1e-5,
    )
    cases.expect(
        cases.op("AveragePool", y, kernel_shape=(3, 3), pads=(1, 1, 1, 1)), "average", limit=1e-5
    )
    cases.expect(
        cases.op("GlobalAveragePool", conv(y, 40, 20, 3, pads=(2, 2, 2, 2), dilations=(2, 2))),
        "dilated",
        limit=1e-5,
    )
    cases.check_on(engine, prepared=True)


def test_attention_and_recurrence(engine: Engine) -> None:
    cases = DeviceCases()
    q, k, v = (cases.normal(1, 2, 9, 16) for _ in range(3))
    cases.expect(cases.op("Attention", q, k, v, is_causal=1), "attention")
    for op, gates in (("LSTM", 4), ("GRU", 3)):
        x, w, r, b = (
            cases.normal(7, 2, 5),
            cases.weights(2, gates * 11, 5),
            cases.weights(2, gates * 11, 11),
            cases.weights(2, gates * 22),
        )
        cases.expect(cases.op(op, x, w, r, b, hidden_size=11, direction="bidirectional"), op)
    cases.check_on(engine)


def test_attention_over_counted_keys(engine: Engine) -> None:
    """Queries are the last of the keys that there are, and what lies behind those is not seen."""
    cases = DeviceCases()
    q, k, v = cases.normal(3, 2, 4, 16), cases.normal(3, 2, 19, 16), cases.normal(3, 2, 19, 16)
    lengths = cases.feed(np.array([19, 7, 4], np.int64))
    for name, causal in (("all", 0), ("causal", 1)):
        cases.expect(
            cases.op("Attention", q, k, v, None, None, None, lengths, is_causal=causal), name
        )
    last = cases.normal(3, 2, 1, 16)
    cases.expect(cases.op("Attention", last, k, v, None, None, None, lengths, is_causal=1), "last")
    cases.check_on(engine)


def test_an_image_of_one_column_asks_for_no_columns(engine: Engine) -> None:
    """Comparisons of numbers are warnings of a device's compiler."""
    cases = DeviceCases()
    x = cases.normal(1, 16, 40)
    cases.expect(cases.op("Conv", x, cases.weights(16, 16, 5)), "inside")
    cases.expect(cases.op("Conv", x, cases.weights(16, 16, 5), pads=(2, 2)), "padded")
    cases.check_on(engine, prepared=True)


def test_a_row_that_no_number_of_lanes_divides_ends_where_it_ends(engine: Engine) -> None:
    """Rows are a prime number long. What lies behind the last one is another's."""
    cases = DeviceCases()
    x = cases.normal(1, 2, 8209)
    pooled = cases.op("MaxPool", x, kernel_shape=(3,), pads=(1, 1))
    cases.expect(cases.op("MatMul", pooled, cases.weights(8209, 2)), "behind it", limit=1e-5)
    cases.expect(cases.op("ReduceSum", pooled), "all of it", limit=1e-5)
    cases.check_on(engine)


def test_bfloat16_is_in_memory_only(engine: Engine) -> None:
    cases = DeviceCases()
    short = cases.op("Cast", cases.normal(5, 7), to=16)
    moved = cases.op("Transpose", cases.op("Mul", short, short), perm=(1, 0))
    cases.expect(cases.op("Cast", moved, to=1), "squares", limit=1e-2)
    cases.expect(cases.op("Cast", short, to=1), "rounded", 0)
    cases.check_on(engine)


def test_what_the_device_cannot_do_runs_on_the_host(engine: Engine) -> None:
    cases = DeviceCases()
    x = cases.normal(4, 6)
    half = cases.op("Cast", cases.op("Relu", x), to=10)
    cases.expect(
        cases.op("Neg", cases.op("Cast", half, to=1)), "through half precision", limit=1e-3
    )
    cases.check_on(engine, host=frozenset({"Cast", "Neg", "Relu"}))


def test_scalars_of_the_host_keep_their_shape(engine: Engine) -> None:
    cases = DeviceCases()
    total = cases.op(
        "ReduceSum",
        cases.op("Cast", cases.normal(5), to=10),
        cases.const(np.array([0], np.int64)),
        keepdims=0,
    )
    cases.expect(
        cases.op("Neg", cases.op("Cast", total, to=1)), "a sum in half precision", limit=1e-2
    )
    cases.check_on(engine, host=frozenset({"Cast", "Neg", "ReduceSum"}))


def test_an_index_that_leads_nowhere_is_an_error(engine: Engine) -> None:
    cases = DeviceCases()
    cases.expect(
        cases.op("Gather", cases.normal(8, 2), cases.const(np.array([100_000], np.int64)), axis=0)
    )
    with pytest.raises(ModelError, match="100000"):
        build(cases.build.finish(), engine.backend.generator())


@pytest.mark.parametrize(
    ("shape", "counter"), [((4, 1 << 14), "int"), ((1 << 16, 1 << 16), "int64_t")]
)
def test_values_that_are_nowhere_are_counted_too(
    engine: Engine, shape: tuple[int, int], counter: str
) -> None:
    build = GraphBuilder()
    x = build.op("Abs", build.input("x", DType.F32, [1, 1]))
    build.output("y", build.op("ReduceSum", build.op("Expand", x, build.const(np.array(shape)))))
    (unit,) = whence.compile(build.finish(), engine=engine).programs[0].units
    assert f"for ({counter} r" in unit.source
