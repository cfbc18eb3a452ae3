"""The real Vela compiles a model, both cores and two generations of hardware; what it writes is
read and joined.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.debugdb.making import DATA
from whence.api import load, prepare, save
from whence.attribution.vela import vela_profile
from whence.debugdb import DebugDatabase
from whence.debugdb.cycles import estimated_cycles, read_cycles
from whence.debugdb.join import VelaPlace, join_model
from whence.debugdb.locate import read_database
from whence.debugdb.model_operators import model_operators

MODEL = DATA / "tinycnn.tflite"
CONFIGURATIONS = {
    "regor_u55": ("ethos-u55-128",),
    "regor_u65": ("ethos-u65-256",),
    "regor_u85": ("ethos-u85-256",),
    "legacy_u55": ("ethos-u55-128", "--debug-force-legacy-core"),
}


def compile_with_vela(name: str, folder: Path, model: Path = MODEL) -> DebugDatabase:
    command = Path(sys.executable).with_name("vela")
    vela = str(command) if command.exists() else shutil.which("vela")
    assert vela is not None, "the package ethos-u-vela is not installed"
    accelerator, *more = CONFIGURATIONS[name]
    options = [
        "--accelerator-config",
        accelerator,
        "--enable-debug-db",
        "--verbose-performance",
        "--output-dir",
        str(folder),
        *more,
    ]
    done = subprocess.run(
        [vela, str(model), *options], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return read_database(folder / "tinycnn_debug.xml")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_what_vela_writes_today_is_joined(name: str, tmp_path: Path) -> None:
    db = compile_with_vela(name, tmp_path)
    assert not db.notes
    join = join_model(db, model_operators(MODEL))
    assert len(join.commands) == len(db.queue) > 20
    assert all(command.operator is not None for command in join.commands)
    leaky = next(operator for operator in join.operators if operator.op == "LEAKY_RELU")
    about = join.placements[leaky.id]
    assert about.place is VelaPlace.ABSORBED
    assert about.into is not None
    assert join.operators[about.into - 1].name in ("add4", "pw3")
    report = read_cycles(tmp_path / "tinycnn_per-layer.csv", db, join)
    cycles = report if name.startswith("legacy") else estimated_cycles(db, join)
    # Two ways to the same numbers: the tables of the database, and the report beside it.
    assert cycles.per_command == report.per_command
    profile = vela_profile(db, join, cycles, model=str(MODEL))
    assert profile.attributed_ns == profile.wall_ns > 10_000
    assert {row.name for row in profile.sources if row.time_ns == 0} <= {"leaky5", "add4"}


def test_vela_makes_the_same_of_a_file_that_whence_wrote(tmp_path: Path) -> None:
    written = tmp_path / "tinycnn.tflite"
    save(prepare(load(MODEL), portable=True), written)
    theirs, ours = (
        compile_with_vela("regor_u55", tmp_path / name, model)
        for name, model in (("theirs", MODEL), ("ours", written))
    )
    operators = model_operators(written)
    assert [(each.name, each.op) for each in operators] == [
        (each.name, each.op) for each in model_operators(MODEL)
    ]
    assert ours.queue == theirs.queue
    cycles = [estimated_cycles(db, join_model(db, operators)).per_command for db in (ours, theirs)]
    assert cycles[0] == cycles[1]
