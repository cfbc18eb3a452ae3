"""The files that a saved profile consists of, besides profile.json."""

from __future__ import annotations

from whence.attribution.profile import Profile, Writer
from whence.report.debug_database import write_debug_database
from whence.report.html import write_html
from whence.report.model_explorer import write_model_explorer
from whence.report.perfetto import write_perfetto
from whence.report.pprof import write_pprof
from whence.report.speedscope import write_speedscope
from whence.runtime.registry import backend_names

WRITERS: tuple[Writer, ...] = (
    write_speedscope,
    write_pprof,
    write_perfetto,
    write_model_explorer,
    write_debug_database,
    write_html,
)


def left_out(profile: Profile) -> str:
    """What the files do not have, and why, in a line; nothing where they have all."""
    if profile.background is not None:
        return ""
    why = "another engine does not hand out its program"
    if profile.engine in backend_names():
        why = "parts of the model are compiled during a run, for sizes that only a run knows"
    return f"left out: model_explorer*.json, optimised nodes and generated code, as {why}"
