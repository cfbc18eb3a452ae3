"""Passes of other distributions, and where they stand in the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whence.errors import InputError
from whence.passes.base import Pass
from whence.passes.pipeline import PORTABLE, passes_for
from whence.passes.preferences import Preferences
from whence.plugins import PASSES, Plugin, load_plugins, warn_left_out


@dataclass(frozen=True, slots=True)
class PlacedPass:
    """A pass and its place: before the first or after the last run of another, or at the end."""

    run: Pass
    before: str = ""
    after: str = ""
    portable: bool = False
    """Does it leave operators of the ONNX standard, so that `whence convert` may run it too?"""


def prepare_passes(preferences: Preferences | None = None) -> tuple[Pass, ...]:
    """All passes for compiling, as a backend wants them, with those of plugins in their places."""
    return with_placed(passes_for(preferences or Preferences()), _placed())


def portable_passes() -> tuple[Pass, ...]:
    """All passes that leave the graph in operators of the ONNX standard."""
    return with_placed(PORTABLE, [each for each in _placed() if each[1].portable])


def with_placed(
    passes: Sequence[Pass], placed: Iterable[tuple[Plugin, PlacedPass]]
) -> tuple[Pass, ...]:
    """The passes with others between them. One whose neighbour is not there is left out, with a
    warning that names its plugin; of a backend's own choice its neighbour may be left out.
    """
    found = list(passes)
    for plugin, each in placed:
        try:
            found.insert(_position(found, each), each.run)
        except InputError as error:
            warn_left_out(plugin, str(error))
    return tuple(found)


def _position(passes: Sequence[Pass], placed: PlacedPass) -> int:
    if placed.before and placed.after:
        raise InputError("a pass stands before another or after it, not both")
    name = placed.before or placed.after
    if not name:
        return len(passes)
    positions = [number for number, each in enumerate(passes) if each.name == name]
    if not positions:
        raise InputError(f"there is no pass '{name}' to stand next to")
    return positions[0] if placed.before else positions[-1] + 1


def _placed() -> list[tuple[Plugin, PlacedPass]]:
    found: list[tuple[Plugin, PlacedPass]] = []
    for plugin, loaded in load_plugins(PASSES):
        if isinstance(loaded, PlacedPass) and isinstance(loaded.run, Pass):
            found.append((plugin, loaded))
        else:
            kind = type(loaded).__name__
            warn_left_out(plugin, f"it is a {kind}, not a whence.passes.plugins.PlacedPass")
    return found
