"""Running several engines on one model in turns, so that whatever disturbs the machine disturbs
them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from whence.attribution.profile import Profile
from whence.attribution.read import read_profile
from whence.building.backend import Progress
from whence.codegen.target import usable_cores
from whence.errors import InputError
from whence.foreign.engine_comparison import EngineComparison, compare_profiles
from whence.foreign.engines import ENGINES
from whence.foreign.process import EngineProcess, engine_process, run_in_turns
from whence.foreign.run import PreparedModel, attribute, finished, started

WHENCE = "whence"
_TURN = 3
"""Runs of an engine before it is another one's turn."""


def compare_engines(
    subject: PreparedModel,
    engines: Sequence[str],
    *,
    worker: str,
    threads: int = 0,
    runs: int = 30,
    warmup: int = 3,
    progress: Progress | None = None,
) -> EngineComparison:
    """Each engine in a process of its own, which stands still while others run. `worker` is the
    module that runs whence itself.
    """
    _check(engines)
    if runs < 1:
        raise InputError(f"a comparison needs at least one run, not {runs}")
    threads = threads or usable_cores()
    with ExitStack() as stack:
        processes: dict[str, EngineProcess] = {}
        for number, name in enumerate(engines):
            if progress is not None:
                progress(f"loading {name}", number, len(engines))
            processes[name] = stack.enter_context(
                engine_process(name, subject.path, threads, subject.inputs, worker)
                if name == WHENCE
                else started(subject, name, threads)
            )
        for process in processes.values():
            process.ask("warmup", warmup)
        run_in_turns(list(processes.values()), runs, _TURN, "running in turns", progress)
        profiles = {name: _profile(subject, process) for name, process in processes.items()}
    return compare_profiles(profiles, data_edges(subject))


def data_edges(subject: PreparedModel) -> list[tuple[int, int]]:
    source = subject.source
    return [
        (maker, reader)
        for reader in sorted(source.live)
        if source[reader].stands_for is None
        for maker in source[reader].feeds_from
    ]


def _profile(subject: PreparedModel, process: EngineProcess) -> Profile:
    if process.engine != WHENCE:
        return attribute(subject, finished(subject, process))[0]
    found = read_profile(process.finish() / "profile.json")
    return replace(found, engine=f"{WHENCE} {process.version} ({found.engine})")


def _check(engines: Sequence[str]) -> None:
    if len(engines) < 2 or len(set(engines)) != len(engines):
        raise InputError("at least two different engines are compared, whence,onnxruntime say")
    for name in engines:
        if name not in (WHENCE, *ENGINES):
            raise InputError(
                f"there is no engine '{name}'; there is {', '.join((WHENCE, *ENGINES))}"
            )
