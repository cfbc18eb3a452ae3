"""Profile every model and see that the account closes: nothing lost, every operator of the file
there once, times that add up to the nanosecond.

    python -m zoo.profile_check                 every model in the cache
    python -m zoo.profile_check NAME...         some of them
    python -m zoo.profile_check --json FILE     the table as data
    python -m zoo.profile_check --files         write all files of each profile, and read back those that can be read

For models above 5 ms it also says which part of the wall time is in kernels; the goal is 95 %. Exit
code 1 when an account does not close.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from zoo.inputs import random_inputs
from zoo.manifest import cache_folder

if TYPE_CHECKING:
    from whence.attribution import Profile
    from whence.runtime.executable import Executable

GOAL = 0.95
LONG_NS = 5_000_000
SUFFIXES = (".onnx", ".tflite", ".circle")
_FILES = {
    "profile.json",
    "report.html",
    "debug.xml",
    "profile.duckdb",
    "trace.pftrace",
    "profile.pb.gz",
    "speedscope.json",
    "model_explorer.json",
}


@dataclass(frozen=True, slots=True)
class Account:
    """What came of one model. `status` is ok, wrong (the account does not close), or failed (it
    does not compile or run).
    """

    name: str
    status: str
    detail: str = ""
    operators: int = 0
    run_ns: int = 0
    """The shortest run."""
    kernels: float = 0.0
    """The part of the wall time that is in kernels, in the run of middling length,"""
    dispatch: float = 0.0
    """and, over all runs, the parts that are work around them,"""
    idle: float = 0.0
    """waiting to be taken up,"""
    reference: float = 0.0
    """and reference implementations."""
    waited: float = 0.0
    """Of the time in kernels: threads that waited for each other."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(asdict(check(options.one, options.runs, files=options.files))))
        return 0
    files = sorted(
        file
        for file in cache_folder().glob("*")
        if file.suffix in SUFFIXES and (not options.names or file.stem in options.names)
    )
    accounts = []
    # One after the other: two at a time would take each other's cores.
    with Progress(console=Console(stderr=True), transient=True) as bar:
        for file in bar.track(files, description="profiling"):
            flags = ["--runs", str(options.runs), *(["--files"] if options.files else [])]
            accounts.append(_in_a_process(file, options.timeout, flags))
    _report(accounts)
    if options.json is not None:
        options.json.write_text(
            json.dumps([asdict(account) for account in accounts], indent=1), encoding="utf-8"
        )
    return 1 if any(account.status == "wrong" for account in accounts) else 0


