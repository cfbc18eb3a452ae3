"""What was measured of a machine, kept for every later process.

One JSON file for each processor, number of cores, and compiler, in the cache folder. It is replaced
whole; one that cannot be read is as good as none. Nothing is measured when whence is imported, nor
when a model is compiled or started: whoever profiles a model asks (`calibrated`), and what was never
measured has nominal rates (`nominal.py`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from whence.building.tuning_records import replace_file
from whence.calibration.json_records import MISREAD, decoded, encoded
from whence.calibration.nominal import nominal_rates
from whence.codegen.cache import cache_key
from whence.codegen.prelude import PRELUDE
from whence.codegen.toolchain import Toolchain
from whence.codegen.vectors import VECTORS
from whence.errors import CacheError
from whence.rates import MachineRates

FOLDER = "calibration"
"""Of the cache, for what was measured."""
_Kept = TypeVar("_Kept")
_MICROCODE = re.compile(r"^microcode\s*:\s*(\S+)", re.MULTILINE)


def rates_for(toolchain: Toolchain) -> MachineRates:
    """What is known of the machine now: what was measured once, else what its kind should do."""
    return stored(toolchain) or nominal_rates(toolchain.target)


def stored(toolchain: Toolchain) -> MachineRates | None:
    """What was measured, if it was."""
    return read_record(path_of(toolchain), decode)


def store(toolchain: Toolchain, rates: MachineRates) -> Path | None:
    """Keep it for later processes; `None` where nothing can be kept."""
    return keep_record(toolchain, path_of(toolchain).name, encode(rates))


def read_record(path: Path, decode: Callable[[Any], _Kept]) -> _Kept | None:
    """What was kept; `None` where nothing was, or nothing that can be read."""
    try:
        return decode(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, *MISREAD):
        return None


def keep_record(toolchain: Toolchain, name: str, content: Any) -> Path | None:
    """Keep it under a name in the folder of such records."""
    with suppress(OSError, CacheError):
        path = toolchain.cache.subfolder(FOLDER) / name
        replace_file(path, json.dumps(content, indent=1).encode() + b"\n")
        return path
    return None


def encode(rates: MachineRates) -> dict[str, Any]:
    """As JSON has it."""
    peak = {str(unit): [rate.one, rate.all] for unit, rate in rates.peak.items()}
    return {**encoded(rates), "peak": peak}


def decode(content: Any) -> MachineRates:
    """Raises one of `MISREAD` where that is no such record."""
    # Profiles from before it was measured do not have what kernels reach.
    if missing := {each.name for each in fields(MachineRates)} - {"reached", *content}:
        raise KeyError(*missing)
    found = decoded(MachineRates, content)
    if not found.peak:
        raise ValueError("there is no peak rate")
    for rate in (*found.peak.values(), *(level.bandwidth for level in found.levels)):
        if not (0 < rate.one < math.inf and 0 < rate.all < math.inf):
            raise ValueError(f"{rate.one} and {rate.all} are no rates")
    return found


def path_of(toolchain: Toolchain) -> Path:
    """Where what was measured is kept."""
    name = cache_key(
        "calibration",
        toolchain.key(),
        str(toolchain.target.cores),
        _microcode(),
        _source_digest(),
    )
    return toolchain.cache.folder / FOLDER / f"{name[:32]}.json"


def _microcode(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """An update of it can change how fast a processor is."""
    try:
        found = _MICROCODE.search(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def _source_digest() -> str:
    """Differs whenever the way of measuring does, or what functions are made of."""
    digest = hashlib.sha256((PRELUDE + VECTORS).encode())
    root = resources.files("whence.calibration")
    for name in ("measure.py", "probes.py", "native/calibrate.c"):
        digest.update(root.joinpath(name).read_bytes())
    return digest.hexdigest()
