"""What was measured of a machine, kept for every later process.

One JSON file for each processor, number of cores, and compiler, in the cache folder. It is replaced
whole; one that cannot be read, or that was measured in another way or with other microcode, is as
good as none. Measuring is `calibration/`, which happens when a model is profiled; what compiles a
model only looks whether it has happened.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from whence.codegen.cache import cache_key, replace_file
from whence.codegen.target import cpu_info
from whence.codegen.toolchain import Toolchain
from whence.errors import CacheError

if TYPE_CHECKING:
    from whence.rates import MachineRates

SETTING = "WHENCE_CALIBRATE"
"""The variable of the environment that decides whether the machine is measured: `auto`, or `never`
to do with what its kind should do.
"""
FOLDER = "calibration"
"""Of the cache, for what was measured."""
_Kept = TypeVar("_Kept")
_MICROCODE = re.compile(r"^microcode\s*:\s*(\S+)", re.MULTILINE)


def stored(toolchain: Toolchain) -> MachineRates | None:
    """What was measured, if it was."""

    def decode_file(content: Any) -> MachineRates | None:
        return decode(content["rates"]) if content["circumstances"] == _circumstances() else None

    return read_record(path_of(toolchain), decode_file)


def record_digest(toolchain: Toolchain) -> str:
    """Differs whenever what was measured does, for keys of what was chosen by it. Takes no more
    than reading the file, which a start can afford.
    """
    if not _counts(toolchain):
        return ""
    try:
        return hashlib.sha256(path_of(toolchain).read_bytes()).hexdigest()
    except OSError:
        return ""


def measured(toolchain: Toolchain) -> MachineRates | None:
    """What was measured, where kernels are to be chosen by it. While something else used the cores,
    nothing was: then rates of several threads are too low, and what waking them takes too long.
    """
    found = stored(toolchain) if _counts(toolchain) else None
    return None if found is None or found.disturbed else found


def _counts(toolchain: Toolchain) -> bool:
    return os.environ.get(SETTING) != "never" and not toolchain.sanitize


def store(toolchain: Toolchain, rates: MachineRates) -> Path | None:
    """Keep it for later processes; `None` where nothing can be kept."""
    content = {"circumstances": _circumstances(), "rates": encode(rates)}
    return keep_record(toolchain, path_of(toolchain).name, content)


def read_record(path: Path, decode: Callable[[Any], _Kept]) -> _Kept | None:
    """What was kept; `None` where nothing was, or nothing that can be read."""
    from whence.building.json_records import MISREAD

    try:
        return decode(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, *MISREAD):
        return None


def keep_record(toolchain: Toolchain, name: str, content: Any) -> Path | None:
    """Keep it under a name in the folder of such records."""
    with suppress(OSError, CacheError):
        path = toolchain.cache.subfolder(FOLDER) / name
        replace_file(path, json.dumps(content, indent=1).encode() + b"\n", is_durable=True)
        return path
    return None


def encode(rates: MachineRates) -> dict[str, Any]:
    """As JSON has it."""
    from whence.building.json_records import encoded

    peak = {str(unit): [rate.one, rate.all] for unit, rate in rates.peak.items()}
    return {**encoded(rates), "peak": peak}


def decode(content: Any) -> MachineRates:
    """Raises one of `MISREAD` where that is no such record."""
    from whence.building.json_records import decoded
    from whence.rates import MachineRates

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
    name = cache_key("calibration", toolchain.key(), str(toolchain.target.cores))
    return toolchain.cache.folder / FOLDER / f"{name[:32]}.json"


def _circumstances() -> str:
    """Differs whenever the way of measuring does, what functions are made of, or the microcode."""
    from whence.codegen.prelude import PRELUDE
    from whence.codegen.vectors import VECTORS

    # An update of it can change how fast a processor is.
    microcode = "".join(_MICROCODE.findall(cpu_info())[:1])
    digest = hashlib.sha256((microcode + PRELUDE + VECTORS).encode())
    root = Path(__file__).resolve().parent.parent / "calibration"
    for name in ("measure.py", "probes.py", "native/calibrate.c"):
        digest.update(root.joinpath(name).read_bytes())
    return digest.hexdigest()
