"""An OpenCL device for all tests: PoCL's, which the development packages bring, unless the machine
has another before it.
"""

from __future__ import annotations

import pytest

from whence.runtime.engine import Engine
from whence.runtime.opencl.engine import OpenClEngine


@pytest.fixture(scope="session")
def engine() -> OpenClEngine:
    made = Engine("opencl", 0)
    assert isinstance(made, OpenClEngine)
    return made
