"""A web of graphs and records with open sizes, as a copy in which they are numbers."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from whence.building.graph_pickle import PROTOCOL, GraphPickler, load
from whence.extent import evaluate, is_symbolic


def evaluated(what: Any, sizes: Mapping[str, int]) -> Any:
    """A copy for these sizes of the dimensions."""
    file = io.BytesIO()
    _Pickler(file, sizes).dump(what)
    return load(file.getbuffer())


class _Pickler(GraphPickler):
    def __init__(self, file: io.BytesIO, sizes: Mapping[str, int]) -> None:
        super().__init__(file, PROTOCOL)
        self._sizes = sizes

    def reducer_override(self, obj: object) -> Any:
        if is_symbolic(obj):
            return int, (evaluate(obj, self._sizes),)  # type: ignore[arg-type]
        return super().reducer_override(obj)
