"""What other distributions add to whence, by entry points of the groups below.

    [project.entry-points."whence.backends"]       a class: whence.building.backend.Backend
    npu = "my_package.npu:NpuBackend"
    [project.entry-points."whence.frontends"]      an object: whence.frontends.registry.Frontend
    mymodel = "my_package.reader:FRONTEND"
    [project.entry-points."whence.passes"]         an object: whence.passes.plugins.PlacedPass
    my_pass = "my_package.passes:MY_PASS"

Nothing is looked for, let alone imported, before it is of use: backends when an engine is asked for
that whence does not have itself, frontends when a file has an ending that it does not know, passes
when a graph is prepared. A start from the cache of compiled models only asks which plugins there
are. So the folders of packages are read here: `importlib.metadata`, which does the same, takes
longer to import than many a model takes to start.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from whence.errors import UnsupportedError

BACKENDS, FRONTENDS, PASSES = "whence.backends", "whence.frontends", "whence.passes"
GROUPS = (BACKENDS, FRONTENDS, PASSES)
_SUFFIXES = (".dist-info", ".egg-info")


class Plugin(NamedTuple):
    """An entry point of a distribution."""

    group: str
    name: str
    value: str
    """`module:attribute`."""
    distribution: str
    """Its name and version."""

    def load(self) -> Any:
        """What it stands for. Raises `UnsupportedError`, in one line that names it, if it does not
        work: whatever it raises is its own.
        """
        module, _, attribute = self.value.partition(":")
        try:
            from importlib import import_module

            found: Any = import_module(module.strip())
            for part in attribute.split("[")[0].strip().split("."):
                found = getattr(found, part) if part else found
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            raise UnsupportedError(
                f"{self} cannot be loaded: {type(error).__name__}: {first}"
            ) from error
        return found

    def __str__(self) -> str:
        return f"plugin '{self.name}' ({self.group}, {self.value}) of {self.distribution}"


def find_plugins(group: str | None = None) -> list[Plugin]:
    """The plugins that are installed, of one group or of all, by name. Of a distribution that is
    there twice the first counts, as for imports.
    """
    found: dict[tuple[str, str], Plugin] = {}
    seen: set[str] = set()
    for folder in sys.path:
        for distribution, text in _entry_points(folder or os.curdir):
            name = distribution.partition(" ")[0].lower().replace("_", "-")
            if name not in seen:
                seen.add(name)
                for plugin in _parse(text, distribution):
                    found.setdefault((plugin.group, plugin.name), plugin)
    return [found[key] for key in sorted(found) if group is None or key[0] == group]


def load_plugins(group: str) -> Iterator[tuple[Plugin, Any]]:
    """The plugins of a group that work. One that does not is left out, with a warning."""
    for plugin in find_plugins(group):
        try:
            yield plugin, plugin.load()
        except UnsupportedError as error:
            warn_left_out(plugin, str(error))


def plugin_behind(error: BaseException) -> Plugin | None:
    """The plugin whose code an error came through, the innermost of several: its author is to be
    told, not we.
    """
    plugins = {each.value.partition(":")[0].split(".")[0]: each for each in find_plugins()}
    found, frame = None, error.__traceback__
    while frame is not None:
        package = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        found = plugins.get(package, found)
        frame = frame.tb_next
    return found


def warn_left_out(plugin: Plugin, why: str) -> None:
    """Say in one line that a plugin is not used."""
    text = why if why.startswith(str(plugin)) else f"{plugin}: {why}"
    warnings.warn(f"{text}; it is left out", RuntimeWarning, stacklevel=3)


def plugins_digest() -> str:
    """Differs whenever the plugins do that a compiled model depends on: which there are, and their
    source. Empty when there are none.
    """
    plugins = [each for each in find_plugins() if each.group in (FRONTENDS, PASSES)]
    if not plugins:
        return ""
    digest = hashlib.sha256()
    for plugin in plugins:
        digest.update(f"{plugin}\n".encode())
    for package in sorted({each.value.partition(":")[0].split(".")[0] for each in plugins}):
        for path in _sources(package):
            digest.update(f"{path.name}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _entry_points(folder: str) -> Iterator[tuple[str, str]]:
    """Name and version, and entry points, of the distributions in a folder of packages that have
    something for us.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(each.name for each in entries if each.name.endswith(_SUFFIXES))
    except OSError:
        return
    for name in names:
        try:
            # As everywhere on the way of a warm start: a Path takes longer than the reading.
            with open(f"{folder}/{name}/entry_points.txt", "rb") as file:  # noqa: PTH123
                content = file.read()
        except OSError:
            continue
        if b"[whence." in content:
            yield (
                name.rpartition(".")[0].replace("-", " ", 1),
                content.decode("utf-8", errors="replace"),
            )


def _parse(text: str, distribution: str) -> Iterator[Plugin]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
        elif "=" in line and not line.startswith(("#", ";")) and group in GROUPS:
            name, _, value = line.partition("=")
            yield Plugin(group, name.strip(), value.strip(), distribution)


def _sources(package: str) -> list[Path]:
    from importlib.util import find_spec

    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    folders = [Path(each) for each in spec.submodule_search_locations or ()]
    if folders:
        return sorted(path for folder in folders for path in folder.rglob("*.py"))
    return [Path(spec.origin)] if spec.origin and Path(spec.origin).is_file() else []
