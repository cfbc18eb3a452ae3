"""The engine that the runtime's tests share."""

from __future__ import annotations

from tests.runtime.conftest import engine

__all__ = ["engine"]
