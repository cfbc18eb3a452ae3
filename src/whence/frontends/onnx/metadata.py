"""What a file says about the program it was exported from: module path, class, source line.

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
    module, class_name = _module(metadata)
    stack = _first(metadata, "stack_trace")
    line = line_of(stack) or innermost_line(stack)
    return ProgramPlace(module or _module_from_name(name), class_name, line, stack)


def _first(metadata: Mapping[str, str], key: str) -> str:
    return next((metadata[prefix + key] for prefix in _PREFIXES if metadata.get(prefix + key)), "")


def _module(metadata: Mapping[str, str]) -> tuple[str, str]:
    scopes = _texts(_first(metadata, "name_scopes"))
    classes = _texts(_first(metadata, "class_hierarchy"))
    if len(scopes) >= 2:
        # The last entry is the operator itself; the one before it is the module it stands in.
        return scopes[-2], classes[-2] if len(classes) == len(scopes) else ""
    namespace = metadata.get("namespace", "")
    parts = [part.partition(": ") for part in namespace.split("/") if ": " in part]
    if len(parts) >= 2:
        return parts[-2][0].strip(), parts[-2][2].strip()
    return "", ""


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
