"""Takes the pictures of the documentation: docs/report.png, docs/report_graph.png,
docs/report_diff.png.

    python -m tools.report_pictures MODEL [--runs 50] [--only graph]

The last one is of `whence diff --html`: the model with one thread, and with all.

Needs chromium and chromedriver, as the tests of the report do, and a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import whence
from tests.report.browser import chromium
from whence.attribution.comparable import differences
from whence.attribution.compare import compare
from whence.report.diff_page import diff_page
from whence.report.html.page import page as report

DOCS = Path(__file__).parent.parent / "docs"
_NEARER = """
const graph = document.getElementById('graph');
const { left, top, width } = graph.getBoundingClientRect();
for (let turn = 0; turn < 5; turn += 1) {
  graph.dispatchEvent(new WheelEvent('wheel', { deltaY: -120, clientX: left + 0.4 * width, clientY: top + 40, bubbles: true }));
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--only", choices=("time", "graph", "diff"))
    options = parser.parse_args()
    found = whence.profile(options.model, runs=options.runs).without_local_paths()
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "browser") as browser:
        file = Path(folder) / "page.html"
        media = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        # Sharp where a page shows them smaller than they are.
        size = {"width": 1280, "height": 800, "deviceScaleFactor": 1.5, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        file.write_text(report(found), encoding="utf-8")
        browser.get(file.as_uri())
        for view, name, then in (
            ("time", "report.png", ""),
            ("graph", "report_graph.png", _NEARER),
        ):
            if options.only not in (None, view):
                continue
            browser.execute_script(f"document.getElementById('tab-{view}').click()")
            time.sleep(0.5)
            browser.execute_script(then)
            take(browser, name)
        if options.only in (None, "diff"):
            alone = whence.profile(options.model, runs=options.runs, threads=1)
            pair = alone.without_local_paths(), found
            page = diff_page(*pair, compare(*pair), differences(*pair))
            file.write_text(page, encoding="utf-8")
            browser.get(file.as_uri())
            take(browser, "report_diff.png")


def take(browser: Any, name: str) -> None:
    time.sleep(0.5)
    browser.save_screenshot(str(DOCS / name))
    print(DOCS / name)


if __name__ == "__main__":
    main()
