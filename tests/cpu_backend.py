"""The processor behind an engine, for tests that look into it."""

from __future__ import annotations

from whence.backends.cpu.backend import CpuBackend
from whence.runtime.engine import Engine


def cpu_backend(engine: Engine) -> CpuBackend:
    assert isinstance(engine.backend, CpuBackend)
    return engine.backend
