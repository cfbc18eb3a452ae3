"""ATen operators in canonical ones, a file for each group.

Operators that are not here are decomposed by PyTorch into some that are, or refused.
"""

from __future__ import annotations

from typing import Any

from whence.frontends.families import joined
from whence.frontends.torch.call import Mappings

MAPPINGS: Mappings = joined(__name__, __path__, "MAPPINGS")


def operator_key(target: Any) -> str:
    """What an operator is mapped by: `aten::conv2d`, whatever its overload; `python::mul` for
    arithmetic on sizes.
    """
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return str(schema.name)
    name = getattr(target, "__name__", str(target))
    return f"python::{name}"
