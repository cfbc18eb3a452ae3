"""A Circle file with luci-profile's tables, its profile, and the Circle file made of it: their ids,
types and times fit together, as a program without whence sees them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Whence
from tests.cli.conftest import whence as whence  # noqa: PLC0414  (the fixture)
from tests.frontends.tflite.making import Model
from whence.provenance.luci_tables import OP_TABLE, SOURCE_TABLE

SCRIPT = Path(__file__).with_name("luci_join.py")
SOURCES = {2: "conv", 3: "bn", 5: "act", 8: "same", 9: "same", 11: "gone", 20: "soft"}
OPS = {0: {2, 3, 5}, 1: {8}, 2: {9}, 3: {20}, 4: {20}}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """What an optimiser left of seven operators: one of three, one of each of two that had the same
    name, and two of one.
    """
    rng = np.random.default_rng(0)
    made = Model(circle=True)
    shape = (1, 16, 16, 8)
    x = made.input(shape)
    w, b = made.const(rng.normal(size=(8, 3, 3, 8))), made.const(rng.normal(size=8))
    x = made.op(
        "CONV_2D",
        [x, w, b],
        shape,
        stride_w=1,
        stride_h=1,
        dilation_w_factor=1,
        dilation_h_factor=1,
        fused_activation_function=1,
    )
    x = made.op("EXP", [x], shape)
    x = made.op("TANH", [x], shape)
    x = made.op("RESHAPE", [x, made.const([1, 2048], np.int32)], (1, 2048), new_shape=[1, 2048])
    made.output(made.op("SOFTMAX", [x], (1, 2048), beta=1.0))
    made.metadata[SOURCE_TABLE.name] = SOURCE_TABLE.encode(SOURCES)
    made.metadata[OP_TABLE.name] = OP_TABLE.encode(
        {position: frozenset(ids) for position, ids in OPS.items()}
    )
    path = tmp_path / "model.circle"
    path.write_bytes(made.bytes())
    return path


def test_ids_types_and_times_join(whence: Whence, model: Path, tmp_path: Path) -> None:
    folder, converted = tmp_path / "out", tmp_path / "again.circle"
    for arguments in (
        ("profile", model, "-o", folder, "--runs", 3, "--threads", 1),
        ("convert", model, "-o", converted),
    ):
        done = whence(*arguments)
        assert done.code == 0, done.err
    joined = subprocess.run(
        [sys.executable, str(SCRIPT), str(model), str(folder), str(converted)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert joined.returncode == 0, joined.stderr
    rows = json.loads(joined.stdout)
    assert [(row["name"], row["operator"], row["fate"]) for row in rows] == [
        ("conv", "?", "live"),
        ("bn", "?", "live"),
        ("act", "?", "live"),
        ("same", "EXP", "live"),
        ("same#2", "TANH", "live"),
        ("gone", "?", "removed"),
        ("soft", "?", "live"),
    ]
    saved = json.loads((folder / "profile.json").read_text())
    assert [
        (each["table_id"], each["op"], each["time_ns"], each["positions"])
        for each in saved["sources"]
    ] == [
        (row["table_id"], row["operator"], row["time_ns"], row["positions"] or []) for row in rows
    ]
    assert (
        sum(row["time_ns"] for row in rows) + sum(saved["residual_ns"].values())
        == (saved["wall_ns"])
    )


def test_the_command_line_speaks_of_them(whence: Whence, model: Path) -> None:
    listed = whence("why", model)
    assert listed.code == 0, listed.err
    assert "removed by an earlier tool" in listed.out
    assert "dead" not in listed.out
    told = whence("why", model, "gone")
    assert "removed by an earlier tool, before this file was written" in told.out
    assert "same#2 (TANH)" in whence("why", model, "same#2").out
    assert "id 9 in its source table" in whence("why", model, "id:9").out
    by_type = whence("profile", model, "--runs", 1, "--by", "type")
    assert by_type.code == 0, by_type.err
    assert {"EXP", "TANH"} <= set(by_type.out.split())
