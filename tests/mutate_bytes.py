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
import signal
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
AT_ONCE = 1000
GOOD = frozenset({"read", "refused"})

Reader = Callable[[bytes], object]


@cache
def sources() -> list[tuple[str, bytes, Reader]]:
    """Whole files, and what reads them. Formats take turns."""
    from tests.frontends.onnx.test_reader_errors import WHOLE
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
    """In a process of its own: outcomes are counted on the way and printed at the end; the number of
    the current one is always in the file `place`.
    """
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    counts: Counter[str] = Counter()
    defects = []
    with place.open("r+b", buffering=0) as at:
        for index in range(first, last):
            at.seek(0)
            at.write(struct.pack("q", index))
            name, data, read = candidate(seed, index)
            kind, text = outcome(data, read)
            counts[kind] += 1
            if kind not in GOOD:
                defects.append({"index": index, "outcome": kind, "file": name, "text": text})
    print(json.dumps({"counts": counts, "defects": defects}))


class Run:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.defects: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def range(self, first: int, last: int) -> None:
        """All of these, in as many processes as crashes make necessary."""
        while first < last:
            with tempfile.NamedTemporaryFile() as place:
                place.write(struct.pack("q", first))
                place.flush()
                arguments = ["--seed", self.seed, "--range", first, last, place.name]
                command = [sys.executable, "-m", "tests.mutate_bytes", *arguments]
                try:
                    done = subprocess.run(
                        [str(each) for each in command],
                        capture_output=True,
                        text=True,
                        check=False,
                        timeout=SECONDS_FOR_ONE * AT_ONCE,
                    )
                    code, said = done.returncode, done.stderr
                except subprocess.TimeoutExpired:
                    code, said = -signal.SIGALRM, "never ends"
                (reached,) = struct.unpack("q", Path(place.name).read_bytes()[:8])
            with self.lock:
                if code == 0:
                    found = json.loads(done.stdout.splitlines()[-1])
                    self.counts.update(found["counts"])
                    self.defects += found["defects"]
                    return
                self.counts["crash"] += 1
                self.defects.append(
                    {"index": reached, "outcome": "crash", "text": f"{said[-2000:]}\nexit {code}"}
                )
            # What came before it is read again, up to there; then what comes after it.
            if reached > first:
                self.range(first, reached)
            first = reached + 1


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
    run, began = Run(options.seed), time.monotonic()

    def one(first: int) -> None:
        run.range(first, min(first + AT_ONCE, options.count))
        done, seconds = run.counts.total(), time.monotonic() - began
        print(f"{done}  {done / seconds:.0f}/s  {dict(run.counts)}", flush=True)

    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(one, range(options.first, options.count, AT_ONCE)))
    for defect in run.defects:
        last_line = defect["text"].strip().splitlines()[-1:]
        print(defect["outcome"], defect["index"], defect.get("file", ""), last_line)
    print(f"seed {options.seed}: {run.counts.total()} files, {dict(run.counts)}")
    raise SystemExit(bool(run.defects))


if __name__ == "__main__":
    main()
