"""A web of graphs and records with open sizes, as a copy in which they are numbers."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from whence.building.graph_pickle import PROTOCOL, GraphPickler
from whence.building.restricted_unpickler import load
from whence.extent import evaluate, is_symbolic


def evaluated(what: Any, sizes: Mapping[str, int]) -> Any:
    """A copy for these sizes of the dimensions; constants are shared with it."""
    file = io.BytesIO()
    pickler = _Pickler(file, sizes)
    pickler.dump(what)
    return load(file.getbuffer(), pickler.shared)


class _Pickler(GraphPickler):
    def __init__(self, file: io.BytesIO, sizes: Mapping[str, int]) -> None:
        super().__init__(file, PROTOCOL)
        self._sizes = sizes
        self.shared: list[np.ndarray] = []

    def persistent_id(self, obj: object) -> int | None:
        # Nobody writes to a constant, and there may be gigabytes of them.
        if type(obj) is not np.ndarray or obj.dtype == np.object_:
            return None
        self.shared.append(obj)
        return len(self.shared) - 1

    def reducer_override(self, obj: object) -> Any:
        if is_symbolic(obj):
            return int, (evaluate(obj, self._sizes),)  # type: ignore[arg-type]
        return super().reducer_override(obj)
