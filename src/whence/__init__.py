"""whence: a neural-network graph compiler that never loses track of where anything came from."""

from whence.api import compile_model as compile
from whence.api import load, prepare, prepare_with_report, save
from whence.api import profile_model as profile
from whence.attribution.profile import Profile
from whence.errors import GraphError, InputError, ModelError, ProvenanceError, RewriteError, UnsupportedError, WhenceError
from whence.graph import Graph
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.runtime.profiler import ProfilingDataKind
from whence.runtime.stream import Stream, StreamError, StreamFlags, get_profiling_data, num_entries, reset_profiling

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
