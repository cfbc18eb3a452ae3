"""axe-core finds no serious fault in any view of the report, in light and dark, wide and narrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.fetch_axe import FILE

REQUIRED = "WHENCE_REQUIRE_AXE"
VIEWS = ("time", "graph", "lineage", "advice")
_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ['violations'] }).then(
  ({ violations, passes }) => done({
    checked: passes.length,
    faults: violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ target }) => target.join(' ')).join(', ')}`),
  }));"""


@pytest.fixture(scope="module")
def axe() -> str:
    if not FILE.is_file():
        missing = "axe-core is not there: `python -m tools.fetch_axe` fetches it"
        if os.environ.get(REQUIRED):
            pytest.fail(f"{missing}; {REQUIRED} is set")
        pytest.skip(missing)
    return FILE.read_text(encoding="utf-8")


@pytest.fixture
def screen(browser: Any) -> Iterator[Any]:
    """Takes a width and a colour scheme; what was before is there again afterwards."""

    def show(width: int, scheme: str) -> None:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    yield show
    show(1280, "light")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_no_serious_fault(
    browser: Any, screen: Any, axe: str, file: Path, width: int, scheme: str
) -> None:
    screen(width, scheme)
    browser.get(file.as_uri())
    # By the browser's own protocol: the page's policy admits no other script.
    browser.execute_script(f"{axe}; window.axe = axe")
    for view in VIEWS:
        browser.execute_script(f"document.getElementById('tab-{view}').click()")
        found = browser.execute_async_script(_RUN)
        assert found["faults"] == [], f"in the view '{view}'"
        assert found["checked"] > 20


def test_a_fault_would_be_found(browser: Any, axe: str, file: Path) -> None:
    browser.get(file.as_uri())
    browser.execute_script(f"{axe}; window.axe = axe")
    browser.execute_script("document.querySelector('main').append(document.createElement('img'))")
    assert any(
        each.startswith("image-alt") for each in browser.execute_async_script(_RUN)["faults"]
    )
