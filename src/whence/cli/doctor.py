"""`whence doctor`: what to paste into an issue."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Annotated

import typer
from rich.table import Table

from whence.calibration import calibrate, rates_for
from whence.cli.cache import used
from whence.cli.console import out, progress, safe, without_home
from whence.cli.devices import devices_of
from whence.codegen.cache import Cache, default_folder
from whence.codegen.target import Target
from whence.codegen.toolchain import SourceUnit, Toolchain
from whence.errors import WhenceError
from whence.plugins import Plugin, find_plugins
from whence.report.machine import in_lines
from whence.runtime.environment import environment, versions_of
from whence.runtime.registry import backend_names

PEERS = ("onnxruntime", "openvino", "ai-edge-litert", "torch", "pyopencl")
_DISTURBED = ", while something else used its cores: `whence doctor --calibrate` when it is quiet"
_PROBE = "int whence_doctor(void) { return 42; }\n"


def doctor(
    again: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure how fast this machine is, once more. Takes seconds."
        ),
    ] = False,
) -> None:
    """Say what whence finds here: versions, processor, compiler, cache and engines, whether they
    work, and how fast the machine is. Made to be pasted into an issue.

    [dim]whence doctor[/dim]
    [dim]whence doctor --calibrate[/dim]      measure its speed again
    """
    if again:
        with progress("measuring the machine") as bar:
            calibrate(Toolchain(), bar.show)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    failed = False
    for name, fact in environment().items():
        table.add_row(safe(name), safe(fact))
    for name, check in _CHECKS.items():
        try:
            table.add_row(safe(name), safe(check(), "green"))
        except (WhenceError, OSError) as error:
            failed = True
            table.add_row(safe(name), safe(f"fails: {error}", "red"))
    table.add_row("engines", safe(", ".join(backend_names())))
    plugins = find_plugins()
    for plugin in plugins:
        why = _why_broken(plugin)
        failed = failed or bool(why)
        table.add_row(
            safe(f"{plugin.group}: {plugin.name}"),
            safe(why or f"{plugin.value} of {plugin.distribution}", "red" if why else "green"),
        )
    if not plugins:
        table.add_row("plugins", "none")
    for name, fact in versions_of(PEERS).items():
        table.add_row(safe(name), safe(fact, "dim" if fact == "not installed" else ""))
    for name, fact in _machine().items():
        table.add_row(safe(name), safe(fact))
    out().print(table)
    if failed:
        raise typer.Exit(1)


def _machine() -> dict[str, str]:
    """What was measured of the machine, or what is taken for it until then."""
    try:
        rates = rates_for(Toolchain())
    except WhenceError:
        return {}
    how = "not measured yet: a profile will, or `whence doctor --calibrate`. Until then:"
    if rates.measured:
        how = f"measured {rates.date}{_DISTURBED if rates.disturbed else ''}"
    return {"machine": how, **in_lines(rates)}


def _compiler() -> str:
    target = Target.default()
    toolchain = Toolchain(target)
    library = toolchain.build_library([SourceUnit("doctor", _PROBE)])
    answer = ctypes.CDLL(str(library)).whence_doctor()
    if answer != 42:
        raise OSError(f"compiled code returned {answer}, not 42")
    return f"works ({target.triple}, {target.lanes} float32 lanes)"


def _cache() -> str:
    cache = Cache()
    lasts = "writable" if cache.lasts else "not writable: nothing is kept for the next process"
    return f"{without_home(default_folder())}: {used(cache)}, {lasts}"


def _opencl() -> str:
    found, _ = devices_of("opencl")
    return ", ".join(device.name for device in found) or "no device"


def _why_broken(plugin: Plugin) -> str:
    try:
        plugin.load()
    except WhenceError as error:
        return f"fails: {error}"
    return ""


_CHECKS: dict[str, Callable[[], str]] = {
    "compiler": _compiler,
    "cache": _cache,
    "OpenCL": _opencl,
}
