"""Which backends there are, by the name that `Engine` takes: whence's own, and those of plugins.

They are named, not imported: a backend is loaded when an engine of its kind is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from whence.errors import UnsupportedError
from whence.plugins import BACKENDS, Plugin, find_plugins

if TYPE_CHECKING:
    from whence.building.backend import Backend

_OWN: Mapping[str, str] = {
    "cpu": "whence.backends.cpu.backend:CpuBackend",
    "opencl": "whence.backends.opencl.backend:OpenClBackend",
}


def backend_names() -> list[str]:
    """The kinds of engines, whence's own first."""
    return [*_OWN, *(each.name for each in find_plugins(BACKENDS) if each.name not in _OWN)]


def find_backend(kind: str) -> type[Backend]:
    """The class of a backend. Raises `UnsupportedError` where there is none of this name, or where
    a plugin has one that does not work.
    """
    plugin = _plugin(kind)
    if plugin is None:
        *first, last = backend_names()
        raise UnsupportedError(
            f"there is no engine '{kind}'; there are {', '.join(first)} and {last}"
        )
    found = plugin.load()
    from whence.building.backend import Backend

    if not isinstance(found, type) or not issubclass(found, Backend):
        raise UnsupportedError(
            f"{plugin} is no backend: a subclass of whence.building.backend.Backend is wanted"
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    missing += [] if hasattr(found, "kind") else ["kind"]
    if missing:
        raise UnsupportedError(f"{plugin} lacks what every backend has: {', '.join(missing)}")
    if kind not in _OWN:
        _check_signatures(found, plugin)
    return found


def _check_signatures(found: type[Backend], plugin: Plugin) -> None:
    """Its methods can be called like those that they stand for."""
    import inspect

    from whence.building.backend import Backend

    for name, wanted in inspect.getmembers(Backend, inspect.isfunction):
        given = list(inspect.signature(wanted).parameters.values())
        if isinstance(inspect.getattr_static(found, name), staticmethod | classmethod):
            del given[0]  # `self`
        own = inspect.signature(getattr(found, name))
        try:
            own.bind(
                *(each for each in given if each.kind is each.POSITIONAL_OR_KEYWORD),
                **{each.name: each for each in given if each.kind is each.KEYWORD_ONLY},
            )
        except TypeError as error:
            raise UnsupportedError(
                f"{plugin} has a method {name}{own} that cannot be called like"
                f" {name}{inspect.signature(wanted)} of every backend: {error}"
            ) from None


def _plugin(kind: str) -> Plugin | None:
    # Nobody takes the place of whence's own, and to find those nothing is searched.
    if kind in _OWN:
        return Plugin(BACKENDS, kind, _OWN[kind], "whence")
    return next((each for each in find_plugins(BACKENDS) if each.name == kind), None)
