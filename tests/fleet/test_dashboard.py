"""history.html in a real browser: a year of nights, from the heat map to an operator's lineage."""

from __future__ import annotations

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from tests.fleet.nights import series_of, write_compacted
from tests.report.browser import ATTACKS, chromium, requested
from whence.fleet.change_points import find_changes
from whence.fleet.dashboard.page import write_page
from whence.fleet.series import parts
from whence.fleet.table import Table

NIGHTS = 365
HOSTILE = " ".join(attack for attack in ATTACKS if "\udc80" not in attack)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A year of four models, one of which has an operator that became slower, and a hostile one."""
    folder = tmp_path_factory.mktemp("history")
    table = Table(folder / "table", create=True)
    for number in range(4):
        slower = (3, 200, 1.5) if number == 2 else None
        prefix = HOSTILE if number == 2 else ""
        rng = np.random.default_rng(number)
        name = f"model{number}"
        write_compacted(
            table,
            name,
            series_of(name, NIGHTS, rng, operators=8, slower=slower, prefix=prefix),
        )
    with table.connected() as connection:
        changes = find_changes(parts(connection, "op"))
    write_page(table, folder / "history.html", changes)
    return folder / "history.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def page(browser, file):
    """The page, freshly opened; it must leave the console empty and the network alone."""
    requested(browser)
    browser.get(file.as_uri())
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert browser.get_log("browser") == []
    assert requested(browser) == [file.as_uri()]
    assert browser.execute_script("return window.hacked") is None


def text_of(page, name):
    return page.find_element(By.ID, name).text


def test_from_the_heat_map_to_an_operator(page):
    assert text_of(page, "facts").startswith("4 series · 365 nights · 1460 profiles · 1 changes")
    # What changed is open without a click.
    assert text_of(page, "model-title").startswith("model2 · whence")
    (change,) = page.find_elements(By.CSS_SELECTOR, "#changes button")
    assert "since 2026-07-2" in change.text
    change.click()
    title = text_of(page, "operator-title")
    assert title.endswith("/layer1/op4")
    lineage = text_of(page, "lineage")
    for words in (
        "what became of it",
        "fused with the next",
        "runs in a kernel with",
        "whence why",
    ):
        assert words in lineage
    # Another model, by its row; then one of its operators.
    rows = page.find_elements(By.CSS_SELECTOR, ".heat-row button")
    rows[0].click()
    assert text_of(page, "model-title").startswith("model0 · whence")
    operators = page.find_elements(By.CSS_SELECTOR, ".operator")
    assert len(operators) == 8
    operators[1].click()
    assert text_of(page, "operator-title").startswith("/layer")
    # A night, by its cell.
    canvas = page.find_elements(By.CSS_SELECTOR, ".heat-row canvas")[2]
    page.execute_script(
        "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true, clientX:"
        " arguments[0].getBoundingClientRect().left + 7 * 100 + 3, clientY:"
        " arguments[0].getBoundingClientRect().top + 5}))",
        canvas,
    )
    assert "2026-04-11" in text_of(page, "model-facts")
    # The search hides what has neither the word nor an operator with it.
    search = page.find_element(By.ID, "search")
    search.send_keys("model3")
    shown = [row for row in page.find_elements(By.CSS_SELECTOR, ".heat-row") if row.is_displayed()]
    assert len(shown) == 1


def test_it_fits_a_telephone_and_the_dark(page, tmp_path):
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    paper = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(22, 22, 23)"
