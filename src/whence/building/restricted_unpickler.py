"""What `graph_pickle` wrote, read again.

The bytes come from the cache, which is private and checks them, and which holds machine code that
is trusted just as much; still, nothing is looked up but classes that graphs, programs and their
parts are made of. Nothing is imported for it but what those are in: a start reads how weights are
packed, and has no use for graphs.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_ALLOWED: Mapping[str, frozenset[str]] = {
    "builtins": frozenset({"frozenset", "set", "complex", "bytearray", "slice", "range", "int"}),
    "_codecs": frozenset({"encode"}),
    "collections": frozenset({"OrderedDict"}),
    "numpy": frozenset({"ndarray", "dtype"}),
    "numpy._core.multiarray": frozenset({"_reconstruct", "scalar"}),
    "numpy._core.numeric": frozenset({"_frombuffer"}),
    "pathlib": frozenset({"Path", "PosixPath"}),
}


def load(data: bytes | memoryview, shared: Sequence[np.ndarray] = ()) -> Any:
    """What was dumped. Raises `pickle.UnpicklingError` for anything else. `shared` are arrays that
    the bytes refer to by number.
    """
    return _Unpickler(io.BytesIO(data), shared).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: Sequence[np.ndarray]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: Any) -> np.ndarray:
        if not isinstance(pid, int) or not 0 <= pid < len(self._shared):
            raise pickle.UnpicklingError(f"there is no array {pid!r}")
        return self._shared[pid]

    def find_class(self, module: str, name: str) -> Any:
        # A name with dots would lead on, from a module of ours to whatever that module imports.
        if "." not in name and (
            module.split(".", maxsplit=1)[0] in ("whence", "ml_dtypes")
            or name in _ALLOWED.get(module, ())
        ):
            found = super().find_class(module, name)
            if module in _ALLOWED or getattr(found, "__module__", "").split(".", maxsplit=1)[0] in (
                "whence",
                "ml_dtypes",
            ):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a program")
