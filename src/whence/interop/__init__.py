"""Working together with the objects of other libraries: `whence.interop.opencl`."""

from typing import Any


def __getattr__(name: str) -> Any:
    # What it needs is an extra, so it is imported when it is used.
    if name == "opencl":
        import importlib

        return importlib.import_module("whence.interop.opencl")
    raise AttributeError(f"module 'whence.interop' has no attribute {name!r}")
