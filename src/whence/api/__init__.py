"""What people import: load a model, prepare it, compile it, write it.

Everything else is imported where it is used: a program that runs a model which was compiled before
needs neither readers nor passes nor kernels, and loading them would take longer than starting it.
"""

from whence.api.compile import compile_model
from whence.api.files import WRITTEN, Shapes, load, save
from whence.api.prepare import prepare, prepare_again, prepare_with_report
from whence.api.profile import machine_rates, profile_model

__all__ = [
    "WRITTEN",
    "Shapes",
    "compile_model",
    "load",
    "machine_rates",
    "prepare",
    "prepare_again",
    "prepare_with_report",
    "profile_model",
    "save",
]
