"""Measuring the machine: peak rates, bandwidths, and what operators and threads cost on it."""

from whence.calibration.measure import calibrate, calibrated, rates_for

__all__ = ["calibrate", "calibrated", "rates_for"]
