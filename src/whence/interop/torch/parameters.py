"""Whether a graph's parameters are still what it was compiled for.

A network has hundreds, and the run of a model drives all of them out of the caches: asked one by
one from Python, for their addresses and versions, they take longer than some models' layers.
PyTorch has no function that asks many, but its libraries have one for each question, which C code
can call.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from whence.codegen.toolchain import SourceUnit, Toolchain

_ADDRESS_OF, _VERSION_OF = "aoti_torch_get_data_ptr", "_ZNK2at10TensorBase8_versionEv"
"""The first is part of PyTorch's C interface; the second is `at::TensorBase::_version`."""
_NO_VERSION = -1


class _Parameter(ctypes.Structure):
    """As in native/parameters.c."""

    _fields_ = (
        ("position", ctypes.c_ssize_t),
        ("object", ctypes.c_void_p),
        ("tensor", ctypes.c_void_p),
        ("address", ctypes.c_void_p),
        ("version", ctypes.c_int64),
    )


class ParameterState:
    """Where the parameters among a call's arguments lie, and how often each was written to, as
    found when this was made.
    """

    def __init__(self, arguments: Sequence[Any], positions: Sequence[int]) -> None:
        parameters = [arguments[each] for each in positions]
        self.addresses = [each.data_ptr() for each in parameters]
        self.versions = [_version(each) for each in parameters]
        self._positions, self._ids = positions, [id(each) for each in parameters]
        self._gone: list[Any] = []
        """Weak references to parameters that are no more: another may come to be in its place."""
        self._alive = [weakref.ref(each, self._gone.append) for each in parameters]
        # A parameter is always the same tensor to PyTorch's libraries: those of two objects can be
        # swapped only where no weak reference to them exists.
        tensors = [each._cdata for each in parameters]
        rows = zip(positions, self._ids, tensors, self.addresses, self.versions, strict=True)
        count = len(parameters)
        self._table = (_Parameter * count)(*(_Parameter(*row) for row in rows))
        self._asked = ctypes.addressof(self._table), count
        self._are_unchanged = native_check()

    def is_of(self, arguments: tuple[Any, ...]) -> bool:
        """Are the parameters among these the same, where they were, and not written to since?"""
        if self._gone:
            return False
        if self._are_unchanged is not None:
            return bool(self._are_unchanged(arguments, *self._asked))
        parameters = [arguments[each] for each in self._positions]
        return (
            [id(each) for each in parameters] == self._ids
            and [_version(each) for each in parameters] == self.versions
            and [each.data_ptr() for each in parameters] == self.addresses
        )


def _version(tensor: Any) -> int:
    """How often it was written to. Tensors made under inference_mode cannot be written to outside
    it, and have no version.
    """
    return _NO_VERSION if tensor.is_inference() else int(tensor._version)


@cache
def native_check() -> Any:
    """The function that asks many, given arguments, table and its length; `None` where PyTorch does
    not have those that it calls.
    """
    import torch

    libraries = ctypes.CDLL(torch._C.__file__)
    if not hasattr(libraries, _ADDRESS_OF) or not hasattr(libraries, _VERSION_OF):
        return None
    source = Path(__file__).parent / "native" / "parameters.c"
    unit = SourceUnit("parameters", source.read_text(encoding="utf-8"))
    # Other Python threads wait: it takes less time than letting them run, and the arguments must
    # not change meanwhile.
    are_unchanged = ctypes.PyDLL(str(Toolchain().build_library([unit]))).wh_are_unchanged
    functions = [
        ctypes.cast(each, ctypes.c_void_p)
        for each in (
            ctypes.pythonapi.PyTuple_GetItem,
            getattr(libraries, _ADDRESS_OF),
            getattr(libraries, _VERSION_OF),
        )
    ]
    pointers = [ctypes.c_void_p] * len(functions)
    are_unchanged.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int64, *pointers]
    are_unchanged.restype = ctypes.c_int32
    return lambda arguments, table, count: are_unchanged(arguments, table, count, *functions)
