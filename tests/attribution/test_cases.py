"""The graphs by which attribution is tried: with and without an operator they differ in nothing
else. How long they take is in `test_truth`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.attribution_cases import Case, Race
from whence.api import compile_model, prepare
from whence.attribution import leave_out
from whence.attribution.exchange import Offer
from whence.attribution.leave_out import measure_savings
from whence.attribution.rounds import Saving
from whence.attribution.source_costs import source_kinds
from whence.codegen.target import Feature, Target
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.types import DType

pytestmark = pytest.mark.skipif(
    not Target.default().has(Feature.AMX_BF16),
    reason="this machine has no matrix units for bfloat16",
)


def _sharp(without: str) -> Graph:
    """A convolution whose sums are large, so that a sigmoid shows how they were rounded."""
    build = GraphBuilder("sharp")
    weights = np.random.default_rng(0).standard_normal((64, 64, 1, 1)).astype(np.float32)
    value = build.op(
        "Conv", build.input("x", DType.F32, [1, 64, 56, 56]), build.const(4 * weights), name="conv"
    )
    build.output("y", value if without else build.op("Sigmoid", value, name="sigmoid"))
    return build.finish()


def test_two_models_of_which_one_rounds_are_not_compared() -> None:
    with pytest.raises(ValueError, match="only one of the two models uses matrix units"):
        Race(Case("sharp", _sharp, "sigmoid"))
    Race(Case("sharp", _sharp, "sigmoid", precise=True))


def test_what_is_left_out_of_a_model_that_may_not_round_does_not_round_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model of its own without the operator would: that it then is faster is not what the
    operator costs.
    """
    offered: list[Offer] = []

    def look(
        offers: Sequence[Offer], steps: Sequence[int], *_: object, **__: object
    ) -> list[Saving]:
        offered.extend(offers)
        return [Saving(0.1, 0.0)] * len(steps)

    monkeypatch.setattr(leave_out, "Exchange", lambda *arguments: arguments[-1])
    monkeypatch.setattr(leave_out, "measure", look)
    engine = Engine(threads=1)
    (whole,), (less,) = (
        compile_model(_sharp(without), engine=engine).programs for without in ("", "sigmoid")
    )
    assert not whole.details.reduced_precision
    assert less.details.reduced_precision
    graph = _sharp("")
    measure_savings(
        whole, prepare(graph.copy()), engine, [], [1000] * len(whole.steps), source_kinds(graph)
    )
    assert offered
    assert not any(offer.variant.kernel.reduced_precision for offer in offered)
