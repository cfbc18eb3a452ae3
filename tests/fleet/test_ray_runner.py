"""A cluster of three nodes on this machine: labels, a lost node, a killed driver."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fleet.models import tiny_model
from whence.errors import InputError
from whence.fleet.ray_runner import RayRunner, place_model
from whence.fleet.table import Table

pytest.importorskip("ray", reason="Ray is not installed: pip install 'whence[fleet]'")
WHENCE = [sys.executable, "-c", "from whence.cli.main import main; main()"]


@pytest.fixture
def cluster() -> Iterator[tuple[Any, list[Any]]]:
    """The head and the nodes that measure."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [
        made.add_node(
            num_cpus=1,
            resources={"bench_slot": 1},
            labels={"device": label},
            include_dashboard=False,
            wait=False,
        )
        for label in ("icelake", "zen", "zen")
    ]
    made.wait_for_nodes()
    yield made, nodes
    made.shutdown()


def wait_for(table, count: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 240
    while len(list(table.rglob("*.parquet"))) < count:
        assert process.poll() is None, "the sweep ended"
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_every_cell_once_though_a_node_and_the_driver_are_killed(cluster, tmp_path):
    head, nodes = cluster
    models = [tiny_model(tmp_path / f"tiny_{n}.onnx", n) for n in range(5)]
    spec = tmp_path / "sweep.toml"
    spec.write_text(
        'models = ["tiny_*.onnx"]\nthreads = [1]\nmachines = ["icelake", "zen"]\n'
        "[limits]\nseconds = 0.1\nerror = 0.9\nwarmup = 0\n"
    )
    table = tmp_path / "table"
    command = [
        *WHENCE, "sweep", str(spec), "-o", str(table), "--night", "n",
        "--on", f"ray:{head.address}",
    ]  # fmt: skip
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as driver:
        wait_for(table, 1, driver)
        head.remove_node(nodes[1], allow_graceful=False)
        wait_for(table, 3, driver)
        os.kill(driver.pid, signal.SIGKILL)
    before = {path: path.stat().st_mtime_ns for path in table.rglob("*.parquet")}
    again = subprocess.run(command, check=False, capture_output=True, text=True, timeout=400)
    assert again.returncode == 0, again.stderr
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    with Table(table).connected() as connection:
        cells = connection.execute(
            "SELECT model, machine, status FROM cell ORDER BY model, machine"
        ).fetchall()
        sums = connection.execute(
            """SELECT wall_ns = (SELECT sum(time_ns) FROM operator o WHERE o.key = cell.key)
                   + (SELECT sum(time_ns) FROM residual r WHERE r.key = cell.key) FROM cell"""
        ).fetchall()
    assert cells == [
        (model.stem, machine, "done") for model in models for machine in ("icelake", "zen")
    ]
    assert all(row == (True,) for row in sums)
    spec.write_text(spec.read_text().replace("icelake", "z80"))
    refused = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1
    assert (
        "no node of the cluster has the label device=z80; there is icelake, zen" in refused.stderr
    )


def test_an_unreachable_cluster_is_said_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = time.monotonic()
    with pytest.raises(InputError, match="nothing answers at"):
        RayRunner(f"ray://127.0.0.1:{port}")
    assert time.monotonic() - begin < 20
    with pytest.raises(InputError, match="is no cluster"):
        RayRunner("slurm://head")


def test_a_model_is_placed_once_by_its_content(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    contents = {"m.onnx": b"model", "data/w.bin": b"weights"}
    path = place_model(contents, "m.onnx")
    assert path.read_bytes() == b"model"
    assert (path.parent / "data" / "w.bin").read_bytes() == b"weights"
    then = path.stat().st_mtime_ns
    assert place_model(contents, "m.onnx") == path
    assert path.stat().st_mtime_ns == then
    assert place_model({"m.onnx": b"other"}, "m.onnx") != path
