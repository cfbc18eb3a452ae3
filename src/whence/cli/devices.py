"""`whence devices`: what a model can run on here."""

from __future__ import annotations

from rich.table import Table

from whence.cli.console import out, safe
from whence.codegen.target import Target
from whence.errors import UnsupportedError
from whence.runtime.opencl.devices import HOW_TO_GET_ONE, find_devices


def devices() -> None:
    """List the engines and devices of this machine.

    [dim]whence profile resnet50.onnx --engine opencl:0[/dim]
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("engine", "device", "cores", "memory", "driver"):
        table.add_column(title, overflow="fold")
    host = Target.default()
    features = ", ".join(sorted(host.features))
    table.add_row(
        "cpu", safe(f"{host.arch} ({features})"), str(host.cores), "", "whence's own code"
    )
    why = HOW_TO_GET_ONE
    try:
        found = find_devices()
    except UnsupportedError as error:
        found, why = [], str(error)
    for device in found:
        memory = f"{device.memory_bytes / 2**30:.1f} GiB"
        table.add_row(
            f"opencl:{device.index}",
            safe(device.name),
            str(device.compute_units),
            memory,
            safe(device.platform),
        )
    console = out()
    console.print(table)
    if not found:
        console.print(safe(f"no OpenCL device: {why}"), soft_wrap=True)
