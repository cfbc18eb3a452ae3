"""The rates of this machine, measured when they are first asked for."""

from __future__ import annotations

import os

from whence.building.backend import Progress
from whence.calibration.measure import calibrate
from whence.calibration.nominal import nominal_rates
from whence.calibration.record import stored
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError
from whence.rates import MachineRates

SETTING = "WHENCE_CALIBRATE"
"""The variable of the environment that decides: `auto`, or `never` to use nominal rates."""


def calibrated(toolchain: Toolchain, progress: Progress | None = None) -> MachineRates:
    """What was measured of this machine; it is measured now if it never was, which takes seconds.
    With WHENCE_CALIBRATE=never, and for code that this machine does not run, nominal rates.
    """
    setting = os.environ.get(SETTING, "auto")
    if setting not in ("auto", "never"):
        raise InputError(f"{SETTING} is '{setting}', which is neither 'auto' nor 'never'")
    if setting == "never" or toolchain.sanitize:
        return nominal_rates(toolchain.target)
    return stored(toolchain) or calibrate(toolchain, progress)
