"""A recording of engines that say how long each node takes on average, and nothing of single runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from whence.foreign.recording import EngineNode, Recording, end_of, one_after_another


def averaged(
    engine: str,
    nodes: Sequence[EngineNode],
    times_ns: Mapping[int, int],
    notes: Sequence[str] = (),
) -> Recording:
    """One run that takes what the nodes do, one after the other. `times_ns` has the nodes that
    ran, by number.
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
        timeline_ns=end_of(events),
        notes=(
            *notes,
            "a run here is the sum of average times: gaps between kernels are not in it",
        ),
    )
