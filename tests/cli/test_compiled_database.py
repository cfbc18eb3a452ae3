"""The debug database beside a compiled library: samples that a C program takes join with the
operators of the model file. The joins here know the files only, and nothing of whence.
"""

from __future__ import annotations

import csv
import io
import subprocess
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.conftest import Whence
from tests.runtime.zig import zig_cc
from whence.codegen.toolchain import Toolchain
from whence.debugdb.sample_csv import read_samples
from whence.debugdb.tables import DebugDatabase
from whence.errors import ModelError

EXAMPLE = Path(__file__).parents[2] / "examples" / "run_model.c"
OPERATORS = {
    "features": "Conv",
    "bent": "Relu",
    "flat": "Flatten",
    "scores": "MatMul",
    "shares": "Softmax",
}


def _model(path: Path) -> Path:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="features", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="bent"),
        helper.make_node("Flatten", ["b"], ["c"], name="flat"),
        helper.make_node("MatMul", ["c", "v"], ["d"], name="scores"),
        helper.make_node("Softmax", ["d"], ["y"], name="shares"),
    ]
    weights = {"w": (8, 3, 3, 3), "v": (8 * 16 * 16, 10)}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    opset = helper.make_opsetid("", 21)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[opset]), path)
    return path


@pytest.fixture
def out(whence: Whence, tmp_path: Path) -> Path:
    """A folder with the compiled model, and what a C program that ran it three times noted."""
    folder = tmp_path / "out"
    assert whence("compile", _model(tmp_path / "net.onnx"), "-o", folder).code == 0
    link = ("-DMODEL=net", "-I.", "-L.", "-lnet", "-Wl,-rpath,$ORIGIN", "-o", "run_model")
    zig_cc(Toolchain(), folder, str(EXAMPLE), "-Wall", "-Wextra", "-Werror", *link)
    command = [str(folder / "run_model"), str(folder / "net.weights"), str(folder / "samples.csv")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder


def _samples(folder: Path) -> list[dict[str, int]]:
    with (folder / "samples.csv").open(newline="") as file:
        return [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_samples_join_with_operators_through_the_xml(out: Path) -> None:
    root = ElementTree.parse(out / "net_debug.xml").getroot()
    tables = {
        table.get("name"): list(csv.DictReader(io.StringIO(table.text or "")))
        for table in root.iter("table")
    }
    assert root.get("optimised") == "libnet.so"
    # As Vela's users do: from the offset of a command to the optimised operator to its source.
    types = {row["id"]: row["operator"] for row in tables["source"]}
    sources = {row["id"]: row["source_id"] for row in tables["optimised"]}
    commands = defaultdict(set)
    for row in tables["queue"]:
        commands[int(row["offset"])].add(types[sources[row["optimised_id"]]])
    samples = _samples(out)
    assert {sample["execution"] for sample in samples} == {0, 1, 2}
    found = [commands[4 * sample["kernel_id"]] for sample in samples]
    assert all(found), "every sample is a command of the queue"
    assert {"Conv", "MatMul", "Softmax"} <= set().union(*found)
    assert {row["name"]: types[row["source_id"]] for row in tables["operator"]} == OPERATORS


def test_samples_join_with_operators_through_duckdb(out: Path) -> None:
    with duckdb.connect(str(out / "net_debug.duckdb")) as database:
        database.execute(f"COPY sample FROM '{out / 'samples.csv'}' (HEADER)")
        times = dict(database.execute("SELECT name, time_ns FROM time_by_source").fetchall())
        joined = database.execute(
            """SELECT o.name, sum((s.end_ns - s.begin_ns) * m.weight * g.weight)
               FROM sample s JOIN member m USING (kernel_id) JOIN origin g USING (optimised_id)
               JOIN operator o USING (source_id) GROUP BY o.name"""
        ).fetchall()
    total = sum(sample["end_ns"] - sample["begin_ns"] for sample in _samples(out))
    assert sum(times.values()) == total
    assert sum(time for _, time in joined) == pytest.approx(total)
    for name, time in joined:
        assert times[name] == pytest.approx(time, abs=len(joined))
    assert set(OPERATORS) - {"flat"} <= {name for name, time in times.items() if time > 0}


def test_whence_answers_questions_about_them(whence: Whence, out: Path) -> None:
    query = "SELECT name FROM time_by_source WHERE time_ns > 0"
    done = whence("db", out, "--samples", out / "samples.csv", "--sql", query)
    assert (done.code, done.err) == (0, "")
    assert {"features", "scores", "shares"} <= set(done.out.split())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not begin with the columns"),
        ("a,b\n", "does not begin with the columns"),
        ("execution,kernel_id,begin_ns,end_ns\n0,0,1\n", "line 2: not 4 whole numbers"),
        ("execution,kernel_id,begin_ns,end_ns\n0,-1,1,2\n", "line 2: not 4 whole numbers"),
        (f"execution,kernel_id,begin_ns,end_ns\n0,0,1,{2**64}\n", "not 4 whole numbers"),
        ("execution,kernel_id,begin_ns,end_ns\n0,7,1,2\n", "no kernel 7; is it of the same"),
    ],
)
def test_samples_of_something_else_are_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "samples.csv").write_text(text)
    with pytest.raises(ModelError, match=why):
        read_samples(tmp_path / "samples.csv", DebugDatabase())
    with pytest.raises(ModelError, match="cannot be read"):
        read_samples(tmp_path / "none.csv", DebugDatabase())
