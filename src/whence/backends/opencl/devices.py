"""Which OpenCL devices there are, and what to do when there is none."""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any

from whence.codegen.opencl.render_cl import Device
from whence.errors import InputError, UnsupportedError

HOW_TO_GET_ONE = (
    "install the driver of your device's vendor, or `pip install pocl-binary-distribution` to use"
    " the CPU as one"
)


def require_pyopencl() -> ModuleType:
    """The package, or an error that says how to get it."""
    try:
        import pyopencl
    except ImportError as error:
        raise UnsupportedError(
            f"the opencl engine needs the package pyopencl: pip install 'whence[opencl]' ({error})"
        ) from None
    return pyopencl


def find_devices() -> list[Any]:
    """All devices, as pyopencl has them, in the order of their platforms: `Engine("opencl", index)`
    takes the number in this list. Empty without a driver.
    """
    cl = require_pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        # What the loader says when no driver is installed.
        return []
    found: list[Any] = []
    for platform in platforms:
        with contextlib.suppress(cl.RuntimeError, cl.LogicError):
            found += platform.get_devices()
    return found


def device_at(index: int) -> Any:
    """One device by its number."""
    devices = find_devices()
    if not devices:
        raise UnsupportedError(f"there is no OpenCL device here: {HOW_TO_GET_ONE}")
    if not hasattr(index, "__index__") or not 0 <= index < len(devices):
        raise InputError(
            f"there is no OpenCL device {index}; `whence devices` lists the {len(devices)} that"
            " there are"
        )
    return devices[index]


def name_of(device: Any) -> str:
    return str(device.name.strip())


def abilities(device: Any) -> Device:
    """What code for the device may use."""
    return Device(
        doubles="cl_khr_fp64" in device.extensions,
        local_bytes=device.local_mem_size,
        group_size=min(device.max_work_group_size, 1024),
    )
