"""The pipelines: a pass that stands in none would be tested and never run."""

from __future__ import annotations

from tests.filetests.running import pass_classes
from whence.passes.pipeline import CHANNELS_FIRST, CHANNELS_LAST, PORTABLE, PREPARE

# Other passes do what it does as they go (`TypeRefresher`).
_ELSEWHERE = {"propagate_types"}


def test_every_pass_is_in_a_pipeline() -> None:
    placed = {each.name for each in (*PREPARE, *PORTABLE, *CHANNELS_LAST, *CHANNELS_FIRST)}
    assert pass_classes().keys() - placed == _ELSEWHERE, "see src/whence/passes/pipeline.py"
