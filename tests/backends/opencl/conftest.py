"""An OpenCL device for all tests: PoCL's, which the development packages bring, unless the machine
has another before it.
"""

from __future__ import annotations

import pytest

from whence.runtime.engine import Engine


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine("opencl", 0)
