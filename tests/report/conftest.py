"""A profile with hostile names, from made-up times; and its report in a browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attribution.harness import conv_bn_relu, profile_of
from tests.report.browser import ATTACKS, attacked_profile, chromium, requested
from whence.attribution.profile import Profile
from whence.report.html import write_html

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


# ---- in a browser ----


@pytest.fixture(scope="session")
def reported() -> Profile:
    return dataclasses.replace(attacked_profile(), notes=(ATTACKS[0],))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="session")
def file(reported: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (found,) = write_html(reported, tmp_path_factory.mktemp("report"))
    return found


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    """The report, freshly opened. Whatever a test does with it must leave the console empty and the
    network alone.
    """
    requested(browser)
    browser.get(file.as_uri())
    yield browser
    assert browser.get_log("browser") == []
    assert requested(browser) == [file.as_uri()]
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return [document.scripts.length, document.images.length]") == [
        2,
        0,
    ]
