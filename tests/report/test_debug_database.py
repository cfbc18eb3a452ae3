"""debug.xml and profile.duckdb: the same rows, and times that agree with the profile."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.attribution.harness import conv_bn_relu
from whence.api import compile_model, save
from whence.attribution import Profile, profile_executable
from whence.debugdb import DebugDatabase
from whence.debugdb.store import ask, read_duckdb
from whence.debugdb.tables import TABLES
from whence.debugdb.vela_xml import read_xml
from whence.graph.builder import GraphBuilder
from whence.passes.pipeline import PREPARE
from whence.report.debug_database import debug_database, write_debug_database
from whence.types import DType

HOSTILE = 'a"b\\c\n\x1b[31m</script>]]>&\x00;漢\udc80 _x0041_'


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_executable(
        compile_model(conv_bn_relu(HOSTILE), threads=1),
        runs=5,
        warmup=1,
        model="some/where/tiny.onnx",
    )


def test_both_files_hold_the_same_rows(profile: Profile, tmp_path: Path) -> None:
    xml, duckdb = write_debug_database(profile, tmp_path)
    assert (xml.name, duckdb.name) == ("debug.xml", "profile.duckdb")
    one, other = read_xml(xml), read_duckdb(duckdb)
    assert one == other
    for table in TABLES:
        assert one.rows(table) == other.rows(table)
    assert one.notes == other.notes == []
    assert one.operator[1].name == f"/net/layer1/{HOSTILE}"
    assert len(one.sample) == 5 * len(profile.kernels)
    assert one.passes


def test_the_times_in_both_files_are_those_of_profile_json(
    profile: Profile, tmp_path: Path
) -> None:
    profile.save(tmp_path)
    write_debug_database(profile, tmp_path)
    saved = json.loads((tmp_path / "profile.json").read_text())
    for db in (read_duckdb(tmp_path / "profile.duckdb"), read_xml(tmp_path / "debug.xml")):
        check_times(db, saved)


def test_a_kernel_of_nobodys_counts_once(profile: Profile, tmp_path: Path) -> None:
    sources = tuple(
        dataclasses.replace(row, time_ns=0, share=0.0, kernels=()) for row in profile.sources
    )
    kernels = tuple(dataclasses.replace(kernel, origin=()) for kernel in profile.kernels)
    residual = {**profile.residual_ns, "unattributed: copy": profile.attributed_ns}
    nobodys = dataclasses.replace(profile, sources=sources, kernels=kernels, residual_ns=residual)
    _, file = write_debug_database(nobodys, tmp_path)
    check_times(read_duckdb(file), nobodys.to_dict())
    given = ask(
        read_duckdb(file), "SELECT source_id, time_ns FROM kernels_of_source ORDER BY kernel_id"
    ).rows
    assert given == [(None, kernel.time_ns) for kernel in kernels]


def check_times(db: DebugDatabase, saved: dict[str, Any]) -> None:
    """Every time that the views give is the integer of profile.json, and every share is of the wall
    time.
    """
    rows = ask(db, "SELECT source_id, name, time_ns, share, kernels FROM time_by_source").rows
    assert all(type(row[2]) is int for row in rows)
    assert sum(int(str(row[2])) for row in rows) == saved["wall_ns"]
    assert {row[0]: row[2:] for row in rows if row[0] is not None} == {
        row["id"]: (row["time_ns"], row["share"], len(row["kernels"])) for row in saved["sources"]
    }
    assert {row[1]: row[2] for row in rows if row[0] is None} == saved["residual_ns"]
    kernels = ask(
        db, "SELECT kernel_id, calls, time_ns, min_ns FROM time_by_kernel ORDER BY kernel_id"
    ).rows
    assert kernels == [
        (row["id"], row["calls"], row["time_ns"], row["min_ns"]) for row in saved["kernels"]
    ]
    parts = ask(
        db,
        "SELECT kernel_id, source_id, weight, time_ns FROM kernels_of_source WHERE source_id IS NOT"
        " NULL",
    ).rows
    assert sorted(parts, key=str) == sorted(
        (
            (kernel["id"], part["id"], part["weight"], part["time_ns"])
            for kernel in saved["kernels"]
            for part in kernel["origin"]
        ),
        key=str,
    )
    assert ask(db, "SELECT value FROM profile WHERE key = 'wall_ns'").rows == [
        (str(saved["wall_ns"]),)
    ]


def test_the_policy_is_in_it(profile: Profile, tmp_path: Path) -> None:
    noted = dataclasses.replace(profile, notes=("kernel 3 is modelled",))
    xml, _ = write_debug_database(noted, tmp_path)
    facts = read_xml(xml).extra("profile")
    assert facts is not None
    assert ("policy", profile.policy) in facts.rows
    assert ("note", "kernel 3 is modelled") in facts.rows


def test_local_paths_stay_at_home(tmp_path: Path) -> None:
    build = GraphBuilder("g")
    build.output("y", build.op("Exp", build.input("x", DType.F32, [4]), name="exp"))
    graph = build.finish()
    stack = 'File "/home/me/secret/net/model.py", line 3, in forward\n  return x'
    graph.ledger.sources[0] = dataclasses.replace(
        graph.ledger.sources[0], line="/home/me/secret/net/model.py:3", stack=stack
    )
    found = profile_executable(
        compile_model(graph, threads=1),
        [np.ones(4, np.float32)],
        runs=1,
        warmup=0,
        model="/home/me/m.onnx",
    )
    for shown, is_there in ((found.without_local_paths(), False), (found, True)):
        assert shown.background is not None
        db = debug_database(shown, shown.background)
        assert (
            ("secret" in db.operator[0].stack)
            == ("secret" in db.operator[0].line)
            == ("/home" in db.source_path)
            == is_there
        )
    assert "model.py" in db.operator[0].stack


def test_a_profile_from_a_file_has_a_database_of_its_times(
    profile: Profile, tmp_path: Path
) -> None:
    """What the passes did is not in the file; operators, kernels and times are."""
    read = dataclasses.replace(profile, background=None)
    _, file = write_debug_database(read, tmp_path)
    with duckdb.connect(str(file), read_only=True) as connection:
        rows = connection.sql("SELECT source_id, time_ns FROM time_by_source").fetchall()
        facts = dict(connection.sql("SELECT key, value FROM profile").fetchall())
    assert sum(time for _, time in rows) == profile.wall_ns
    assert {number: time for number, time in rows if number is not None} == {
        row.id: row.time_ns for row in profile.sources
    }
    assert facts["engine"] == profile.engine


def test_every_pass_is_in_it_with_its_time_and_effects(tmp_path: Path) -> None:
    """Of a model from the cache as well: it was compiled at another time."""
    path = tmp_path / "model.onnx"
    save(conv_bn_relu(""), path)
    found = []
    for _ in range(2):
        profile = profile_executable(compile_model(path, threads=1), runs=1, warmup=0)
        assert profile.background is not None
        found.append(debug_database(profile, profile.background))
    first, again = found
    assert again.passes == first.passes
    assert again.rule == first.rule
    assert [row.name for row in first.passes] == [each.name for each in PREPARE]
    assert all(row.time_ns > 0 for row in first.passes)
    assert all(row.skipped for row in first.passes if row.name == "expand_stft")
    folding = next(row for row in first.passes if row.name == "fold_batch_norm")
    assert (folding.changes, folding.skipped) == (1, "")
    assert [row.applied for row in first.rule if row.pass_id == folding.id] == [1]


def test_how_close_kernels_come_to_the_peak_is_in_it(profile: Profile) -> None:
    assert profile.background is not None
    db = debug_database(profile, profile.background)
    assert [row.kernel_id for row in db.efficiency] == [row.id for row in profile.kernels]
    for row, kernel in zip(db.efficiency, profile.kernels, strict=True):
        assert (row.flops, row.bytes, row.bound) == (kernel.flops, kernel.bytes, kernel.bound)
        assert row.of_peak == kernel.of_peak
    for executed, kernel in zip(db.executed, profile.kernels, strict=True):
        assert executed == (
            kernel.id,
            kernel.executed_flops,
            kernel.executed_bytes,
            kernel.defined_flops,
        )
