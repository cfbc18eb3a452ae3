"""What is said of operators that no kernel of an engine has."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.foreign.models import Build
from tests.foreign.record import MODEL
from whence.attribution.profile import Profile
from whence.foreign.assemble import assemble
from whence.foreign.recording import EngineNode, Recording
from whence.foreign.run import load_source
from whence.foreign.source import SourceGraph


def assembled(source: SourceGraph, *kept: str) -> Profile:
    """An engine that has a node for each of these, and tells nothing of where its operands are
    from.
    """
    nodes = tuple(
        EngineNode(number, name, "Node", makes=(source.by_name[name],), is_whole=True)
        for number, name in enumerate(kept)
    )
    recording = Recording(
        engine="engine",
        version="1",
        threads=1,
        nodes=nodes,
        runs_ns=(1000,),
        node_ns=np.full((1, len(nodes)), 100, np.int64),
        node_calls=np.ones(len(nodes), np.int64),
        residual_ns={"dispatch": 1000 - 100 * len(nodes)},
        has_edges=False,
    )
    return assemble(source, recording, model="m", rates=MODEL.rates)[0]


def sized(folder: Path) -> SourceGraph:
    """Two operators, one behind the other, of whose result only the size is used."""
    build = Build((4, 4))
    x = build.op("Exp", "first", "x")
    size = build.op("Shape", "size", build.op("Sqrt", "root", build.op("Neg", "negative", x)))
    y = build.op("Reshape", "reshape", build.op("Tanh", "tanh", x), size)
    return SourceGraph(load_source(build.save(folder / "m.onnx", build.op("Relu", "last", y))))


def test_an_operator_that_only_sizes_are_taken_of_is_not_lost(tmp_path: Path) -> None:
    profile = assembled(sized(tmp_path), "first", "tanh", "reshape", "last")
    fates = {row.name: row.fate for row in profile.sources}
    assert (fates["negative"], fates["root"]) == ("dead", "dead")
    assert profile.coverage.lost == 0
    (row,) = [row for row in profile.sources if row.name == "root"]
    assert row.became == "its result was not used, or only its size"


def test_an_operator_that_a_kernel_or_a_result_needs_is_lost_without_a_kernel(
    tmp_path: Path,
) -> None:
    source = sized(tmp_path)
    lost = {row.name for row in assembled(source, "first", "last").sources if row.fate == "lost"}
    assert lost == {"tanh", "reshape"}
    lost = {row.name for row in assembled(source, "first", "tanh").sources if row.fate == "lost"}
    assert lost == {"reshape", "last"}
