"""Files of every format with damaged bytes: each must be read, or refused with a WhenceError.

    python -m tests.mutate_bytes --count 300000 --seed 1 --workers 2
    python -m tests.mutate_bytes --seed 1 --only 4711      one of them again, and its file

Another exception, more than one line, a crash, a hang or gigabytes of memory is a defect. The same
seed damages the same bytes, so a defect is known by its number.
"""

from __future__ import annotations

import argparse
import json
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.mutation.damage import Stuck, damaged, limited
from whence.errors import WhenceError

SECONDS_FOR_ONE = 10
MOST_BYTES = 6 << 30
AT_ONCE = 5000
REPORTED = 100
SECONDS_BETWEEN_LINES = 10
# Longer than the limit on one file, even where others have most of the processor.
SILENCE = 3600
GOOD = frozenset({"read", "refused"})

Reader = Callable[[bytes], object]


@cache
def sources() -> list[tuple[str, bytes, Reader]]:
    """Whole files, and what reads them. Formats take turns."""
    from tests.frontends.onnx.test_damaged_files import WHOLE
    from tests.frontends.tflite.test_fuzz import MODELS, small_convolution
    from tests.mutation.example_files import debug_databases, onnx_models
    from whence.debugdb import parse_xml
    from whence.frontends.onnx.reader import read_onnx
    from whence.frontends.tflite.reader import read_tflite
    from whence.graph.check import check_graph

    def checked(read: Callable[[bytes], Any]) -> Reader:
        def both(data: bytes) -> None:
            graph = read(data)
            check_graph(graph)
            assert graph.ledger.lost() == []

        return both

    models = [("onnx whole", WHOLE), *((f"onnx {name}", data) for name, data in onnx_models())]
    files: list[list[tuple[str, bytes, Reader]]] = [
        [(name, data, checked(read_onnx)) for name, data in models],
        [(f"tflite {name}", make(), checked(read_tflite)) for name, make in MODELS.items()],
        [("circle", small_convolution(circle=True), checked(read_tflite))],
        [(f"xml {name}", data, parse_xml) for name, data in debug_databases()],
    ]
    return [of[turn % len(of)] for turn in range(max(map(len, files))) for of in files]


def candidate(seed: int, index: int) -> tuple[str, bytes, Reader]:
    """Number `index`: a whole file, damaged in one to three places."""
    rng = np.random.default_rng([seed, index])
    name, data, read = sources()[index % len(sources())]
    for _ in range(int(rng.choice((1, 1, 1, 2, 3)))):
        data = damaged(data, int(rng.integers(6)), rng) if data else data
    return name, data, read


def outcome(data: bytes, read: Reader) -> tuple[str, str]:
    try:
        with limited(SECONDS_FOR_ONE):
            read(data)
    except WhenceError as error:
        lines = len(str(error).splitlines())
        return ("refused", "") if lines == 1 else ("long", str(error))
    except Stuck:
        return "stuck", traceback.format_exc()
    except BaseException:
        return "raw", traceback.format_exc()
    return "read", ""


def work(seed: int, first: int, last: int, place: Path) -> None:
    """In a process of its own: a line of JSON for every hundred; the number of the current one is
    always in the file `place`.
    """
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    with place.open("r+b", buffering=0) as at:
        for begin in range(first, last, REPORTED):
            counts: Counter[str] = Counter()
            defects = []
            end = min(begin + REPORTED, last)
            for index in range(begin, end):
                at.seek(0)
                at.write(struct.pack("q", index))
                name, data, read = candidate(seed, index)
                kind, text = outcome(data, read)
                counts[kind] += 1
                if kind not in GOOD:
                    defects.append({"index": index, "outcome": kind, "file": name, "text": text})
            print(json.dumps({"end": end, "counts": counts, "defects": defects}), flush=True)


