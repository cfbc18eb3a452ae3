"""What the inputs and outputs of a loop's body are for, where the body is a program of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from whence.graph import Graph, Node
from whence.graph.iterations import ITERATING, captures, loop_heads
from whence.ops.attributes import get_int


class BodyRoles(NamedTuple):
    """By the number of the program's input or output."""

    number: int
    """The input that is the number of the iteration; -1: there is none."""
    carried: tuple[tuple[int, int], ...]
    """Outputs that are inputs in the next iteration: the input first."""
    rows: tuple[int, ...]
    """Inputs that are another row in each iteration."""
    scanned: tuple[int, ...]
    """Outputs that are kept from each iteration."""
    condition: int
    """The output that says whether there is another iteration; -1: there is one until all are done.
    """


class IterationResults(NamedTuple):
    """What the iterations of a loop gave."""

    carried: Sequence[np.ndarray]
    """What the last one handed on, in the order of `BodyRoles.carried`."""
    scanned: Sequence[np.ndarray]
    """What was kept from each, in the order of `BodyRoles.scanned`."""


def handed_on(node: Node, body: Graph, passed_on: Mapping[int, int]) -> dict[int, int]:
    """Of the outputs of a body that are inputs as they are: in a loop, those that are the same
    input in the next iteration. Others (`a, b = b, a`) move.
    """
    if node.op not in ITERATING:
        return dict(passed_on)
    first_in, first_out = loop_heads(node)
    carried = first_in + _states(node, body)
    return {
        index: place
        for index, place in passed_on.items()
        if place - index == first_in - first_out and place < carried
    }


def roles_of(node: Node, body: Graph, given: Sequence[int], made: Sequence[int]) -> BodyRoles:
    """Roles for the program of a Loop's or Scan's body that takes and makes only these."""
    inputs = {place: number for number, place in enumerate(given)}
    outputs = {index: number for number, index in enumerate(made)}
    states = _states(node, body)
    first_in, first_out = loop_heads(node)
    last = len(body.inputs) - captures(node)
    return BodyRoles(
        inputs.get(0, -1) if first_in else -1,
        tuple(
            (inputs[first_in + each], outputs[first_out + each])
            for each in range(states)
            if first_out + each in outputs
        ),
        tuple(inputs[place] for place in range(first_in + states, last)),
        tuple(outputs[index] for index in range(first_out + states, len(body.outputs))),
        outputs.get(0, -1) if first_out else -1,
    )


def _states(node: Node, body: Graph) -> int:
    """How many values are carried from iteration to iteration."""
    first, _ = loop_heads(node)
    return len(body.inputs) - captures(node) - first - get_int(node.attrs, "num_scan_inputs", 0)
