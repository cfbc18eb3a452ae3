"""Takes the pictures of the report in the documentation, docs/report*.png, one view for each:

    python -m tools.report_pictures time DISTILGPT2 [--runs 50]
    python -m tools.report_pictures graph YOLO11N
    python -m tools.report_pictures lineage RESNET50

The lineage is that of a batch normalisation, which a convolution does.

Needs chromium and chromedriver, as the tests of the report do, and a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from selenium.webdriver.common.keys import Keys

import whence
from tests.report.browser import chromium
from tests.report.page_actions import find, open_lineage, rows, type_into_search, wait_for
from whence.report.html.page import page as report

DOCS = Path(__file__).parent.parent / "docs"
PICTURES = {
    "time": "report.png",
    "graph": "report_graph.png",
    "lineage": "report_lineage.png",
}
_NEARER = """
const graph = document.getElementById('graph');
const { left, top, width } = graph.getBoundingClientRect();
for (let turn = 0; turn < 5; turn += 1) {
  graph.dispatchEvent(new WheelEvent('wheel', { deltaY: -120, clientX: left + 0.4 * width, clientY: top + 40, bubbles: true }));
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("view", choices=PICTURES)
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=50)
    options = parser.parse_args()
    found = whence.profile(options.model, runs=options.runs).without_local_paths()
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "browser") as browser:
        media = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        # Sharp where a page shows them smaller than they are.
        size = {"width": 1280, "height": 800, "deviceScaleFactor": 1.5, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        file = Path(folder) / "page.html"
        file.write_text(report(found), encoding="utf-8")
        browser.get(file.as_uri())
        if options.view == "graph":
            find(browser, "#tab-graph").click()
            time.sleep(0.5)
            browser.execute_script(_NEARER)
        elif options.view == "lineage":
            pin_a_batch_normalisation(browser)
        time.sleep(0.5)
        picture = DOCS / PICTURES[options.view]
        browser.save_screenshot(str(picture))
        print(picture)


def pin_a_batch_normalisation(browser: Any) -> None:
    """In the lineage: one that was folded, not the first."""
    open_lineage(browser)
    type_into_search(browser, "type:BatchNormalization fate:folded")
    wait_for(lambda: rows(browser, "#pane-operators"))
    rows(browser, "#pane-operators")[2].click()
    find(browser, "#search").send_keys(Keys.ESCAPE)


if __name__ == "__main__":
    main()
