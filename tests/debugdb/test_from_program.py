"""The database of a program that was really compiled."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.attribution.harness import program_of
from tests.cli.conftest import conv_bn_relu
from tests.cpu_backend import cpu_backend
from whence.api import load, prepare_with_report
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.instance import Instance
from whence.building.program import Program
from whence.debugdb import DebugDatabase, from_program, parse_xml, sample_rows, xml_text
from whence.debugdb.rows import CmdstreamRow, OperatorRow, SourceOperatorRow, TombstoneRow
from whence.debugdb.store import ask
from whence.graph.builder import GraphBuilder
from whence.graph.outcomes import history_of
from whence.provenance import EdgeKind
from whence.runtime.engine import Engine
from whence.runtime.profiler import Profiler
from whence.types import DType

HOSTILE = 'bn ]]> <&> "x" \r\n \x01'


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(threads=1)


def compiled(model: onnx.ModelProto, engine: Engine, folder: Path) -> tuple[Program, DebugDatabase]:
    path = folder / "m.onnx"
    onnx.save(model, path)
    graph = load(path)
    prepare_with_report(graph)
    program = build_program(graph, cpu_backend(engine).toolchain)
    return program, from_program(program, "m.onnx", read=load(path))


def test_conv_bn_relu(engine: Engine, tmp_path: Path) -> None:
    program, db = compiled(conv_bn_relu(HOSTILE), engine, tmp_path)
    assert db.source == [
        SourceOperatorRow(1, "Conv", 3, 3, 6, 6, 4, 0),
        SourceOperatorRow(2, "BatchNormalization", 1, 1, 6, 6, 4, 1),
        SourceOperatorRow(3, "Relu", 1, 1, 6, 6, 4, 2),
        SourceOperatorRow(4, "Identity", 1, 1, 6, 6, 4, 3),
    ]
    assert db.operator[1] == OperatorRow(2, HOSTILE, "", "", "", "", "folded")
    assert [row.fate for row in db.operator] == ["live", "folded", "live", "removed"]
    assert db.cmdstream == [CmdstreamRow(0, 0)]
    assert [row.offset for row in db.queue] == [
        4 * step.number for step in program.steps for _ in step.nodes
    ]
    assert {row.source_id for row in db.optimised} == {1}
    weights = {row.source_id: row.weight for row in db.origin}
    assert weights[2] == 0.0
    assert weights[1] > 0.9 > weights[3] > 0.0
    assert db.tombstone == [
        TombstoneRow(0, 4, 4, "identity", "remove_no_ops", "Identity returns its input", 3)
    ]
    folding = next(row for row in db.passes if row.name == "fold_batch_norm")
    assert folding.changes == 1
    assert [row.applied for row in db.rule if row.pass_id == folding.id] == [1]
    assert parse_xml(xml_text(db).encode()) == db


def test_weights_close(engine: Engine, tmp_path: Path) -> None:
    program, db = compiled(conv_bn_relu(), engine, tmp_path)
    shares: dict[int, float] = defaultdict(float)
    for member in db.member:
        shares[member.kernel_id] += member.weight
    assert shares == pytest.approx({step.number: 1.0 for step in program.steps})
    origins: dict[int, float] = defaultdict(float)
    for origin in db.origin:
        origins[origin.optimised_id] += origin.weight
    assert origins == pytest.approx({row.id: 1.0 for row in db.optimised})


def test_given_weights_are_taken(engine: Engine, tmp_path: Path) -> None:
    program, _ = compiled(conv_bn_relu(), engine, tmp_path)
    (node,) = program.steps[0].nodes
    db = from_program(program, weights={(node, 3): 1.0})
    assert {row.source_id: row.weight for row in db.origin} == {1: 0.0, 2: 0.0, 3: 1.0}
    assert db.optimised[0].source_id == 3
    assert db.source[0] == SourceOperatorRow(1, "Conv", None, None, None, None, None, 0)


def test_samples_join_the_tables(engine: Engine, tmp_path: Path) -> None:
    program, db = compiled(conv_bn_relu(), engine, tmp_path)
    profiler = Profiler()
    instance = Instance(program, cpu_backend(engine))
    for _ in range(3):
        profiler.begin(program)
        instance.run([np.zeros((1, 3, 8, 8), np.float32)], profiler)
    db.sample.extend(sample_rows(profiler.samples()))
    assert len(db.sample) == 3 * len(program.steps)
    total = sum(row.end_ns - row.begin_ns for row in db.sample)
    ((by_source,),) = ask(db, "SELECT sum(time_ns) FROM time_by_source").rows
    assert by_source == pytest.approx(total)
    assert ask(db, "SELECT name FROM time_by_source LIMIT 1").rows == [("conv1",)]


def test_nested_graphs_count_positions_of_their_own(engine: Engine, tmp_path: Path) -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
        return helper.make_graph(
            [
                helper.make_node(op, ["x"], [name + "_"]),
                helper.make_node("Neg", [name + "_"], [name]),
            ],
            name,
            [],
            [out],
        )

    graph = helper.make_graph(
        [
            helper.make_node(
                "If",
                ["c"],
                ["i"],
                name="if",
                then_branch=branch("t", "Exp"),
                else_branch=branch("e", "Sin"),
            ),
            helper.make_node("Abs", ["i"], ["y"], name="abs"),
        ],
        "g",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    _, db = compiled(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        engine,
        tmp_path,
    )
    assert [(row.operator, row.ext_key) for row in db.source] == [
        ("If", 0),
        ("Sin", 0),
        ("Neg", 1),
        ("Exp", 0),
        ("Neg", 1),
        ("Abs", 1),
    ]
    assert {row.source_id for row in db.optimised} == {1, 2, 3, 4, 5, 6}
    assert all(row.fate == "live" for row in db.operator)
    assert (db.source[5].ofm_w, db.source[5].ofm_h, db.source[5].ofm_d) == (1, 1, 2)


def test_removed_says_what_the_story_says() -> None:
    """Convolutions in a row: layout changes that carry the folded operators are put between them
    and cancelled.
    """
    rng = np.random.default_rng(0)
    build = GraphBuilder("g")
    x = build.input("x", DType.F32, [1, 16, 12, 12])
    for number in range(2):
        x = build.op(
            "Conv",
            x,
            build.const(rng.standard_normal((16, 16, 3, 3)).astype(np.float32)),
            name=f"conv{number}",
        )
        x = build.op(
            "Add",
            x,
            build.const(rng.standard_normal((16, 1, 1)).astype(np.float32)),
            name=f"add{number}",
        )
        x = build.op("Relu", x, name=f"relu{number}")
    build.output("y", build.op("Identity", x, name="same"))
    program = program_of(build.finish())
    graph = program.graph
    assert any(
        stone.reason == "cancelled" and 2 in stone.origin for stone in graph.ledger.tombstones
    )
    rows = ask(
        from_program(program), "SELECT name, fate, reason, pass_name, rule, into_id FROM removed"
    ).rows
    assert [row[:3] for row in rows] == [
        ("add0", "folded", "folded"),
        ("add1", "folded", "folded"),
        ("same", "removed", "identity"),
    ]
    for source, row in zip((graph.ledger.source(number) for number in (2, 5)), rows, strict=False):
        story = history_of(graph, source)
        fold = next(step for step in story.steps if step.kind is EdgeKind.FOLD)
        assert row[3:] == (fold.pass_name, fold.rule, min(node.id for node in story.live_in))
    stone = history_of(graph, graph.ledger.source(7)).tombstones[-1]
    assert rows[2][3:] == (stone.pass_name, stone.rule, stone.into)
