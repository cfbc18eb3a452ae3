"""What functions cost an engine, measured with the engine itself.

Engines differ by factors in what an error function or a hyperbolic tangent costs them, so a
kernel's time cannot be divided by what whence's own code would need. Each function that the cost
model tells apart runs in small models (`function_models.py`), and something simple in its place:
what the function takes longer is its arithmetic. That takes seconds, once for each engine, version
and machine; it is kept in the cache folder beside what was measured of the machine.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from whence.building.backend import Progress
from whence.building.json_records import decoded
from whence.building.machine_record import FOLDER, keep_record, read_record
from whence.building.nominal_rates import SIMPLE
from whence.calibration import calibrated
from whence.codegen.cache import cache_key
from whence.codegen.toolchain import Toolchain
from whence.foreign.engines import ENGINES, available
from whence.foreign.function_models import (
    ACTIVATIONS,
    ELEMENTS,
    FAMILIES,
    FUNCTIONS,
    LIMITS,
    SUMS,
    TWIN,
    write_function_models,
)
from whence.foreign.process import worker_environment
from whence.rates import MachineRates

_SECONDS = 300
# Where memory lies differs from one process to the next, and with it what large results cost.
_PROCESSES, _ROUNDS = 5, 4
_SOURCES = ("engine_rates.py", "function_models.py", "workers/time_models.py")


class FunctionCosts(NamedTuple):
    """What functions cost an engine."""

    element_ps: dict[str, float]
    """By function: picoseconds for an element."""
    epilogue: dict[str, float]
    """Behind a product or convolution, as a factor of that: by family and function. Of limits and
    sums, as a factor of something simple.
    """


def engine_rates(
    engine: str, version: str, toolchain: Toolchain, progress: Progress | None = None
) -> MachineRates:
    """The machine as the engine uses it: functions cost what they cost the engine. Those of the
    machine alone where the engine is not here in that version, does not read ONNX, or nothing is to
    be measured (WHENCE_CALIBRATE=never).
    """
    machine = calibrated(toolchain, progress)
    kind = ENGINES.get(engine)
    if (
        not machine.measured
        or kind is None
        or ".onnx" not in kind.suffixes
        or not available().get(engine, "").startswith(version)
    ):
        return machine
    place = _path(engine, version, toolchain)
    found = read_record(place, partial(decoded, FunctionCosts))
    if found is None:
        if progress is not None:
            progress(f"measuring functions of {engine}", 0, 1)
        found = measured_functions(engine, machine.element_ps[SIMPLE])
        if found is None:
            return machine
        keep_record(toolchain, place.name, found._asdict())
    return replace(
        machine, element_ps={**machine.element_ps, **found.element_ps}, epilogue=found.epilogue
    )


def forget_functions(engine: str, toolchain: Toolchain) -> None:
    """What functions cost the engine is measured anew by whoever asks next."""
    for path in (toolchain.cache.folder / FOLDER).glob(f"{engine}-*.json"):
        with suppress(OSError):
            path.unlink()


def measured_functions(engine: str, simple_ps: float) -> FunctionCosts | None:
    """Measured now, in several processes, of which the median counts; none where the engine cannot
    be asked. `simple_ps` is what the simplest functions cost.
    """
    with tempfile.TemporaryDirectory(prefix="whence-functions-") as folder:
        write_function_models(Path(folder))
        processes = []
        for seed in range(_PROCESSES):
            rounds = time_models(engine, Path(folder), _ROUNDS, seed)
            if rounds is None:
                return None
            processes.append({name: min(each) for name, each in rounds.items()})

    def longer_ps(kind: str, name: str) -> float:
        longer = statistics.median(
            took[f"{kind}/{name}"] - took[f"{kind}/{TWIN}"] for took in processes
        )
        return max(0.0, 1000 * longer / ELEMENTS[kind])

    alone = {name: simple_ps + longer_ps("alone", name) for name in FUNCTIONS}
    behind = {
        f"{family} {name}": longer_ps(family, name) / alone[name]
        for family in FAMILIES
        for name in ACTIVATIONS
    }
    behind |= {
        f"{family} {name}": longer_ps(family, name) / simple_ps
        for family in FAMILIES
        for name in LIMITS
    }
    behind |= {sum_name: longer_ps(kind, "Add") / simple_ps for kind, sum_name in SUMS.items()}
    return FunctionCosts(alone, behind)


def time_models(
    engine: str, folder: Path, rounds: int, seed: int = 0
) -> dict[str, list[int]] | None:
    """By path of the models in a folder and its subfolders, each of which runs in turns, all in a
    process of their own: nanoseconds of each round. None where the engine cannot be asked. The seed
    says in which order, and so where in memory, they are loaded.
    """
    command = [
        *(sys.executable, "-m", "whence.foreign.workers.time_models"),
        *(f"whence.foreign.workers.{engine}_worker", str(folder), str(rounds), str(seed)),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env=worker_environment(),
            check=True,
        )
        found = json.loads(done.stdout.strip().splitlines()[-1])
        return {str(name): [int(time) for time in each] for name, each in found.items()}
    except (
        subprocess.SubprocessError,
        OSError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
    ):
        return None


def _path(engine: str, version: str, toolchain: Toolchain) -> Path:
    digest = hashlib.sha256()
    root = resources.files("whence.foreign")
    for name in (*_SOURCES, f"workers/{engine}_worker.py"):
        digest.update(root.joinpath(name).read_bytes())
    name = cache_key("engine", engine, version, toolchain.key(), digest.hexdigest())
    return toolchain.cache.folder / FOLDER / f"{engine}-{name[:32]}.json"
