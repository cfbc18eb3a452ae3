"""A call in a process of its own, which takes with it what the call loaded and left behind."""

from __future__ import annotations

import contextlib
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

# Modules are looked for where this process looks for them, and nothing is imported before that is
# known. What Python would take apart at the end, for a tenth of a second, goes with the process. Of
# what a call makes most lives until then: garbage is looked for after a million new objects, not
# after every 700, of which a thousand modules alone make many. Only what the call returns is
# written to where we read: what anybody prints meanwhile is dropped.
_CHILD = """
import gc, sys
gc.set_threshold(1_000_000, 10, 10)
sys.path[:] = sys.argv[2:]
import os, pickle
answer = open(os.dup(1), "wb")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for name in filter(None, sys.argv[1].split(",")):
    __import__(name)
call, *given = pickle.load(sys.stdin.buffer)
pickle.dump(call(*given), answer)
answer.close()
os._exit(0)
"""
_PYTHON = re.compile(r"python[0-9.]*[a-z]?")
# What pickle raises for something that only this process has.
_NO_MESSAGE = (pickle.PicklingError, AttributeError, TypeError)
# The kind of all our warnings.
_NO_WARNINGS = ("-W", "error::RuntimeWarning")


class Answer(NamedTuple):
    """Of a call that was done in another process."""

    value: Any
    """What it returned."""


def call_in_subprocess(call: Callable[..., object], *given: object) -> Answer | None:
    """Call a function of some module in another Python process, and wait for it. There is an answer
    if it was done and had nothing else to say.

    Whoever gets none makes the call here, and hears as an exception or a warning what went wrong:
    so it does not matter why the other process failed, or could not be started. Only the module of
    the function is imported there, never the program that runs here.
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
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    def call(self, call: Callable[..., object], *given: object) -> Answer | None:
        """As `call_in_subprocess`; a second call is not done."""
        if self._process is None or self._process.poll() is not None:
            return None
        try:
            answer, _ = self._process.communicate(pickle.dumps((call, *given)))
        except (OSError, ValueError, *_NO_MESSAGE):
            return None
        # One that ended before its call did has none.
        is_done = self._process.returncode == 0 and answer
        return Answer(pickle.loads(answer)) if is_done else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """One that was not needed ends."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
