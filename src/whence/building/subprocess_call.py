"""A call in a process of its own, which takes with it what the call loaded and left behind."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Modules are looked for where this process looks for them, and nothing is imported before that is
# known. What Python would take apart at the end, for a tenth of a second, goes with the process.
_CHILD = """
import sys
sys.path[:] = sys.argv[1:]
import os, pickle
call, *given = pickle.load(sys.stdin.buffer)
call(*given)
os._exit(0)
"""
_PYTHON = re.compile(r"python[0-9.]*[a-z]?")
# What pickle raises for something that only this process has.
_NO_MESSAGE = (pickle.PicklingError, AttributeError, TypeError)
# The kind of all our warnings.
_NO_WARNINGS = ("-W", "error::RuntimeWarning")


def call_in_subprocess(call: Callable[..., object], *given: object) -> bool:
    """Call a function of some module in another Python process, and wait for it. Was it done, and
    had it nothing to say?

    Only then does it count. Whoever gets False makes the call here, and hears as an exception or a
    warning what went wrong: so it does not matter why the other process failed, or could not be
    started. Only the module of the function is imported there, never the program that runs here.
    """
    if not _PYTHON.fullmatch(Path(sys.executable or "").name) or hasattr(sys, "frozen"):
        # A program that Python is a part of: started again, it would do whatever it does.
        return False
    command = [
        sys.executable,
        *_NO_WARNINGS,
        "-c",
        _CHILD,
        *(folder for folder in sys.path if isinstance(folder, str)),
    ]
    try:
        message = pickle.dumps((call, *given))
        ended = subprocess.run(
            command,
            input=message,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, *_NO_MESSAGE):
        return False
    return ended.returncode == 0
