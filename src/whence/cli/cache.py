"""`whence cache`: what compiled models and kernels take on disk, and giving it back."""

from __future__ import annotations

import re
import shutil
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from whence.cli.console import out, put, safe
from whence.cli.options import check_choice
from whence.codegen.cache import LIMIT_BYTES, Cache

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[KMGT]?)i?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
ACTIONS = ("size", "list", "prune", "clear")
# Beside the entries, which are all content-addressed: what the compiler keeps for itself.
_COMPILER_FOLDERS = ("zig",)


def cache(
    action: Annotated[
        str, typer.Argument(metavar="ACTION", help=f"One of {', '.join(ACTIONS)}.")
    ] = "size",
    to: Annotated[
        str, typer.Option(metavar="500M", help="What `prune` makes it fit into.")
    ] = f"{LIMIT_BYTES >> 30}G",
    limit: Annotated[
        int, typer.Option(min=0, help="Rows of `list`, the last used first; 0 for all.")
    ] = 20,
) -> None:
    """Show what is cached and how large it is, or remove it. Everything in there is made again when
    it is needed.

    [dim]whence cache[/dim]                   where it is, and its size
    [dim]whence cache list[/dim]              entries, the last used first
    [dim]whence cache prune --to 500M[/dim]   the least recently used leave
    [dim]whence cache clear[/dim]             all but what `--tune` has found
    """
    check_choice(action, ACTIONS, "ACTION")
    console, cache = out(), Cache()
    match action:
        case "list":
            _list(console, cache, limit)
        case "prune":
            freed = cache.prune(_bytes(to))
            console.print(safe(f"{size(freed)} freed"))
        case "clear":
            freed = cache.prune(0, spare_seconds=0.0)
            for name in _COMPILER_FOLDERS:
                folder = cache.folder / name
                freed += sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
                shutil.rmtree(folder, ignore_errors=True)
            console.print(safe(f"{size(freed)} freed"))
    put(console, f"{cache.folder}: {used(cache)}")


def used(cache: Cache) -> str:
    """How much is in the cache, and how much may be."""
    entries = cache.entries()
    count = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    return f"{count}, {size(sum(entry.bytes for entry in entries))} (pruned to {size(LIMIT_BYTES)})"


def _list(console: Console, cache: Cache, limit: int) -> None:
    entries = list(reversed(cache.entries()))
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("size", justify="right")
    table.add_column("last used", justify="right")
    table.add_column("key")
    now = time.time()
    for entry in entries[: limit or len(entries)]:
        table.add_row(size(entry.bytes), _ago(now - entry.used), entry.key[:16])
    console.print(table)
    if limit and len(entries) > limit:
        console.print(f"... and {len(entries) - limit} more; --limit 0 lists all", style="dim")


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"'{text}' is not a size like 500M or 2G", param_hint="--to")
    return int(float(found["number"]) * _UNITS[found["unit"].upper()])


def size(n_bytes: int) -> str:
    for unit in ("T", "G", "M", "K"):
        if n_bytes >= _UNITS[unit]:
            return f"{n_bytes / _UNITS[unit]:.1f} {unit}iB"
    return f"{n_bytes} B"


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"
