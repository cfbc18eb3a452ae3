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

# Where each name is: importing whence costs nothing, and using a name loads what that name needs.
_PLACES = {
    "Engine": "whence.runtime.engine",
    "Executable": "whence.runtime.executable",
    "Graph": "whence.graph",
    "GraphError": "whence.errors",
    "InputError": "whence.errors",
    "ModelError": "whence.errors",
    "Profile": "whence.attribution.profile",
    "ProfilingDataKind": "whence.runtime.profiler",
    "ProvenanceError": "whence.errors",
    "RewriteError": "whence.errors",
    "Stream": "whence.runtime.stream",
    "StreamError": "whence.runtime.stream",
    "StreamFlags": "whence.runtime.stream",
    "UnsupportedError": "whence.errors",
    "WhenceError": "whence.errors",
    "compile": "whence.api",
    "get_profiling_data": "whence.runtime.stream",
    "load": "whence.api",
    "num_entries": "whence.runtime.stream",
    "prepare": "whence.api",
    "prepare_with_report": "whence.api",
    "profile": "whence.api",
    "reset_profiling": "whence.runtime.stream",
    "save": "whence.api",
}
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
