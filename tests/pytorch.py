"""PyTorch for tests: they are skipped without it, unless WHENCE_REQUIRE_TORCH asks for them."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def require_torch() -> Any:
    if os.environ.get("WHENCE_REQUIRE_TORCH"):
        return importlib.import_module("torch")
    return pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
