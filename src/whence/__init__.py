"""whence: a neural-network graph compiler that never loses track of where anything came from."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.api import compile_model as compile
    from whence.api import load, prepare, prepare_with_report, save
    from whence.api import profile_model as profile
    from whence.attribution.profile import Profile
    from whence.errors import (
        GraphError,
        InputError,
        ModelError,
        ProvenanceError,
        RewriteError,
        UnsupportedError,
        WhenceError,
    )
    from whence.graph import Graph
    from whence.runtime.engine import Engine
    from whence.runtime.executable import Executable
    from whence.runtime.profiler import ProfilingDataKind
    from whence.runtime.stream import (
        Stream,
        StreamError,
        StreamFlags,
        get_profiling_data,
        num_entries,
        reset_profiling,
    )

__version__ = "0.1.0"

__all__ = [
    "Engine",
    "Executable",
    "Graph",
    "GraphError",
    "InputError",
    "ModelError",
    "Profile",
    "ProfilingDataKind",
    "ProvenanceError",
    "RewriteError",
    "Stream",
    "StreamError",
    "StreamFlags",
    "UnsupportedError",
    "WhenceError",
    "compile",
    "get_profiling_data",
    "load",
    "num_entries",
    "prepare",
    "prepare_with_report",
    "profile",
    "reset_profiling",
    "save",
]

# What is where: importing whence costs nothing, and using a name loads what that name needs.
_NAMES = {
    "whence.api": ("compile", "load", "prepare", "prepare_with_report", "profile", "save"),
    "whence.attribution.profile": ("Profile",),
    "whence.errors": (
        "GraphError", "InputError", "ModelError", "ProvenanceError", "RewriteError",
        "UnsupportedError", "WhenceError",
    ),
    "whence.graph": ("Graph",),
    "whence.runtime.engine": ("Engine",),
    "whence.runtime.executable": ("Executable",),
    "whence.runtime.profiler": ("ProfilingDataKind",),
    "whence.runtime.stream": (
        "Stream", "StreamError", "StreamFlags", "get_profiling_data", "num_entries",
        "reset_profiling",
    ),
}  # fmt: skip
_PLACES = {name: module for module, names in _NAMES.items() for name in names}
_RENAMED = {"compile": "compile_model", "profile": "profile_model"}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "interop":
        return importlib.import_module("whence.interop")
    if name not in _PLACES:
        raise AttributeError(f"module 'whence' has no attribute {name!r}")

    value = getattr(importlib.import_module(_PLACES[name]), _RENAMED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
