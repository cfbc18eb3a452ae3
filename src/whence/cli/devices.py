"""`whence devices`: what a model can run on here."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from whence.building.backend import DeviceRow
from whence.cli.console import out, put, safe
from whence.errors import WhenceError
from whence.runtime.registry import backend_names, find_backend


def devices() -> None:
    """List the engines and devices of this machine.

    [dim]whence profile resnet50.onnx --engine opencl:0[/dim]
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("engine", "device", "cores", "memory", "driver"):
        table.add_column(title, overflow="fold")
    missing = []
    for kind in backend_names():
        found, why = devices_of(kind)
        for index, device in enumerate(found):
            memory = f"{device.memory_bytes / 2**30:.1f} GiB" if device.memory_bytes else ""
            table.add_row(
                kind if kind == "cpu" else f"{kind}:{index}",
                safe(device.name),
                str(device.cores),
                memory,
                safe(device.driver),
            )
        if not found:
            missing.append(f"no {_TITLES.get(kind, kind)} device: {why}")
    console = out()
    console.print(table)
    for line in missing:
        put(console, line)


_TITLES = {"opencl": "OpenCL"}


def devices_of(kind: str) -> tuple[Sequence[DeviceRow], str]:
    """The devices of an engine, or why there are none."""
    try:
        backend = find_backend(kind)
        return backend.devices(), backend.no_device
    except WhenceError as error:
        return (), str(error)
