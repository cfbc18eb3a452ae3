"""The files that a saved profile consists of, besides profile.json."""

from __future__ import annotations

from whence.attribution.profile import Writer
from whence.report.debug_database import write_debug_database
from whence.report.html import write_html
from whence.report.model_explorer import write_model_explorer
from whence.report.perfetto import write_perfetto
from whence.report.pprof import write_pprof
from whence.report.speedscope import write_speedscope

WRITERS: tuple[Writer, ...] = (
    write_speedscope,
    write_pprof,
    write_perfetto,
    write_model_explorer,
    write_debug_database,
    write_html,
)
