"""Which OpenCL devices there are, and what to do when there is none."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from whence.codegen.opencl.render_cl import Device
from whence.errors import InputError, UnsupportedError

HOW_TO_GET_ONE = (
    "install the driver of your device's vendor, or `pip install pocl-binary-distribution` to use"
    " the CPU as one"
)


@dataclass(frozen=True, slots=True)
class Found:
    """A device of this machine."""

    index: int
    """What `Engine("opencl", index)` takes."""
    name: str
    platform: str
    kind: str
    compute_units: int
    memory_bytes: int
    handle: Any
    """pyopencl's device."""


def require_pyopencl() -> ModuleType:
    """The package, or an error that says how to get it."""
    try:
        import pyopencl
    except ImportError as error:
        raise UnsupportedError(
            f"the opencl engine needs the package pyopencl: pip install 'whence[opencl]' ({error})"
        ) from None
    return pyopencl


def find_devices() -> list[Found]:
    """All devices, in the order of their platforms. Empty without a driver."""
    cl = require_pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        # What the loader says when no driver is installed.
        return []
    found: list[Found] = []
    for platform in platforms:
        with contextlib.suppress(cl.RuntimeError, cl.LogicError):
            for device in platform.get_devices():
                kind = cl.device_type.to_string(device.type, "%d").replace("DEFAULT | ", "").lower()
                found.append(
                    Found(
                        len(found),
                        device.name.strip(),
                        platform.name.strip(),
                        kind,
                        device.max_compute_units,
                        device.global_mem_size,
                        device,
                    )
                )
    return found


def device_at(index: int) -> Found:
    """One device by its number."""
    devices = find_devices()
    if not devices:
        raise UnsupportedError(f"there is no OpenCL device here: {HOW_TO_GET_ONE}")
    if not 0 <= index < len(devices):
        raise InputError(
            f"there is no OpenCL device {index}; `whence devices` lists the {len(devices)} that"
            " there are"
        )
    return devices[index]


def abilities(found: Found) -> Device:
    """What code for the device may use."""
    device = found.handle
    return Device(
        doubles="cl_khr_fp64" in device.extensions,
        local_bytes=device.local_mem_size,
        group_size=min(device.max_work_group_size, 1024),
    )
