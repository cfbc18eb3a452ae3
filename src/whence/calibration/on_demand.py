"""The rates of this machine, measured when they are first asked for."""

from __future__ import annotations

import os

from whence.building.backend import Progress
from whence.building.machine_record import SETTING, stored
from whence.calibration.measure import calibrate
from whence.calibration.nominal import nominal_rates
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError
from whence.rates import MachineRates


def rates_for(toolchain: Toolchain) -> MachineRates:
    """What is known of the machine now: what was measured once, else what its kind should do."""
    return stored(toolchain) or nominal_rates(toolchain.target)


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
