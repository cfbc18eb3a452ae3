"""Attention is found between four-dimensional values, with its scale and its mask, and left alone
where the mask would change meaning.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.recognise.recognise_attention import RecogniseAttention
from whence.types import Dim, DType

B, H, Q, K, D, E = 2, 3, 4, 5, 8, 6
SWAP = (0, 1, 3, 2)
SCALE = float(np.float32(1 / math.sqrt(D)))
ROOT = np.float32(math.sqrt(SCALE))


class Attending(GraphBuilder):
    """A graph with Q, K and V as inputs."""

    def __init__(
        self, queries: Dim = Q, keys: Dim = K, batch: Dim = B, dtype: DType = DType.F32
    ) -> None:
        super().__init__()
        self.q = self.input("q", dtype, [batch, H, queries, D])
        self.k = self.input("k", dtype, [batch, H, keys, D])
        self.v = self.input("v", dtype, [batch, H, keys, E])

    def number(self, value: float) -> Symbol:
        return self.const(np.array(value, np.float32))

    def scores(self) -> Symbol:
        return self.op(
            "MatMul", self.q, self.op("Transpose", self.k, name="turn", perm=SWAP), name="scores"
        )

    def scaled(self) -> Symbol:
        return self.op("Mul", self.scores(), self.number(SCALE), name="scale")

    def weigh(self, scores: Symbol, **attrs: Any) -> Symbol:
        return self.op(
            "MatMul",
            self.op("Softmax", scores, name="softmax", **{"axis": -1, **attrs}),
            self.v,
            name="values",
        )

    def done(self, y: Symbol) -> Graph:
        self.output("y", y)
        return self.finish()


def expected(
    mask: np.ndarray | None = None, queries: int = Q, keys: int = K, batch: Dim = B, **attrs: Any
) -> str:
    build = Attending(queries, keys, batch)
    inputs = [build.q, build.k, build.v, *([] if mask is None else [build.const(mask)])]
    return structure(build.done(build.op("Attention", *inputs, **{"scale": SCALE, **attrs})))


def test_scores_times_scale() -> None:
    build = Attending()
    graph = build.done(build.weigh(build.scaled()))
    assert rewrite(graph, RecogniseAttention()) == {
        "softmax(s·Q·Kᵀ + M)·V = Attention(Q, K, V, M, s)": 1
    }
    assert structure(graph) == expected()
    assert carried(graph, only(graph, "Attention")) == (
        ["turn", "scores", "scale", "softmax", "values"],
        [],
    )


def test_scale_by_division_on_q_on_both_and_absent() -> None:
    build = Attending()
    graph = build.done(build.weigh(build.op("Div", build.scores(), build.number(4.0)), axis=3))
    rewrite(graph, RecogniseAttention())
    assert structure(graph) == expected(scale=0.25)

    build = Attending()
    q = build.op("Mul", build.q, build.const(np.array([SCALE], np.float32)))
    graph = build.done(
        build.weigh(build.op("MatMul", q, build.op("Transpose", build.k, perm=SWAP)))
    )
    rewrite(graph, RecogniseAttention())
    assert structure(graph) == expected()

    build = Attending()
    k = build.op("Mul", build.op("Transpose", build.k, perm=SWAP), build.const(ROOT))
    graph = build.done(
        build.weigh(build.op("MatMul", build.op("Mul", build.q, build.const(ROOT)), k))
    )
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Attention"]
    assert only(graph, "Attention").attrs == {"scale": pytest.approx(SCALE)}

    build = Attending()
    graph = build.done(build.weigh(build.scores()))
    rewrite(graph, RecogniseAttention())
    assert structure(graph) == expected(scale=1.0)


def test_a_negative_scale_is_left_alone() -> None:
    build = Attending()
    assert is_left_alone(
        build.done(build.weigh(build.op("Mul", build.scores(), build.number(-0.5)))),
        RecogniseAttention(),
    )


def test_a_scaled_q_that_others_read_stays_scaled() -> None:
    build = Attending()
    q = build.op("Mul", build.q, build.number(0.5))
    build.output("other", q)
    graph = build.done(
        build.weigh(build.op("MatMul", q, build.op("Transpose", build.k, perm=SWAP)))
    )
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Mul", "Attention"]
    assert only(graph, "Attention").attrs == {"scale": 1.0}


def test_k_in_one_transpose_with_its_heads() -> None:
    build = Attending()
    k = build.op(
        "Transpose", build.input("flat", DType.F32, [B, K, H, D]), name="turn", perm=(0, 2, 3, 1)
    )
    graph = build.done(build.weigh(build.op("MatMul", build.q, k, name="scores")))
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Transpose", "Attention"]
    assert only(graph, "Transpose").attrs == {"perm": (0, 2, 1, 3)}
    assert carried(graph, only(graph, "Transpose")) == (["turn"], [])
    assert carried(graph, only(graph, "Attention")) == (["scores", "softmax", "values"], [])


def test_k_that_comes_transposed() -> None:
    build = Attending()
    k = build.input("across", DType.F32, [B, H, D, K])
    graph = build.done(build.weigh(build.op("MatMul", build.q, k)))
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Transpose", "Attention"]
    assert carried(graph, only(graph, "Transpose")) == (["values"], [])


def test_a_transpose_of_k_that_others_read_stays_for_them() -> None:
    build = Attending()
    k = build.op("Transpose", build.k, name="turn", perm=SWAP)
    build.output("across", k)
    graph = build.done(build.weigh(build.op("MatMul", build.q, k, name="scores")))
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Transpose", "Attention"]
    assert carried(graph, only(graph, "Attention")) == (["scores", "softmax", "values"], [])


def test_values_in_front() -> None:
    build = Attending()
    weights = build.op(
        "Transpose",
        build.op("Softmax", build.scaled(), name="softmax", axis=-1),
        name="back",
        perm=SWAP,
    )
    values = build.input("across", DType.F32, [B, H, E, K])
    graph = build.done(build.op("MatMul", values, weights, name="values"))
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Transpose", "Attention", "Transpose"]
    assert carried(graph, only(graph, "Attention"))[0] == [
        "turn",
        "scores",
        "scale",
        "softmax",
        "back",
        "values",
    ]


def masked(shape: tuple[Dim, ...], dtype: DType = DType.F32, **sizes: Any) -> Graph:
    build = Attending(**sizes)
    mask = build.input("mask", dtype, shape)
    return build.done(build.weigh(build.op("Add", mask, build.scaled(), name="add")))


@pytest.mark.parametrize("shape", [(B, H, Q, K), (B, 1, Q, K), (1, 1, Q, K), (H, Q, K), (Q, K)])
def test_additive_masks(shape: tuple[int, ...]) -> None:
    graph = masked(shape)
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Attention"]
    assert len(only(graph, "Attention").inputs) == 4
    assert "add" in carried(graph, only(graph, "Attention"))[0]


@pytest.mark.parametrize("shape", [(B, 1, 1, K), (1, K)])
def test_a_mask_for_all_queries_gets_a_row_for_each(shape: tuple[int, ...]) -> None:
    graph = masked(shape)
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Expand", "Attention"]
    assert carried(graph, only(graph, "Expand")) == (["add"], [])


@pytest.mark.parametrize(
    ("queries", "keys", "made"),
    [
        ("n", "n", ["Shape", "Concat", "Expand", "Attention"]),
        ("n", 2, ["Shape", "Concat", "Expand", "Attention"]),
    ],
)
def test_rows_for_an_open_number_of_queries(queries: Dim, keys: Dim, made: list[str]) -> None:
    graph = masked((B, 1, 1, keys), queries=queries, keys=keys)
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == made
    source = only(graph, "Shape").inputs[0]
    assert source is not None
    assert graph[source.node].name == ("mask" if keys == queries else "q")


LOWEST = float(np.finfo(np.float32).min)


def test_the_lowest_float_is_raised_so_that_no_runtime_takes_it_for_infinity() -> None:
    build = Attending()
    seen = build.input("seen", DType.BOOL, [B, 1, Q, K])
    mask = build.op("Where", seen, build.number(0.0), build.number(LOWEST), name="choose")
    graph = build.done(build.weigh(build.op("Add", build.scaled(), mask, name="add")))
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Where", "Attention"]
    assert graph.const_value(only(graph, "Where").inputs[2]) == np.float32(-1e30)
    assert carried(graph, only(graph, "Where")) == (["choose"], [])
    assert "choose" not in carried(graph, only(graph, "Attention"))[0]


def test_a_constant_mask_with_a_row_of_lowest_floats() -> None:
    mask = np.zeros((Q, K), np.float32)
    mask[1:, 0] = LOWEST
    graph = constant_mask(mask)
    rewrite(graph, RecogniseAttention())
    assert structure(graph) == expected(mask)
    mask[2] = LOWEST
    graph = constant_mask(mask)
    rewrite(graph, RecogniseAttention())
    assert structure(graph) == expected(np.maximum(mask, np.float32(-1e30)))


def test_masks_that_would_change_meaning() -> None:
    # One number for all keys of a query; rows without columns; more batches than there are; another
    # rank.
    for shape in (
        (B, 1, Q, 1),
        (K,),
        (1, 1, 1, 1),
        ("b", 1, Q, K),
        (None, 1, Q, K),
        (3, B, H, Q, K),
    ):
        assert is_left_alone(masked(shape), RecogniseAttention())
    assert is_left_alone(masked((B, 1, Q, "keys"), keys=2), RecogniseAttention())


def test_names_that_agree_are_enough() -> None:
    graph = masked(("batch", 1, Q, K), batch="batch")
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Attention"]


def test_a_mask_of_another_type_cannot_be_added() -> None:
    build = Attending(dtype=DType.F16)
    scores = build.op("Cast", build.scores(), to=int(DType.F32))
    build.v = build.op("Cast", build.v, to=int(DType.F32))
    mask = build.input("mask", DType.F32, [Q, K])
    assert is_left_alone(
        build.done(build.weigh(build.op("Add", scores, mask))), RecogniseAttention()
    )


def constant_mask(mask: np.ndarray, queries: int = Q, keys: int = K) -> Graph:
    build = Attending(queries, keys)
    return build.done(build.weigh(build.op("Add", build.scaled(), build.const(mask), name="add")))


def causal(size: int, hidden: float) -> np.ndarray:
    return np.where(np.tri(size, dtype=bool), 0, hidden).astype(np.float32)


@pytest.mark.parametrize("hidden", [-np.inf, float(np.finfo(np.float32).min), -1e32])
def test_a_constant_causal_mask_becomes_an_attribute(hidden: float) -> None:
    graph = constant_mask(causal(Q, hidden).reshape(1, 1, Q, Q), keys=Q)
    rewrite(graph, RecogniseAttention())
    assert structure(graph) == expected(keys=Q, is_causal=1)
    assert "add" in carried(graph, only(graph, "Attention"))[0]


def test_a_constant_mask_of_zeros_is_no_mask() -> None:
    graph = constant_mask(np.zeros((1, 1, 1, K), np.float32))
    rewrite(graph, RecogniseAttention())
    assert structure(graph) == expected()


def test_other_constant_masks_are_kept_as_they_are() -> None:
    mild, leaky, row = causal(Q, -100.0), causal(Q, -np.inf), np.arange(Q, dtype=np.float32)
    leaky[0, 1] = 0
    for mask in (mild, leaky):
        graph = constant_mask(mask, keys=Q)
        rewrite(graph, RecogniseAttention())
        assert structure(graph) == expected(mask, keys=Q)
    graph = constant_mask(row, keys=Q)
    rewrite(graph, RecogniseAttention())
    assert structure(graph) == expected(np.tile(row, (Q, 1)), keys=Q)


def chosen(low: float, *, constant: bool, inverted: bool = False, blind: bool = False) -> Graph:
    """softmax(where(seen, scores, low))·V"""
    build = Attending()
    seen = np.tri(Q, K, 1, dtype=bool)
    seen[0, :] &= not blind
    mask = build.const(seen ^ inverted) if constant else build.input("mask", DType.BOOL, [Q, K])
    operands = (build.scaled(), build.number(low))
    return build.done(
        build.weigh(
            build.op("Where", mask, *(operands[::-1] if inverted else operands), name="where")
        )
    )


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_scores_chosen_by_a_mask(constant: bool, inverted: bool) -> None:
    graph = chosen(-math.inf, constant=constant, inverted=inverted)
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == (
        ["Not", "Attention"] if inverted and not constant else ["Attention"]
    )
    mask = only(graph, "Attention").inputs[3]
    assert mask is not None
    assert str(graph.type_of(mask)) == f"bool[{Q},{K}]"
    assert "where" in carried(graph, only(graph, "Attention"))[0]


def test_a_low_number_hides_keys_when_each_query_keeps_one() -> None:
    graph = chosen(-1e4, constant=True)
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Attention"]
    assert is_left_alone(chosen(-1e4, constant=True, blind=True), RecogniseAttention())
    assert is_left_alone(chosen(-1e4, constant=False), RecogniseAttention())
    assert is_left_alone(chosen(-10.0, constant=True), RecogniseAttention())


def guarded(replacement: float) -> Graph:
    build = Attending()
    mask = np.zeros((Q, K), np.float32)
    mask[1] = -np.inf
    weights = build.op(
        "Softmax", build.op("Add", build.scaled(), build.const(mask)), name="softmax", axis=-1
    )
    safe = build.op(
        "Where",
        build.op("IsNaN", weights, name="test"),
        build.number(replacement),
        weights,
        name="guard",
    )
    return build.done(build.op("MatMul", safe, build.v, name="values"))


def test_a_guard_against_rows_without_keys_is_part_of_it() -> None:
    graph = guarded(0.0)
    rewrite(graph, RecogniseAttention())
    assert operators(graph) == ["Attention"]
    assert {"test", "guard"} <= set(carried(graph, only(graph, "Attention"))[0])
    assert is_left_alone(guarded(1.0), RecogniseAttention())


def test_a_softmax_in_a_wider_type() -> None:
    build = Attending(dtype=DType.F16)
    weights = build.op("Softmax", build.op("Cast", build.scores(), to=int(DType.F32)), axis=-1)
    graph = build.done(build.op("MatMul", build.op("Cast", weights, to=int(DType.F16)), build.v))
    rewrite(graph, RecogniseAttention(), tolerance=3e-3)
    assert operators(graph) == ["Attention"]
    assert only(graph, "Attention").attrs == {"scale": 1.0, "softmax_precision": int(DType.F32)}


def test_weights_that_others_read() -> None:
    build = Attending()
    weights = build.op("Softmax", build.scaled(), axis=-1)
    build.output("weights", weights)
    assert is_left_alone(build.done(build.op("MatMul", weights, build.v)), RecogniseAttention())


def test_a_softmax_over_something_else() -> None:
    build = Attending(keys=Q)
    assert is_left_alone(build.done(build.weigh(build.scaled(), axis=2)), RecogniseAttention())


def test_values_that_broadcast_or_have_no_heads() -> None:
    build = Attending()
    build.v = build.input("shared", DType.F32, [B, 1, K, E])
    assert is_left_alone(build.done(build.weigh(build.scaled())), RecogniseAttention())
    flat = GraphBuilder()
    q, k, v = (flat.input(name, DType.F32, [B, n, D]) for name, n in (("q", Q), ("k", K), ("v", K)))
    scores = flat.op("MatMul", q, flat.op("Transpose", k, perm=(0, 2, 1)))
    flat.output("y", flat.op("MatMul", flat.op("Softmax", scores, axis=-1), v))
    assert is_left_alone(flat.finish(), RecogniseAttention())