def _in_a_process(file: Path, timeout: float, flags: Sequence[str]) -> Account:
    """A process each, so that a crash or a hang fails one model and not the run."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "zoo.profile_check", "--one", str(file), *flags],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Account(file.stem, "failed", f"no answer in {timeout:.0f} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return Account(
            file.stem, "failed", f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"
        )
    return Account(**json.loads(lines[-1]))


def check(file: Path, runs: int, *, files: bool = False) -> Account:
    """One model, in this process."""
    import whence
    from whence.attribution import profile_executable
    from whence.report.files import WRITERS

    try:
        executable = whence.compile(file)
        inputs = _inputs(file, executable)
        found = profile_executable(
            executable, inputs, runs=runs, warmup=2, model=str(file), writers=WRITERS
        )
    except whence.WhenceError as error:
        return Account(file.stem, "failed", " ".join(str(error).split()))
    wrong = [*_faults(found, file), *(_file_faults(found) if files else ())]
    reference = sum(kernel.time_ns for kernel in found.kernels if not kernel.native)
    return Account(
        name=file.stem,
        status="wrong" if wrong else "ok",
        detail="; ".join(wrong) or _slow_references(found),
        operators=len(found.sources),
        run_ns=min(found.runs_ns),
        kernels=sum(event.end_ns - event.begin_ns for event in found.timeline)
        / max(1, found.timeline_ns),
        dispatch=found.share(found.residual_ns["dispatch"]),
        idle=found.share(found.residual_ns["idle"]),
        reference=found.share(reference),
        waited=found.waited_ns / max(1, found.attributed_ns),
    )


def _inputs(file: Path, executable: Executable) -> dict[str, Any] | None:
    """What the hints say; nothing where there are none and the model leaves something open, for
    then whence has to make inputs up itself.
    """
    from whence.types import TensorType
    from zoo.inputs import load_hints

    declared = []
    for port in executable.inputs:
        if not isinstance(port.type, TensorType):
            return None
        dims = [
            dim if isinstance(dim, int) else str(dim) if dim else None
            for dim in port.type.shape or ()
        ]
        declared.append(
            (
                port.name,
                port.type.dtype.numpy if port.type.dtype.name != "STRING" else np.dtype(object),
                dims,
            )
        )
    is_open = any(not isinstance(dim, int) for _, _, dims in declared for dim in dims)
    return (
        random_inputs(file.stem, declared, seed=0)
        if file.stem in load_hints() or not is_open
        else None
    )


def _faults(found: Profile, file: Path) -> Iterator[str]:
    attributed, residual = (
        sum(row.time_ns for row in found.sources),
        sum(found.residual_ns.values()),
    )
    if attributed + residual != found.wall_ns or found.wall_ns != sum(found.runs_ns):
        yield f"{attributed} + {residual} ns are not {found.wall_ns} ns"
    if found.coverage.lost:
        yield f"{found.coverage.lost} operators lost"
    if [row.id for row in found.sources] != list(range(1, found.coverage.source_ops + 1)):
        yield "an operator is missing or there twice"
    if any(name.startswith("unattributed") for name in found.residual_ns):
        yield "time that belongs to no operator: " + ", ".join(
            name for name in found.residual_ns if name.startswith("unattributed")
        )
    for kernel in found.kernels:
        if kernel.origin and sum(part.time_ns for part in kernel.origin) != kernel.time_ns:
            yield f"kernel {kernel.id} does not add up"
    for what in ("op", "type", "module", "line", "kernel", "pass"):
        if sum(group.time_ns for group in found.by(what)) != attributed:
            yield f"the groups by {what} do not add up"
    written = _operators_in(file)
    if written is not None and written != Counter(
        row.op.rpartition("::")[2] for row in found.sources
    ):
        yield f"the file has {written.total()} operators, the profile {len(found.sources)}"


def _operators_in(file: Path) -> Counter[str] | None:
    """The operators of an ONNX file by type, counted from the file itself; `None` where functions
    make that another question.
    """
    if file.suffix != ".onnx":
        return None
    import onnx

    model = onnx.load(file, load_external_data=False)
    if model.functions:
        return None

    def nodes(graph: onnx.GraphProto) -> Iterator[str]:
        for node in graph.node:
            yield node.op_type
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    yield from nodes(inner)

    return Counter(nodes(model.graph))


def _file_faults(found: Profile) -> Iterator[str]:
    from whence.attribution.read import read_profile
    from whence.debugdb.store import read_duckdb
    from whence.debugdb.vela_xml import read_xml

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        missing = _FILES - {path.name for path in found.save(folder)}
        if missing:
            yield f"no {', '.join(sorted(missing))}"
        if read_profile(folder) != found.without_local_paths():
            yield "profile.json reads back as something else"
        if read_xml(folder / "debug.xml") != read_duckdb(folder / "profile.duckdb"):
            yield "debug.xml and profile.duckdb differ"


def _slow_references(found: Profile) -> str:
    """The operators without native code that have more than a hundredth of the time."""
    slow = Counter[str]()
    for kernel in found.kernels:
        if not kernel.native:
            slow[kernel.name] += kernel.time_ns
    shown = [
        f"{name} {time / found.wall_ns:.0%}"
        for name, time in slow.most_common(4)
        if time * 100 > found.wall_ns
    ]
    return "by reference: " + ", ".join(shown) if shown else ""


def _report(accounts: Sequence[Account]) -> None:
    for account in sorted(accounts, key=lambda each: (each.status, each.run_ns)):
        if account.status == "failed":
            print(f"failed {account.name:28} {account.detail}")
            continue
        below = account.run_ns > LONG_NS and account.kernels < GOAL
        parts = (
            f"kernels {account.kernels:6.1%} dispatch {account.dispatch:5.1%} idle"
            f" {account.idle:5.1%} waited {account.waited:5.1%}"
        )
        print(
            f"{account.status:6} {account.name:28} {account.operators:6} operators"
            f" {account.run_ns / 1e6:9.2f} ms  {parts}{'  BELOW THE GOAL' if below else ''} "
            f" {account.detail}".rstrip()
        )
    counts = Counter(account.status for account in accounts)
    long = [
        account for account in accounts if account.status != "failed" and account.run_ns > LONG_NS
    ]
    reached = sum(account.kernels >= GOAL for account in long)
    print(
        f"{counts['ok']} ok, {counts['wrong']} wrong, {counts['failed']} failed; of {len(long)}"
        f" models above 5 ms, {reached} are at least {GOAL:.0%} in kernels"
    )


if __name__ == "__main__":
    sys.exit(main())
