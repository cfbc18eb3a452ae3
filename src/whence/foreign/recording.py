"""What an engine tells of itself: its graph as it runs, the names it kept of the user's file, and
how long each of its nodes took.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whence.attribution.rows import Event
from whence.foreign.source import Attribute


class Evidence(enum.StrEnum):
    """How it is known which operators of the file a node of an engine stands for."""

    TENSOR = "tensor"
    """It makes a tensor of the file: where its work ends is certain."""
    NAME = "name"
    """Its name, or a list of names that the engine kept, has operators of the file: they are in it,
    and others may be too.
    """
    NEIGHBOUR = "neighbour"
    """Nothing but the nodes around it."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class EngineNode:
    """One node of an engine's graph."""

    number: int
    """Its position among the nodes of its recording."""
    name: str
    op: str
    """Its type, as the engine calls it."""
    inputs: tuple[int, ...] = ()
    """The nodes that make its inputs."""
    makes: tuple[int, ...] = ()
    """The source operators whose results it hands on, by tensor names."""
    holds: tuple[int, ...] = ()
    """Source operators that are in it, by names."""
    may_be: tuple[int, ...] = ()
    """Source operators, one of which it is, where it cannot be told which."""
    is_whole: bool = False
    """What it makes and holds is all that is in it: nothing is to be added."""
    runs: bool = True
    """False for inputs, outputs and what is computed when the model is loaded."""
    is_layout: bool = False
    """It changes layout or element type, and nothing else."""
    is_heavy: bool = False
    """A convolution, matrix product or recurrent cell."""
    is_composite: bool = False
    """It runs a graph of its own, in which there may be anything."""
    implements: tuple[str, ...] = ()
    """Types of operators that its type is used for, besides one of the same name."""
    called_after: tuple[str, ...] = ()
    """Types of operators, after one of which the engine called a node that it made itself."""
    merges: tuple[str, ...] = ()
    """Types of operators several of which it may be at once: slices of one tensor, of a split."""
    activation: str = ""
    """The type of the operator that it applies to its result, where it says so."""
    window: Mapping[str, Attribute] = field(default_factory=dict)
    """Kernel, strides, groups and dilations, where it says so."""
    shape: str = ""
    """What it makes, in words."""
    kernel: str = ""
    """The implementation, where the engine names it."""

    @property
    def anchors(self) -> tuple[int, ...]:
        """The source operators that names tell to be in it."""
        return (*self.makes, *self.holds)


@dataclass(frozen=True, slots=True)
class Recording:
    """Some runs of one engine. In every run, the nodes' times and the residuals add up to its wall
    time.
    """

    engine: str
    nodes: tuple[EngineNode, ...]
    runs_ns: tuple[int, ...]
    node_ns: np.ndarray
    """Nanoseconds by run and node."""
    node_calls: np.ndarray
    """How often each node ran, over all runs."""
    residual_ns: Mapping[str, int]
    """What is in no node, by name, over all runs."""
    version: str = ""
    """Of the engine, where it is known."""
    threads: int = 1
    timeline: tuple[Event, ...] = ()
    """One run of middling length."""
    timeline_ns: int = 0
    """How long that run took."""
    overhead_ratio: float = 0.0
    has_edges: bool = True
    """Does the engine say where its nodes get their operands from?"""
    notes: tuple[str, ...] = ()


def one_after_another(times: Iterable[tuple[int, int]]) -> tuple[Event, ...]:
    """A run of nodes, each with its nanoseconds, without gaps."""
    events, at = [], 0
    for node, time in times:
        events.append(Event(node, at, at + time))
        at += time
    return tuple(events)


def averaged(
    engine: str,
    nodes: Sequence[EngineNode],
    times_ns: Mapping[int, int],
    notes: Sequence[str] = (),
) -> Recording:
    """Of an engine that says how long each node takes on average, and nothing of single runs: one
    run that takes what the nodes do, one after the other. `times_ns` has the nodes that ran, by
    number.
    """
    totals = [times_ns.get(node.number, 0) for node in nodes]
    events = one_after_another(
        (node.number, times_ns[node.number]) for node in nodes if node.number in times_ns
    )
    return Recording(
        engine=engine,
        nodes=tuple(nodes),
        runs_ns=(sum(totals),),
        node_ns=np.array([totals], np.int64).reshape(1, len(nodes)),
        node_calls=np.array([int(node.number in times_ns) for node in nodes], np.int64),
        residual_ns={},
        timeline=events,
        timeline_ns=sum(totals),
        notes=(
            *notes,
            "a run here is the sum of average times: gaps between kernels are not in it",
        ),
    )