class Run:
    """Processes that read ranges of damaged files, and what came of all of them."""

    def __init__(self, seed: int, total: int = 0, *, progress: bool = False) -> None:
        self.seed, self.total, self.progress = seed, total, progress
        self.counts: Counter[str] = Counter()
        self.defects: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.began = self.said = time.monotonic()

    def range(self, first: int, last: int) -> None:
        """All of these, in as many processes as crashes make necessary."""
        while first < last:
            with tempfile.NamedTemporaryFile() as place:
                place.write(struct.pack("q", first))
                place.flush()
                first, code, said = self._process(first, last, Path(place.name))
                (reached,) = struct.unpack("q", Path(place.name).read_bytes()[:8])
            if first == last:
                return
            text = f"{said[-2000:]}\nexit code {code}"
            self._add({"crash": 1}, [{"index": reached, "outcome": "crash", "text": text}])
            # What came before it and was not reported is read again, up to there; then the rest.
            if reached > first:
                self.range(first, reached)
            first = reached + 1

    def _process(self, first: int, last: int, place: Path) -> tuple[int, int, str]:
        """How far one process came, its exit code and its complaints."""
        arguments = ["--seed", self.seed, "--range", first, last, place]
        command = [sys.executable, "-m", "tests.mutate_bytes", *map(str, arguments)]
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=complaints, text=True
            ) as process:
                assert process.stdout is not None
                watch = threading.Thread(target=_end_if_silent, args=(process, place))
                watch.start()
                for line in process.stdout:
                    if line.startswith("{") and line.endswith("}\n"):
                        found = json.loads(line)
                        first = found["end"]
                        self._add(found["counts"], found["defects"])
                code = process.wait()
                watch.join()
            complaints.seek(0)
            return first, code, complaints.read()

    def _add(self, counts: dict[str, int], defects: list[dict[str, Any]]) -> None:
        with self.lock:
            self.counts.update(counts)
            self.defects += defects
            if not self.progress:
                return
            for defect in defects:
                print(_line(defect), flush=True)
            now = time.monotonic()
            if now - self.said > SECONDS_BETWEEN_LINES or self.counts.total() >= self.total:
                self.said, done = now, self.counts.total()
                pace = done / (now - self.began)
                print(f"{done}/{self.total}  {pace:.0f}/s  {dict(self.counts)}", flush=True)


def _line(defect: dict[str, Any]) -> str:
    last_line = defect["text"].strip().splitlines()[-1:]
    return f"{defect['outcome']} {defect['index']} {defect.get('file', '')} {last_line}"


def _end_if_silent(process: subprocess.Popen[str], place: Path) -> None:
    """End a process that stays with one file for so long that no signal reaches it any more."""
    at, since = b"", time.monotonic()
    while True:
        try:
            process.wait(timeout=1)
            return
        except subprocess.TimeoutExpired:
            now = place.read_bytes()
            if now != at:
                at, since = now, time.monotonic()
            elif time.monotonic() - since > SILENCE:
                process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300_000)
    parser.add_argument("--first", type=int, default=0, help="go on from this number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", type=int, help="one of them again")
    parser.add_argument("--output", type=Path, default=Path("build/damaged"))
    parser.add_argument("--range", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.range:
        first, last, place = options.range
        work(options.seed, int(first), int(last), Path(place))
        return
    if options.only is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        name, data, read = candidate(options.seed, options.only)
        path = options.output / f"damaged{options.only}.{name.split()[0]}"
        path.write_bytes(data)
        kind, text = outcome(data, read)
        print(f"{text}\n{kind}: {name}, written to {path}")
        raise SystemExit(kind not in GOOD)
    run = Run(options.seed, options.count - options.first, progress=True)

    def one(first: int) -> None:
        run.range(first, min(first + AT_ONCE, options.count))

    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(one, range(options.first, options.count, AT_ONCE)))
    for defect in run.defects:
        print(_line(defect))
    print(f"seed {options.seed}: {run.counts.total()} files, {dict(run.counts)}")
    raise SystemExit(bool(run.defects))


if __name__ == "__main__":
    main()
