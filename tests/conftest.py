"""What every test may rely on: reproducible randomness, real models that are fetched once into the
user's cache, and `--bless` for expected results that are kept in files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from whence.attribution import measure
from zoo.fetch import ensure

# Nothing that a test looks at depends on how fast the machine is; what measures it has its own
# test.
os.environ["WHENCE_CALIBRATE"] = "never"
# Nor on how long models have run.
os.environ["WHENCE_SPECIALISE"] = "never"

# Examples that compile native code take as long as they take: a deadline would measure the machine,
# not the code.
settings.register_profile("whence", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("whence")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless",
        action="store_true",
        help="what tests find is right: write it into the files that hold what they expect",
    )


@pytest.fixture(scope="session")
def bless(pytestconfig: pytest.Config) -> bool:
    """Are files of expected results to be written rather than compared with?"""
    return bool(pytestconfig.getoption("--bless"))


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_quiet_moments() -> Iterator[None]:
    """Tests keep both cores busy: every profile would look at the machine for seconds more."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measure, "_LONG_ENOUGH_S", 0.0)
        patched.setattr(measure, "_TOO_LONG_S", 0.3)
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with the same stream in every test and on every machine."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def zoo_model() -> Callable[[str], Path]:
    """The path of a zoo model by name; the model is fetched if the cache does not hold it yet."""
    return ensure
