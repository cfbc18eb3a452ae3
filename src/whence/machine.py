"""What all machines that whence compiles for have in common."""

from __future__ import annotations

CACHE_LINE = 64
"""Bytes that a cache moves at a time."""
