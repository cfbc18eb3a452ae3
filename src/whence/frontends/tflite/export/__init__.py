"""How canonical operators are written in TFLite and Circle, one file for each family."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import MappingProxyType

from whence.frontends.tflite.export.call import Exporter, Exports


@functools.cache
def exports() -> Exports:
    """The exporters of all families; an operator that two of them export is a mistake."""
    found: dict[str, Exporter] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        family: Exports = getattr(importlib.import_module(module.name), "EXPORTS", {})
        twice = sorted(found.keys() & family.keys())
        if twice:
            raise ValueError(f"{module.name} exports {', '.join(twice)} a second time")
        found.update(family)
    return MappingProxyType(found)
