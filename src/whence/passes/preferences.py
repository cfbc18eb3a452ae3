"""What a backend wants of the passes: asked before a graph is prepared for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preferences:
    """The defaults are those of the processor, and of a graph that is prepared for nobody yet."""

    channel_block: int | None = 16
    """Convolutions work on blocks of so many channels (`block_channels`), a multiple of what a
    vector holds; `None` leaves channels where they are.
    """
    without: frozenset[str] = frozenset()
    """Names of passes that are left out, such as `recognise_attention` where there is no kernel for
    it. No pass is needed: what kernels do not cover runs by reference.
    """
    concat_in_place: bool = True
    """Can a value lie within another, so that concatenations and splits need no copies?"""
    threads: int = 1
    """How many threads work is divided for, where that takes more operators (`split_reductions`).
    """
