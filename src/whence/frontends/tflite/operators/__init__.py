"""What each operator of TFLite and Circle is in canonical operators, one file for each family."""

from __future__ import annotations

from whence.frontends.families import joined
from whence.frontends.tflite.mapping import Mappings

MAPPINGS: Mappings = joined(__name__, __path__, "MAPPINGS")
