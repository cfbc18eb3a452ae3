"""How canonical operators are written in TFLite and Circle, one file for each family."""

from __future__ import annotations

import functools

from whence.frontends.families import joined
from whence.frontends.tflite.export.call import Exports


@functools.cache
def exports() -> Exports:
    """The exporters of all families."""
    return joined(__name__, __path__, "EXPORTS")
