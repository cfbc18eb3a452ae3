"""The tables of luci-profile in files that whence writes, and the chain of origins that they
keep.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Whence
from tests.cli.conftest import whence as whence  # noqa: PLC0414  (the fixture)
from tests.frontends.tflite.making import Model, compare, read, run_litert
from tests.frontends.tflite.runtimes import convert, run_onert
from whence.api import load, prepare, save
from whence.errors import ModelError
from whence.frontends.origin_metadata import FOLDED, HISTORY, read_history
from whence.frontends.tflite.reader import read_tflite
from whence.frontends.tflite.records import read_records
from whence.frontends.tflite.serialise import serialise
from whence.frontends.tflite.writer import to_records
from whence.graph.outcomes import coverage, outcomes
from whence.provenance import EdgeKind, Outcome
from whence.provenance.luci_tables import OP_TABLE, SOURCE_TABLE, read_tables

RNG = np.random.default_rng(3)


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def network(*, circle: bool = False) -> Model:
    """conv → mul → add → relu → mean, of which the middle folds into the convolution; and a shape
    that nobody needs.
    """
    model = Model(circle=circle)
    x = model.input((1, 6, 6, 3), name="x")
    conv = model.tensor((1, 6, 6, 4), name="conv")
    options: dict[str, Any] = {
        "stride_w": 1,
        "stride_h": 1,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
    }
    model.op(
        "CONV_2D",
        [x, model.const(real(4, 3, 3, 3)), model.const(real(4))],
        outputs=[conv],
        **options,
    )
    scaled, moved, positive = (
        model.tensor((1, 6, 6, 4), name=name) for name in ("scaled", "moved", "positive")
    )
    model.op("MUL", [conv, model.const(real(4))], outputs=[scaled])
    model.op("ADD", [scaled, model.const(real(4))], outputs=[moved])
    model.op("RELU", [moved], outputs=[positive])
    mean = model.tensor((1, 4), name="mean")
    model.op("MEAN", [positive, model.const([1, 2], np.int32)], outputs=[mean], keep_dims=False)
    model.op("SHAPE", [positive], (4,), np.int32, out_type=2)
    model.output(mean)
    return model


NAMES = ["conv", "scaled", "moved", "positive", "mean"]


def test_a_converted_file_says_where_its_operators_came_from(tmp_path: Path) -> None:
    record = convert(network(), tmp_path / "out.circle")
    assert [name for name, _ in record.metadata[:2]] == ["ONE_source_table", "ONE_op_table"]
    tables = read_tables(record.metadata)
    assert not tables.notes
    assert [tables.sources[number] for number in range(5)] == NAMES
    assert [operator.name for operator in record.subgraphs[0].operators] == ["CONV_2D", "MEAN"]
    assert tables.ops == {0: {0, 1, 2, 3}, 1: {4}}
    # As luci does it: payloads are the last buffers, in the order of the entries; the version is 0.
    payloads = [payload for _, payload in record.metadata]
    assert [buffer.tobytes() for buffer in record.buffers[-len(payloads) :]] == payloads
    assert record.version == 0


def test_the_chain_of_origins_over_two_conversions(tmp_path: Path) -> None:
    first, second, third = (
        tmp_path / name for name in ("first.circle", "second.circle", "third.tflite")
    )
    model = network()
    expected = [coverage(prepare(read(model), portable=True))]
    convert(model, first)
    for source, target in ((first, second), (second, third)):
        save(prepare(load(source), portable=True), target)
    for path in (first, second, third):
        graph = read_tflite(path)
        assert [(source.name, source.op) for source in graph.ledger.sources][:5] == list(
            zip(NAMES, ["CONV_2D", "MUL", "ADD", "RELU", "MEAN"], strict=True)
        )
        assert graph.ledger.lost() == []
        found = coverage(graph)
        assert (found.source_ops, found.lost) == (6, 0)
        assert found.live + found.folded + found.removed + found.dead == 6
        expected.append(found)
        assert {node.origin for node in graph if node.op == "ReduceMean"} == {frozenset({5})}
    assert len(set(expected)) == 1
    assert (
        read_records(first.read_bytes()).metadata[:2]
        == read_records(second.read_bytes()).metadata[:2]
    )
    feeds = [real(1, 6, 6, 3)]
    compare(run_litert(third.read_bytes(), feeds), run_litert(model, feeds), relative=1e-4)
    compare(run_onert([(second, feeds)], tmp_path)[0], run_litert(model, feeds), relative=1e-4)


@pytest.mark.parametrize("ending", ["circle", "tflite"])
def test_what_was_folded_stays_folded(tmp_path: Path, ending: str) -> None:
    """The multiplication and the addition are in the convolution's constants; the rectifier is work
    that its operator does.
    """
    record = convert(network(), tmp_path / f"first.{ending}")
    assert dict(record.metadata)[FOLDED] == b"[[0,[2,3]]]"
    save(prepare(load(tmp_path / f"first.{ending}"), portable=True), tmp_path / f"second.{ending}")
    again = dict(read_records((tmp_path / f"second.{ending}").read_bytes()).metadata)
    assert all(again[key] == payload for key, payload in record.metadata if key != HISTORY)
    for found in (dict(record.metadata)[HISTORY], again[HISTORY]):
        history = read_history(found.decode(), 6)
        assert [(history[source].kind, history[source].pass_name) for source in (2, 3)] == [
            (EdgeKind.FOLD, "fold_scale_bias")
        ] * 2
    for name in ("first", "second"):
        graph = read_tflite(tmp_path / f"{name}.{ending}")
        assert outcomes(graph) == [
            Outcome.LIVE,
            Outcome.FOLDED,
            Outcome.FOLDED,
            Outcome.LIVE,
            Outcome.LIVE,
            Outcome.DEAD,
        ]
        folded = graph.ledger.folded_origins()
        assert {
            node.op: sorted(node.origin & folded[node.id])
            for node in graph
            if node.origin == {1, 2, 3, 4}
        } == {
            "ChannelsLastConv": [2, 3],
            "Relu": [2, 3],
        }


def test_without_a_word_of_it_what_carries_a_source_does_its_work() -> None:
    graph = read(with_tables({0: "a", 1: "b"}, {0: frozenset({0, 1})}))
    assert outcomes(graph)[:2] == [Outcome.LIVE, Outcome.LIVE]


@pytest.mark.parametrize(
    "text",
    [
        b"\xff", b"", b"{}", b"[", b"[1]", b"[[]]", b"[[0]]", b"[[0,1]]", b"[[0,[0]]]", b"[[0,[3]]]", b"[[0,[true]]]", b"[[0,[1.5]]]", b"[[0,[[1]]]]",
        b"[[0,null]]", b'[["0",[1]]]', b"[[true,[1]]]", b"[[-1,[1]]]", b"[[6,[1]]]", b"[[1e99,[1]]]", b"[[0,[1],2]]", b"[" * 100_000,
        b"[[0,[" + b"9" * 5000 + b"]]]",
    ],
)  # fmt: skip
def test_a_malformed_account_of_what_was_folded_is_refused(text: bytes) -> None:
    model = with_tables({0: "a", 1: "b"}, {0: frozenset({0, 1})})
    model.metadata[FOLDED] = text
    with pytest.raises(ModelError, match=r"metadata 'whence\.folded'"):
        read(model)


def test_an_account_of_other_operators_says_nothing_of_this_one() -> None:
    model = with_tables({0: "a", 1: "b", 2: "c"}, {0: frozenset({0, 1}), 1: frozenset({2})})
    model.metadata[FOLDED] = b"[[0,[2,3]],[0,[2]]]"
    assert outcomes(read(model))[:3] == [Outcome.LIVE, Outcome.FOLDED, Outcome.LIVE]


def with_tables(sources: dict[int, str], ops: dict[int, frozenset[int]]) -> Model:
    model = network(circle=True)
    model.metadata[SOURCE_TABLE.name] = SOURCE_TABLE.encode(sources)
    model.metadata[OP_TABLE.name] = OP_TABLE.encode(ops)
    return model


def test_tables_come_back_byte_for_byte() -> None:
    """Ids with gaps, names that are not UTF-8, an operator of two sources, a source that is
    gone.
    """
    model = Model(circle=True)
    x = model.op("ABS", [model.input((3,))], (3,))
    model.output(model.op("EXP", [model.op("NEG", [x], (3,))], (3,)))
    sources = {3: "first", 7: "a\udcff\udc80name", 8: "", 4000000000: "last é", 9: "gone"}
    model.metadata[SOURCE_TABLE.name] = SOURCE_TABLE.encode(sources)
    model.metadata[OP_TABLE.name] = OP_TABLE.encode(
        {0: frozenset({3, 7}), 1: frozenset({8}), 2: frozenset({4000000000, 3})}
    )
    graph = read(model)
    assert graph.ledger.n_sources == 5
    record = read_records(serialise(to_records(graph, "circle")))
    assert dict(record.metadata)[SOURCE_TABLE.name] == model.metadata[SOURCE_TABLE.name]
    assert dict(record.metadata)[OP_TABLE.name] == model.metadata[OP_TABLE.name]
    again = read_records(serialise(to_records(read(serialise(record)), "circle")))
    assert dict(again.metadata)[SOURCE_TABLE.name] == dict(record.metadata)[SOURCE_TABLE.name]
    assert dict(again.metadata)[OP_TABLE.name] == dict(record.metadata)[OP_TABLE.name]


def test_an_empty_op_table_is_accepted() -> None:
    """ONE since 1.20 writes all sources and no operators: such a file counts as one without
    tables.
    """
    model = with_tables({number: f"n{number}" for number in range(6)}, {})
    graph = read(model)
    assert [source.name for source in graph.ledger.sources][:5] == NAMES
    assert graph.ledger.lost() == []
    record = to_records(graph, "circle")
    assert read_tables(record.metadata).ops


def test_operators_that_the_tables_leave_out_get_ids_of_their_own() -> None:
    model = with_tables({5: "five", 6: "six"}, {0: frozenset({5}), 1: frozenset({6})})
    tables = read_tables(to_records(read(model), "circle").metadata)
    assert tables.sources[5] == "five"
    assert sorted(tables.sources) == [5, 6, 7, 8, 9, 10]
    # The addition and the rectifier after it are one operator now.
    assert tables.ops == {0: {5}, 1: {6}, 2: {7, 8}, 3: {9}}


def test_subgraphs_do_not_share_ids(tmp_path: Path) -> None:
    model = Model()
    then, first = model.subgraph("then")
    other, second = model.subgraph("else")
    for graph, op in ((first, "ADD"), (second, "MUL")):
        x = graph.input((3,))
        graph.output(graph.op(op, [x, graph.const([1.0, 2.0, 3.0])], (3,)))
    condition, x = model.input((1,), np.bool_), model.input((3,))
    model.output(
        model.op(
            "IF",
            [condition, model.op("ABS", [x], (3,))],
            (3,),
            then_subgraph_index=then,
            else_subgraph_index=other,
        )
    )
    record = convert(model, tmp_path / "out.circle")
    tables = read_tables(record.metadata)
    assert len(tables.sources) == 4
    listed = [operator.name for subgraph in record.subgraphs for operator in subgraph.operators]
    by_source = {"ABS": 0, "IF": 1, "ADD": 2, "MUL": 3}
    assert {position: {by_source[name]} for position, name in enumerate(listed)} == tables.ops
    assert read_tflite(tmp_path / "out.circle").ledger.lost() == []


@pytest.mark.parametrize("ending", ["circle", "tflite"])
def test_command_line(whence: Whence, tmp_path: Path, ending: str) -> None:
    source = tmp_path / "model.tflite"
    source.write_bytes(network().bytes())
    done = whence("convert", source, "-o", tmp_path / f"one.{ending}")
    assert done.code == 0, done.err
    assert "6 source operators" in done.out
    assert whence("convert", tmp_path / f"one.{ending}", "-o", tmp_path / f"two.{ending}").code == 0
    told = whence("why", tmp_path / f"two.{ending}", "scaled")
    assert told.code == 0, told.err
    assert "scaled (MUL)" in told.out
    assert "'conv'" in told.out
    listed = whence("why", tmp_path / f"two.{ending}")
    assert all(name in listed.out for name in NAMES)
