"""What tests do with a report in a browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from selenium.webdriver import ActionChains


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def find(page: Any, selector: str) -> Any:
    return page.find_element("css selector", selector)


def rows(page: Any, selector: str) -> list[Any]:
    """The rows in sight, from the top."""
    found = [
        row
        for row in page.find_elements("css selector", f"{selector} .row:not([hidden])")
        if row.is_displayed()
    ]
    return sorted(found, key=lambda row: row.location["y"])


def texts(page: Any, selector: str, column: int) -> list[str]:
    """One column of the rows, whole, also where it is cut on the screen."""
    script = """return [...document.querySelectorAll(arguments[0] + ' .row:not([hidden])')].sort((a, b) => a.place - b.place)
                .map(row => row.children[arguments[1]].textContent)"""
    return list(page.execute_script(script, selector, column))


def lit(page: Any, selector: str, column: int) -> set[str]:
    script = (
        "return [...document.querySelectorAll(arguments[0] + ' .row.lit:not([hidden])')].map(row =>"
        " row.children[arguments[1]].textContent)"
    )
    return set(page.execute_script(script, selector, column))


def point_at(page: Any, element: Any) -> None:
    ActionChains(page, duration=0).move_to_element(element).perform()


def type_into_search(page: Any, text: str) -> None:
    field = find(page, "#search")
    field.clear()
    field.send_keys(text)


def open_lineage(page: Any) -> None:
    find(page, "#tab-lineage").click()
    wait_for(lambda: rows(page, "#pane-kernels"))
