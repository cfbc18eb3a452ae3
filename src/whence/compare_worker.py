"""whence itself in a process of its own, to be compared with other engines (`foreign/workers`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from whence import __version__
from whence.api import compile_model
from whence.attribution.measure import ProfiledRuns

FILE = "profile.json"


def load(model: Path, threads: int, inputs: dict[str, np.ndarray], folder: Path) -> WhenceSession:
    return WhenceSession(model, threads, inputs)


class WhenceSession:
    version: str = __version__

    def __init__(self, model: Path, threads: int, inputs: dict[str, np.ndarray]) -> None:
        shapes = {name: value.shape for name, value in inputs.items()}
        executable = compile_model(model, threads=threads, shapes=shapes)
        self._model = model
        self._runs = ProfiledRuns(executable, inputs)

    def run(self, *, counts: bool) -> None:
        if counts:
            self._runs.run()
        else:
            self._runs.warm_up()

    def run_profiled(self, *, counts: bool) -> None:
        if counts:
            self._runs.run_profiled()
        else:
            self._runs.warm_up()

    def note(self) -> None:
        """Profiled runs are noted as they are done."""

    def finish(self, folder: Path, warmup: int) -> None:
        found = self._runs.profile(model=str(self._model))
        (folder / FILE).write_text(found.to_json(), encoding="utf-8")
