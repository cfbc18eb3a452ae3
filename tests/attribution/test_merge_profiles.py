"""Profiles of several graphs as one."""

from __future__ import annotations

from tests.attribution.harness import conv_bn_relu, profile_of
from whence.attribution.merge_profiles import merge_profiles
from whence.attribution.outcome_text import with_later_kernels
from whence.graph.builder import GraphBuilder
from whence.types import DType


def test_parts_follow_each_other_and_add_up() -> None:
    first, second = (profile_of(conv_bn_relu(), step_ns=time, runs=2) for time in (1000, 3000))
    found = merge_profiles([first, second], model="both", outside="python", outside_ns=501)
    assert found.wall_ns == first.wall_ns + second.wall_ns + 501 == sum(found.runs_ns)
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    assert found.residual_ns["python"] == 501
    assert found.coverage.source_ops == len(found.sources) == 2 * len(first.sources)
    assert [row.id for row in found.kernels] == list(range(len(found.kernels)))
    assert [event.kernel for event in found.timeline] == [row.id for row in found.kernels]
    assert found.timeline[-1].end_ns == found.timeline_ns
    assert {row.name.partition("@")[2] for row in found.sources} == {"1", "2"}


def test_kernels_are_numbered_on_wherever_their_numbers_stand() -> None:
    graph = GraphBuilder("chain")
    x = graph.input("x8", DType.F32, [1, 64])
    for name in ("a1", "b2"):
        x = graph.op("Softmax", x, name=name)
    graph.output("y", x)
    one = profile_of(graph.finish(), 1000)
    assert [row.became for row in one.sources] == ["→ kernel 0", "→ kernel 1"]
    found = merge_profiles([one, one], model="m", outside="o", outside_ns=0)
    assert [row.became for row in found.sources[2:]] == ["→ kernel 2", "→ kernel 3"]
    assert [row.reads for row in found.kernels] == [(), (0,), (), (2,)]
    assert with_later_kernels("with a→ kernel 1 → kernels 2, 3 (reference)", 5) == (
        "with a→ kernel 1 → kernels 7, 8 (reference)"
    )
    assert with_later_kernels("folded into conv1", 5) == "folded into conv1"


def test_what_is_known_of_one_graph_alone_is_not_said_of_several() -> None:
    """Its memory would be that of the first, and its steps the first kernels of all."""
    one = profile_of(conv_bn_relu())
    assert one.memory is not None
    assert merge_profiles([one, one], model="m", outside="o", outside_ns=0).memory is None
    assert merge_profiles([one], model="m", outside="o", outside_ns=0).memory == one.memory
