"""What a file says about the program it was exported from: module path, source line.

Nothing here is ever required. Text that does not parse is as good as absent: it was written by
other tools, and a model is not wrong because its annotations are.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from whence.frontends.program_place import ProgramPlace, innermost_line, line_of

_PREFIXES = ("pkg.torch.onnx.", "pkg.onnxscript.")
NOWHERE = ProgramPlace()


def program_place(name: str, metadata: Mapping[str, str]) -> ProgramPlace:
    """What the operator's metadata says; failing that, what its name says."""
    if not metadata:
        module = _module_from_name(name)
        return ProgramPlace(module) if module else NOWHERE
    stack = _first(metadata, "stack_trace")
    line = line_of(stack) or innermost_line(stack)
    return ProgramPlace(_module(metadata) or _module_from_name(name), line, stack)


def _first(metadata: Mapping[str, str], key: str) -> str:
    return next((metadata[prefix + key] for prefix in _PREFIXES if metadata.get(prefix + key)), "")


def _module(metadata: Mapping[str, str]) -> str:
    # The last entry is the operator itself; the one before it is the module it stands in.
    scopes = _texts(_first(metadata, "name_scopes"))
    if len(scopes) >= 2:
        return scopes[-2]
    parts = [part for part in metadata.get("namespace", "").split("/") if ": " in part]
    return parts[-2].partition(": ")[0].strip() if len(parts) >= 2 else ""


def _texts(written: str) -> list[str]:
    """A Python list of texts, as written by `repr`; an empty list when it is anything else."""
    if not written or len(written) > 1 << 16:
        return []
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, str)]
    return []


def _module_from_name(name: str) -> str:
    """The older exporter's names tell the module: `/layer1/layer1.0/conv1/Conv`."""
    if not name.startswith("/"):
        return ""
    path: list[str] = []
    for part in name[1:].split("/")[:-1]:
        if path and part.startswith(f"{path[-1]}."):
            path[-1] = part
        else:
            path.append(part)
    return ".".join(path)
