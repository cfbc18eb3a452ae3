"""A profile with hostile names, from made-up times."""

from __future__ import annotations

import dataclasses

import pytest

from tests.attribution.harness import conv_bn_relu, profile_of
from whence.attribution.profile import Profile

HOSTILE = 'a"b\\c\n\x1b[31m</script>]]>&\x00;漢\udc80 [bold]x[/bold]'


@pytest.fixture(scope="session")
def hostile() -> str:
    return HOSTILE


@pytest.fixture
def profile() -> Profile:
    found = profile_of(
        conv_bn_relu(HOSTILE),
        1_000_003,
        runs=4,
        residual_ns={"dispatch": 70_000, "idle": 3, "profiler": 11},
    )
    first, second, *rest = found.sources
    # An operator with a line, and one with a hostile name that took some time.
    first = dataclasses.replace(first, line="net/model.py:12", module="net.layer1", name=HOSTILE)
    return dataclasses.replace(found, sources=(first, second, *rest))
