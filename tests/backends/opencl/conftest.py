"""An OpenCL device for all tests: PoCL's, which the development packages bring, unless the machine
has another before it.

PoCL's compiler may be older than the processor it is to compile for, and then compiles nothing. So
the tests are skipped where the driver does not compile a kernel, unless WHENCE_REQUIRE_OPENCL asks
for them.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from whence.backends.opencl.devices import device_at, require_pyopencl
from whence.runtime.engine import Engine

REQUIRED = "WHENCE_REQUIRE_OPENCL"


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine("opencl", 0)


@pytest.fixture(scope="session", autouse=True)
def _compiles() -> None:
    """Whether the driver compiles anything; what whence gives it is for the tests to find out."""
    cl = require_pyopencl()
    device = device_at(0)
    program = cl.Program(cl.Context([device]), "__kernel void f(__global int *x) { x[0] = 1; }")
    refused = _refusal(program)
    assert not (refused and os.environ.get(REQUIRED)), f"{REQUIRED} is set: {refused}"
    if refused:
        pytest.skip(
            f"the OpenCL driver of '{device.name}' does not compile an empty kernel; another one:"
            f" apt install pocl-opencl-icd ({refused})"
        )


def _refusal(program: Any) -> str:
    """What the driver says of a program that it does not compile."""
    try:
        program.build(cache_dir=False)
    except require_pyopencl().RuntimeError as error:
        return str(error)
    return ""
