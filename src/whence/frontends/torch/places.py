"""Module and line in the user's program, as PyTorch notes them on the nodes of its graphs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from whence.frontends.program_place import ProgramPlace, line_of

# `L['self']._modules['layer1']._modules['0']` and `L['self'].layer1[0]` are `layer1.0`.
_BRACKETED = re.compile(r"\[\s*['\"]?([^'\"\]]+)['\"]?\s*\]")
_LOCAL = re.compile(r"^[LG](?=\[)")
_HOLDERS = frozenset({"_modules", "_parameters", "_buffers"})


def place_of(meta: Mapping[str, Any], torch_folder: str = "") -> ProgramPlace:
    """What the metadata of a node says."""
    module, class_name = _module(meta.get("nn_module_stack"))
    stack = meta.get("stack_trace") or ""
    return ProgramPlace(module, class_name, line_of(stack, torch_folder), stack.rstrip())


def dotted(name: str) -> str:
    """The dotted path of a module or parameter that `torch.compile` names by the Python expression
    that reaches it.
    """
    path = _BRACKETED.sub(r".\1", _LOCAL.sub("", name))
    parts = [part for part in path.split(".") if part and part not in _HOLDERS]
    return ".".join(parts[1:] if parts[:1] == ["self"] else parts)


def _module(stack: Any) -> tuple[str, str]:
    """The innermost module of a node's `nn_module_stack`: a dictionary of (path, class)."""
    if not isinstance(stack, Mapping) or not stack:
        return "", ""
    path, kind = list(stack.values())[-1]
    if not isinstance(path, str) or path.startswith("_empty_nn_module_stack"):
        return "", ""
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return (dotted(path) if "[" in path else path), name
