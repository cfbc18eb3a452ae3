"""Cells as tasks of a Ray cluster: labels choose the kind of machine, and one counted `bench_slot`
for each machine sees that nothing else is measured there meanwhile.

Models travel by content, once to each machine. A machine that is lost is Ray's to notice: its cells
run elsewhere. Results come back to the process that started the sweep, which alone writes the
table, so machines need no folder in common.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from whence.errors import InputError, UnsupportedError
from whence.fleet.cell import Cell
from whence.fleet.cell_result import CellResult
from whence.fleet.process import CellLimits, measure
from whence.fleet.sweep import Finished, Task
from whence.fleet.versions import Checkout, filled
from whence.runtime.environment import processor_name

SLOT = "bench_slot"
LABEL = "device"
"""The label that says what kind of machine a node is."""
_RETRIES = 3
_REACH_SECONDS = 5.0
_CLIENT_PORT = 10001


class RayRunner:
    """Runs cells on a cluster; `address` is `ray` for one on this machine alone,
    `ray://HOST[:PORT]` for one that is reached from outside, `ray:HOST:PORT` for the one this
    machine is part of.
    """

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise UnsupportedError(
                "a sweep on a cluster needs Ray, which is not installed: pip install"
                " 'whence[fleet]'"
            ) from None
        self._ray: Any = ray
        kind, _, rest = address.partition(":")
        if kind != "ray":
            raise InputError(f"'{address}' is no cluster: name ray, ray://HOST or ray:HOST:PORT")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if not rest:
            self._ray.init(address="local", resources={SLOT: 1}, include_dashboard=False, **options)
        else:
            outside = rest.startswith("//")
            host = rest.removeprefix("//")
            _check_reachable(host if ":" in host or not outside else f"{host}:{_CLIENT_PORT}")
            try:
                self._ray.init(address=address if outside else rest, **options)
            except Exception as error:
                text = " ".join(str(error).split())[:300]
                raise InputError(f"cannot join the cluster at '{rest}': {text}") from error
        if not self._ray.cluster_resources().get(SLOT):
            self._ray.shutdown()
            raise InputError(
                f"no node of the cluster has a {SLOT}; start each with `ray start ..."
                f" --resources='{{\"{SLOT}\": 1}}' --labels={LABEL}=NAME`"
            )

    def run(self, tasks: Sequence[Task], limits: CellLimits) -> Iterator[Finished]:
        ray = self._ray
        known = {node.get("Labels", {}).get(LABEL, "") for node in ray.nodes() if node["Alive"]}
        known -= {""}
        # A machine that was asked for and is not there would be waited for without end. A cell that
        # no machine was asked for has the name of this one's processor.
        missing = sorted({task.cell.machine for task in tasks} - known - {processor_name()})
        if missing:
            raise InputError(
                f"no node of the cluster has the label {LABEL}={missing[0]}; there is"
                f" {', '.join(sorted(known)) or 'none'}"
            )
        remote = ray.remote(_measure_there)
        contents = {task.model.sha256: task.model for task in tasks}
        # In the object store once, from where each node that needs it gets it once.
        stored = {digest: ray.put(model.contents()) for digest, model in contents.items()}
        waiting: dict[Any, Task] = {}
        for task in tasks:
            cell = task.cell
            selector = {LABEL: cell.machine} if cell.machine in known else {}
            reference = remote.options(
                resources={SLOT: 1},
                num_cpus=0,
                max_retries=_RETRIES,
                label_selector=selector,
                name=cell.describe()[:80],
            ).remote(cell, stored[task.model.sha256], task.model.path.name, limits, task.checkout)
            waiting[reference] = task
        while waiting:
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            task = waiting.pop(done)
            try:
                outcome: CellResult = ray.get(done)
            except ray.exceptions.RayError as error:
                text = " ".join(str(error).split())[:300]
                raise InputError(
                    f"the cluster lost '{task.cell.describe()}' {_RETRIES + 1} times: {text}; what"
                    " was measured is in the table, the same command goes on from there"
                ) from error
            yield Finished(task, outcome)

    def close(self) -> None:
        self._ray.shutdown()


def _measure_there(
    cell: Cell, contents: dict[str, bytes], name: str, limits: CellLimits, checkout: Checkout
) -> CellResult:
    """On a node of the cluster: put the model where it was not yet, and measure."""
    return measure(cell, place_model(contents, name), limits, checkout)


def place_model(contents: dict[str, bytes], name: str) -> Path:
    """The model as files on this node, in a folder that is named by their content."""
    digest = hashlib.sha256()
    for path in sorted(contents):
        digest.update(path.encode() + b"\0")
        digest.update(hashlib.sha256(contents[path]).digest())
    folder = Path(tempfile.gettempdir()) / f"whence-models-{os.getuid()}" / digest.hexdigest()
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with filled(folder) as part:
            for path, content in contents.items():
                file = part / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
    return folder / name


def _check_reachable(address: str) -> None:
    """Ray itself waits for half a minute and more."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_REACH_SECONDS):
            pass
    except (OSError, ValueError) as error:
        raise InputError(
            f"nothing answers at '{address}' ({error}); is the head node running? Nothing was lost:"
            " run the same command when it is"
        ) from error
