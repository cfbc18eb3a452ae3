"""What the tests of the runtime share: one engine, since starting one compiles and starts
threads.
"""

from __future__ import annotations

import pytest

from whence.runtime.engine import Engine


@pytest.fixture(scope="session")
def engine() -> Engine:
    """Two threads, however many cores there are, so that work is shared on any machine."""
    return Engine(threads=2)
