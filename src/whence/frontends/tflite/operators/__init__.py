"""What each operator of TFLite and Circle is in canonical operators, one file for each family."""

from __future__ import annotations

import importlib
import pkgutil
from types import MappingProxyType

from whence.frontends.tflite.mapping import Mapper, Mappings


def _collect() -> Mappings:
    """The mappings of all files in this folder; an operator that two of them map is a mistake."""
    found: dict[str, Mapper] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        mappings: Mappings = getattr(importlib.import_module(module.name), "MAPPINGS", {})
        for name, mapper in mappings.items():
            if name in found:
                raise ValueError(f"operator {name} is mapped twice")
            found[name] = mapper
    return MappingProxyType(found)


MAPPINGS: Mappings = _collect()
