"""A few hundred mutated models under AddressSanitizer; `python -m tests.mutate` makes any
number.
"""

from __future__ import annotations

import os

import pytest

from tests.mutate import mutate
from tests.mutation import sanitizer

SEED = 13
COUNT = 300


@pytest.mark.slow
@pytest.mark.skipif(sanitizer.runtime() is None, reason="no runtime of AddressSanitizer here")
def test_mutants_run_right_or_are_refused(tmp_path):
    findings = mutate(SEED, COUNT, tmp_path, workers=min(2, os.cpu_count() or 1), batch=75)
    told = [
        f"{each['outcome']} {each['index']} {each.get('seed')} {each.get('done')}\n{each['text']}"
        for each in findings.defects
    ]
    assert not told, "\n".join(told)
    assert findings.counts.total() == COUNT
    assert findings.counts["ran"] > COUNT / 3, "most should be worth running"
    assert findings.counts["refused"] > COUNT / 10, "some should be worth refusing"
