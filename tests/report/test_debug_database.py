"""debug.xml and profile.duckdb: the same rows, and times that agree with the profile."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.attribution.harness import conv_bn_relu
from whence.api import compile_model
from whence.attribution import Profile, profile_executable
from whence.debugdb.rows import TABLES
from whence.debugdb.store import ask, read_duckdb
from whence.debugdb.vela_xml import read_xml
from whence.graph.builder import GraphBuilder
from whence.report.debug_database import debug_database, write_debug_database
from whence.types import DType

HOSTILE = 'a"b\\c\n\x1b[31m</script>]]>&\x00;漢\udc80 _x0041_'


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_executable(compile_model(conv_bn_relu(HOSTILE), threads=1), runs=5, warmup=1, model="some/where/tiny.onnx")


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


def test_the_times_in_it_are_those_of_the_profile(profile: Profile, tmp_path: Path) -> None:
    _, file = write_debug_database(profile, tmp_path)
    db = read_duckdb(file)
    exact = {row[0]: row[1] for row in ask(db, "SELECT source_id, sum(time_ns)::BIGINT FROM attributed GROUP BY source_id").rows}
    assert exact == {row.id: row.time_ns for row in profile.sources if row.kernels}
    wall = ask(db, "SELECT value FROM profile WHERE key = 'wall_ns'").rows
    assert wall == [(str(profile.wall_ns),)]
    # All five runs are in the samples, which hold the clock reads as well: the views give the same shares.
    shares = {int(str(row[0])): float(str(row[1])) for row in ask(db, "SELECT source_id, share FROM time_by_source").rows}
    for row in profile.sources:
        assert shares[row.id] == pytest.approx(row.time_ns / profile.attributed_ns, abs=0.01)


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
    graph.ledger.sources[0] = dataclasses.replace(graph.ledger.sources[0], line="/home/me/secret/net/model.py:3", stack=stack)
    found = profile_executable(compile_model(graph, threads=1), [np.ones(4, np.float32)], runs=1, warmup=0, model="/home/me/m.onnx")
    for shown, is_there in ((found.without_local_paths(), False), (found, True)):
        assert shown.background is not None
        db = debug_database(shown, shown.background)
        assert ("secret" in db.operator[0].stack) == ("secret" in db.operator[0].line) == ("/home" in db.source_path) == is_there
    assert "model.py" in db.operator[0].stack


def test_a_profile_from_a_file_has_no_database(profile: Profile, tmp_path: Path) -> None:
    assert write_debug_database(dataclasses.replace(profile, background=None), tmp_path) == []
    assert list(tmp_path.iterdir()) == []
