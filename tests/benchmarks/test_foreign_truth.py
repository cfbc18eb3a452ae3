"""Verdicts on other engines' attribution: what is compared, and what passes."""

from __future__ import annotations

import onnx
import pytest

import whence
from benchmarks.foreign_truth import (
    LEAST_MODELS,
    LEAST_OPERATORS,
    Finding,
    Range,
    Verdict,
    changed_code,
    judge,
    median_of,
    show,
)
from benchmarks.foreign_truth_models import CASES, nothing, without


def verdict(
    model: str = "m", *, said: float = 0.5, saved: float = 0.5, within: float = 0.01
) -> Verdict:
    measured = Range(saved - within, saved, saved + within)
    return Verdict(model, "e", "op", "Relu", False, Range(said, said, said), measured, 1000.0)


ENOUGH = [verdict(f"m{number % LEAST_MODELS}") for number in range(LEAST_OPERATORS)]


def test_an_engine_passes_if_every_operator_is_within_ten_points() -> None:
    assert judge("e", ENOUGH, [])[1]
    line, passed = judge("e", [*ENOUGH, verdict(said=0.2)], [])
    assert not passed
    assert "10 of 11 operators, in 5 models" in line


def test_what_the_measurement_does_not_tell_is_undecided() -> None:
    """It fails nobody, and is no part of the ten."""
    clear, unclear = verdict(said=0.65), verdict("m9", said=0.65, within=0.2)
    assert clear.finding is Finding.WRONG
    assert unclear.finding is verdict(within=0.11).finding is Finding.UNDECIDED
    assert "undecided" in show(unclear)
    line, passed = judge("e", [*ENOUGH, unclear], [])
    assert passed
    assert "10 of 11 operators, in 5 models" in line
    assert "undecided: m9 op" in line
    assert not judge("e", [*ENOUGH[1:], unclear], [])[1]


def test_a_median_has_the_range_of_order_statistics() -> None:
    assert median_of([3.0]) == Range(3.0, 3.0, 3.0)
    assert median_of([5.0, 1.0, 4.0, 2.0, 3.0]) == Range(1.0, 3.0, 5.0)
    # Of 11, no more than one is below the median with a probability of 0.6 %, two with 3.3 %.
    assert median_of([float(each) for each in range(11)]) == Range(1.0, 5.0, 9.0)
    assert median_of([float(each) for each in range(44)]) == Range(15.0, 21.5, 28.0)


def test_a_range_over_another_is_as_wide_as_both_make_it() -> None:
    assert Range(2.0, 3.0, 4.0).over(Range(0.5, 1.0, 2.0)) == Range(1.0, 3.0, 8.0)
    assert Range(-2.0, 0.0, 4.0).over(Range(0.5, 1.0, 2.0)) == Range(-4.0, 0.0, 8.0)


@pytest.mark.parametrize("few", [ENOUGH[1:], [each._replace(model="m0") for each in ENOUGH]])
def test_few_operators_or_few_models_are_not_enough(few: list[Verdict]) -> None:
    line, passed = judge("e", few, ["m9 other"])
    assert not passed
    assert "fewer than 10 right operators in 5 models" in line
    assert "not compared, as without them others are fused: m9 other" in line


def test_operators_that_are_said_to_be_inseparable_must_be() -> None:
    """They are no part of the ten, and do not excuse a kernel that could be divided."""
    unclear = verdict(said=0.9, saved=0.85)._replace(together=1.7)
    assert judge("e", [*ENOUGH, unclear], [])[1]
    assert not judge("e", [*ENOUGH, unclear._replace(together=1.1)], [])[1]
    assert not judge("e", [*ENOUGH[1:], unclear], [])[1]


def test_operators_without_which_other_code_is_used_are_listed_with_it() -> None:
    """What leaving them out saves is not theirs alone. They are no part of the ten."""
    code = changed_code({"first": "brgemm", "last": "mlas"}, {"first": "mlas", "last": "mlas"})
    assert code == "first by mlas instead of brgemm"
    other = verdict("m9", said=0.5, saved=0.3)._replace(other_code=code)
    line, passed = judge("e", [*ENOUGH, other], [])
    assert passed
    assert "10 of 10 operators" in line
    assert "not judged, as without them other code is used: m9 op" in line
    assert "without it, first by mlas instead of brgemm" in show(other)
    assert "WRONG" not in show(other)
    assert not judge("e", [*ENOUGH[1:], other], [])[1]


def test_there_are_enough_cases_and_all_are_models_without_the_operator_too() -> None:
    assert len(CASES) >= LEAST_MODELS
    assert sum(len(case.left_out) for case in CASES.values()) >= 2 * LEAST_OPERATORS
    for case in CASES.values():
        model = case.build()
        for operator in case.left_out:
            less = without(model, operator)
            assert len(less.graph.node) == len(model.graph.node) - 1
            assert less.graph.input == model.graph.input
            whence.load(less.SerializeToString())


@pytest.mark.parametrize("name", CASES)
def test_a_call_that_computes_nothing_takes_and_gives_the_same(name: str) -> None:
    model = CASES[name].build()
    found = nothing(model)
    onnx.checker.check_model(found, full_check=True)
    assert list(found.graph.input) == list(model.graph.input)
    assert {node.op_type for node in found.graph.node} == {"Identity"}
    whole = onnx.shape_inference.infer_shapes(model).graph.output
    assert list(found.graph.output) == list(whole)
