"""Activations whose digits a subtraction could lose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import whence
from whence.graph.builder import GraphBuilder
from whence.types import DType


@pytest.mark.parametrize(
    ("op", "attrs", "slope"),
    [
        ("Elu", {"alpha": 1.5}, 1.5),
        ("Selu", {"alpha": 2.0, "gamma": 1.5}, 3.0),
        ("Celu", {"alpha": 2.0}, 1.0),
    ],
)
def test_small_negative_numbers_keep_their_digits(
    op: str, attrs: dict[str, Any], slope: float
) -> None:
    """exp(x) - 1 would have none of them left."""
    x = -np.logspace(-37, -1, 145).astype(np.float32)
    build = GraphBuilder()
    build.output("y", build.op(op, build.input("x", DType.F32, x.shape), **attrs))
    graph = build.finish()
    found = whence.compile(graph)(x)
    (expected,) = graph.run([x])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    tiny = x > -1e-8
    np.testing.assert_allclose(found[tiny], slope * x[tiny], rtol=1e-6)
