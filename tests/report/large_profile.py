"""A profile with thousands of operators, as the page is told of it."""

from __future__ import annotations

from typing import Any

from whence.attribution.profile import Profile
from whence.attribution.rows import Event, KernelRow, Part, SourceRow
from whence.graph.outcomes import Coverage
from whence.report.html.content import content

MANY = 5000


def large_content() -> dict[str, Any]:
    """With an optimised graph: a node for each operator. Each operator reads the one before, some
    another before that.
    """
    told = content(large_profile())
    columns = {
        "id": range(MANY), "op": ["Node"] * MANY, "type": ["f32[1]"] * MANY, "attributes": [""] * MANY,
        "passes": [["fuse"]] * MANY, "origin": [[number] for number in range(MANY)], "kernels": [[number // 2] for number in range(MANY)],
        "depth": [0] * MANY,
    }  # fmt: skip
    assert set(columns) == set(told["nodes"])
    operands = [
        sorted({number - 1, number - 1 - 4 * (number % 7 == 0)} - {-1, -5})
        for number in range(MANY)
    ]
    return {
        **told,
        "has_graph": True,
        "operators": {**told["operators"], "operands": operands},
        "nodes": {name: list(column) for name, column in columns.items()},
    }


def large_profile() -> Profile:
    """Operators, kernels and events by the thousand. Each kernel has two operators."""
    wall = MANY * 2000
    sources = tuple(
        SourceRow(
            number,
            f"/net/stage{number // 500}/block{number // 5}/op{number}",
            f"Type{number % 12}",
            "live",
            2000,
            2000 / wall,
            ((number - 1) // 2,),
        )
        for number in range(1, MANY + 1)
    )
    kernels = tuple(
        KernelRow(
            number,
            f"fuse_{number}",
            (Part(2 * number + 1, 0.5, 2000), Part(2 * number + 2, 0.5, 2000)),
            4000,
            10,
            300,
            True,
        )
        for number in range(MANY // 2)
    )
    timeline = tuple(Event(number, number * 400, number * 400 + 390) for number in range(MANY // 2))
    return Profile(
        "large.onnx",
        "cpu",
        2,
        10,
        wall,
        {},
        0.0,
        Coverage(MANY, MANY, 0, 0, 0, 0),
        sources,
        kernels,
        timeline=timeline,
        timeline_ns=MANY * 200,
    )
