"""A call in a process of its own, which takes with it what the call loaded and left behind."""

from __future__ import annotations

import contextlib
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

# Modules are looked for where this process looks for them, and nothing is imported before that is
# known. What Python would take apart at the end, for a tenth of a second, goes with the process. Of
# what a call makes most lives until then: garbage is looked for after a million new objects, not
# after every 700, of which a thousand modules alone make many.
_CHILD = """
import gc, sys
gc.set_threshold(1_000_000, 10, 10)
sys.path[:] = sys.argv[2:]
import os, pickle
for name in filter(None, sys.argv[1].split(",")):
    __import__(name)
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
    with Subprocess() as process:
        return process.call(call, *given)


class Subprocess:
    """A Python process that waits for one call, in a `with`. It can be started before the call is
    known, to import `modules` meanwhile.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not _PYTHON.fullmatch(Path(sys.executable or "").name) or hasattr(sys, "frozen"):
            # A program that Python is a part of: started again, it would do whatever it does.
            return
        command = [
            sys.executable,
            *_NO_WARNINGS,
            "-c",
            _CHILD,
            ",".join(modules),
            *(folder for folder in sys.path if isinstance(folder, str)),
        ]
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def call(self, call: Callable[..., object], *given: object) -> bool:
        """As `call_in_subprocess`; a second call is not done."""
        if self._process is None or self._process.poll() is not None:
            return False
        try:
            self._process.communicate(pickle.dumps((call, *given)))
        except (OSError, ValueError, *_NO_MESSAGE):
            return False
        return self._process.returncode == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """One that was not needed ends."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
