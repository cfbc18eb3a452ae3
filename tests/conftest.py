"""What every test may rely on: reproducible randomness, and real models that are fetched once into
the user's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from zoo.fetch import ensure

# Examples that compile native code take as long as they take: a deadline would measure the machine,
# not the code.
settings.register_profile("whence", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("whence")


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with the same stream in every test and on every machine."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def zoo_model() -> Callable[[str], Path]:
    """The path of a zoo model by name; the model is fetched if the cache does not hold it yet."""
    return ensure
