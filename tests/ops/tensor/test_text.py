from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.errors import ModelError
from whence.ops.definition import Call
from whence.ops.registry import evaluate


def run(op: str, *inputs: Any, n_outputs: int = 1, **attrs: Any) -> Any:
    results = evaluate(Call(op, attrs, inputs, n_outputs))
    return results[0] if n_outputs == 1 else results


def texts(*items: Any) -> np.ndarray:
    return np.array(items, object)


def test_concat_broadcasts() -> None:
    assert run("StringConcat", texts(["a"], ["b"]), texts("x", "y")).tolist() == [
        ["ax", "ay"],
        ["bx", "by"],
    ]


def test_split_pads_with_nothing() -> None:
    parts, counts = run("StringSplit", texts("a.com", "b", ""), n_outputs=2, delimiter=".")
    assert parts.tolist() == [["a", "com"], ["b", ""], ["", ""]]
    assert counts.tolist() == [2, 1, 0]
    parts, counts = run("StringSplit", texts("  one  two three "), n_outputs=2, maxsplit=1)
    assert parts.tolist() == [["one", "two three "]]
    assert counts.tolist() == [2]


def test_full_match() -> None:
    assert run(
        "RegexFullMatch", texts("a@b.com", "a@b.com!"), pattern=r"\w+@\w+\.com"
    ).tolist() == [True, False]
    with pytest.raises(
        ModelError, match="RegexFullMatch: pattern '\\(' is not a regular expression"
    ):
        run("RegexFullMatch", texts("a"), pattern="(")


def test_normalising() -> None:
    x = texts("Monday", "tuesday", "MONDAY")
    assert run("StringNormalizer", x, stopwords=("monday",)).tolist() == ["tuesday"]
    assert run(
        "StringNormalizer",
        x,
        stopwords=("Monday",),
        is_case_sensitive=1,
        case_change_action="LOWER",
    ).tolist() == ["tuesday", "monday"]
    assert run("StringNormalizer", x.reshape(1, 3), case_change_action="UPPER").tolist() == [
        ["MONDAY", "TUESDAY", "MONDAY"]
    ]
    assert run("StringNormalizer", texts("x"), stopwords=("X",)).tolist() == [""]
    with pytest.raises(ModelError, match="StringNormalizer: "):
        run("StringNormalizer", x, case_change_action="TITLE")
