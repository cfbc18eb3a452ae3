"""How quick the report is with 5,000 operators, in Chromium: to load, to search, to open the graph,
and how many frames a second it draws while the graph is dragged, with everything open.

    python -m benchmarks.report_speed

Needs chromium, chromedriver and selenium (the `dev` extra). Times are the browser's own: loading is
from the navigation to the end of the page's script, a search from a letter typed until the frame
after it is painted. What a search takes of the page's thread is told beside it: on a busy machine
that is what the page can do something about.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.report.browser import chromium
from tests.report.large_profile import MANY, large_content
from whence.report.html.page import assembled

_LOADED = """
const [entry] = performance.getEntriesByType('navigation');
return entry.domComplete - entry.startTime"""
_SEARCH = """
const done = arguments[arguments.length - 1];
const field = document.getElementById('search');
const began = performance.now();
field.value = arguments[0];
field.dispatchEvent(new Event('input'));
// A message is handled after the frame that was due when it was sent.
requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => done(performance.now() - began);
  channel.port2.postMessage(0);
});"""
_OPEN_GRAPH = """
const done = arguments[arguments.length - 1];
const began = performance.now();
document.getElementById(arguments[0]).click();
requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));"""
_PAN = """
const done = arguments[arguments.length - 1];
const box = document.getElementById('graph');
const { left, top, width, height } = box.getBoundingClientRect();
box.setPointerCapture = () => {};
const send = (kind, x, y) => box.dispatchEvent(new PointerEvent(kind, {
  pointerId: 1, button: 0, clientX: left + x, clientY: top + y, bubbles: true }));
const frames = [];
send('pointerdown', width / 2, height / 2);
const step = (now) => {
  frames.push(now);
  if (frames.length > 90) {
    send('pointerup', width / 2, height / 2);
    done(frames);
    return;
  }
  const turn = frames.length / 10;
  send('pointermove', width / 2 + 200 * Math.sin(turn), height / 2 + 90 * Math.cos(turn));
  requestAnimationFrame(step);
};
requestAnimationFrame(step);"""


_WORDS = ("s", "stage3", "type:type7", "op4999", "no such thing", "")


def thread_ms(page: Any) -> float:
    """What the page's thread has worked so far."""
    found = page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1000 * float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


def search(page: Any, repeat: int) -> list[tuple[float, float]]:
    """By word searched for: until it is painted, and what the page's thread worked for it."""
    times = []
    for word in _WORDS * repeat:
        before = thread_ms(page)
        waited = page.execute_async_script(_SEARCH, word)
        times.append((waited, thread_ms(page) - before))
    return times


def print_search(name: str, times: Sequence[tuple[float, float]]) -> None:
    waited, worked = zip(*times, strict=True)
    print(
        f"{name:<24} {statistics.median(waited):7.0f} ms, at most {max(waited):.0f} ms"
        f" (of the thread {statistics.median(worked):.0f} ms, at most {max(worked):.0f} ms)"
    )


def pan(page: Any) -> tuple[float, float]:
    """Frames in a second while it is dragged: in the mean, and by the slowest twentieth."""
    frames = page.execute_async_script(_PAN)
    between = sorted(b - a for a, b in itertools.pairwise(frames))
    return 1000 / statistics.mean(between), 1000 / between[int(len(between) * 0.95)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args(argv).repeat
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        report.write_text(assembled(large_content()), encoding="utf-8")
        with chromium(Path(folder) / "browser") as page:
            # Time that the thread runs, not time that passes while others do.
            page.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            loads = []
            for _ in range(repeat):
                page.get(report.as_uri())
                loads.append(page.execute_script(_LOADED))
            searches = search(page, repeat)
            opened = page.execute_async_script(_OPEN_GRAPH, "tab-graph")
            everything = page.execute_async_script(_OPEN_GRAPH, "graph-open")
            rates = {"everything in sight": pan(page)}
            for _ in range(5):
                page.execute_script("document.getElementById('graph-more').click()")
            rates["where names are read"] = pan(page)
            in_graph = search(page, repeat)
    print(f"{MANY:,} operators, {report.name}")
    print(f"load                     {statistics.median(loads):7.0f} ms (median of {repeat})")
    print_search("search", searches)
    print_search("search over the graph", in_graph)
    print(f"open the graph           {opened:7.0f} ms")
    print(f"open all its modules     {everything:7.0f} ms")
    for name, (mean, slow) in rates.items():
        print(f"pan, {name:<20}{mean:7.0f} frames a second, {slow:.0f} at the slowest twentieth")


if __name__ == "__main__":
    main()
