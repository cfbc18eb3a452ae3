"""What is said about sizes that a model leaves open."""

from __future__ import annotations

from collections.abc import Mapping

from whence.attribution.sample_inputs import SampleInputs
from whence.cli.console import err, safe


def mention_open_shapes(guessed: Mapping[str, tuple[int, ...]]) -> None:
    """Say which shapes were taken, as options that would fix them."""
    if guessed:
        options = SampleInputs({}, guessed).options
        err().print(
            safe(f"whence: the model leaves sizes open, so these are taken: {options}", "yellow"),
            soft_wrap=True,
        )
