"""PyTorch, where it is installed."""

from __future__ import annotations

import importlib
from typing import Any

from whence.errors import UnsupportedError


def torch_package(what_for: str) -> Any:
    """The `torch` package; a word on how to install it where it is missing."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UnsupportedError(
            f"{what_for} needs PyTorch, which is not installed ({error}): pip install"
            " 'whence[torch]'"
        ) from None
