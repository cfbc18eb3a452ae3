"""`whence demo`: a real model, end to end, no arguments."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from whence.cli.console import out, prepare_with_bar, progress, safe
from whence.cli.why import print_story
from whence.errors import ModelError
from whence.frontends.onnx.reader import read_onnx
from whence.graph import Check, Graph, check_graph
from whence.graph.fates import coverage, fates
from whence.graph.story import tell
from whence.passes.equivalence import difference, random_inputs
from whence.provenance import Fate, SourceOp


def demo() -> None:
    """Load ResNet-50 (the ONNX package carries one), prepare it, verify that it computes the same,
    and tell what happened.
    """
    model = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    if not model.exists():
        raise ModelError(
            "the installed onnx package does not carry light_resnet50.onnx; try `whence passes"
            " MODEL` on a model of yours"
        )
    console = out()
    with progress("reading"):
        graph = read_onnx(with_random_weights(onnx.load(model)))
    console.print(
        safe(
            f"1. read {model.name} and filled in random weights: {graph.ledger.n_sources}"
            " operators",
            "bold",
        )
    )

    inputs = random_inputs(graph)
    with progress("running it as it is"):
        expected = graph.run(inputs)

    began = time.perf_counter()
    before = len(graph)
    reports = prepare_with_bar(graph)
    spent = time.perf_counter() - began
    check_graph(graph, Check.ALL)
    console.print(
        safe(
            f"2. prepared in {spent:.2f} s: {before} nodes → {len(graph)}; every invariant holds",
            "bold",
        )
    )
    busiest = sorted(
        (report for report in reports if report.changes), key=lambda report: -report.changes
    )[:6]
    for report in busiest:
        console.print(safe(f"     {report.changes:4} × {report.name:20} {report.summary}", "dim"))

    with progress("running it as prepared"):
        actual = graph.run(inputs)
    error = max(difference(was, now) for was, now in zip(expected, actual, strict=True))
    if not error <= 1e-4:
        raise ModelError(f"the prepared model differs from the original by {error:.2g}")
    console.print(
        safe(f"3. computes the same: largest difference {error:.1e} of the largest output", "bold")
    )
    console.print(safe(f"4. {coverage(graph)}", "bold"))
    console.print(safe("5. where did it go? `whence why MODEL OPERATOR` on one of them:", "bold"))
    print_story(console, graph, tell(graph, _interesting(graph)))


def with_random_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with weights in place of the constant fills that keep the file small, so that a
    wrong transformation shows.
    """
    rng = np.random.default_rng(0)
    shapes = {
        init.name: tuple(int(dim) for dim in numpy_helper.to_array(init).reshape(-1))
        for init in model.graph.initializer
    }
    # Scales and variances near what training leaves, so that values neither vanish nor drown each
    # other on the way.
    positive = {
        node.input[index]
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for index in (1, 4)
    }
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        name, shape = node.output[0], shapes[node.input[0]]
        fan_in = max(1, int(np.prod(shape[1:])))
        weights = (
            rng.uniform(0.4, 0.8, shape)
            if name in positive
            else rng.standard_normal(shape) * (0.1 if len(shape) < 2 else np.sqrt(1 / fan_in))
        )
        model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), name))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _interesting(graph: Graph) -> SourceOp:
    """A batch normalisation in the middle of the network, which nobody would find again in the
    optimised graph.
    """
    found = [
        source
        for source, fate in zip(graph.ledger.sources, fates(graph), strict=True)
        if source.op == "BatchNormalization" and fate is Fate.FOLDED
    ]
    return found[len(found) // 2] if found else graph.ledger.sources[0]
