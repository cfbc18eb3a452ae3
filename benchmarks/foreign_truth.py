"""Is the attribution of other engines' kernels true? What a profile says an operator costs, beside
what leaving it out of the model saves that engine.

    python -m benchmarks.foreign_truth                          onnxruntime and openvino, seven models
    python -m benchmarks.foreign_truth gates --engine openvino

1. The models (`benchmarks/foreign_truth_models.py`) are short, and the operators that are left out
   are a good part of the kernel that they are fused into, if the engine fuses them.
2. All other operators must be in the same kernels as before, else what is saved is not the operator
   but another fusion: the engine is asked for both models, and such operators are passed over.
3. The models with the operator and without run in turns in one process, on one thread; what counts
   is the time that the process computes. What the operator saves is the median difference of the
   two in the same round, so that what changes from round to round, a machine that others use as
   well, is the same for both. Several processes do that, as where memory lies differs from one to
   the next; the median of theirs counts.
4. What is said is the operator's part of its kernels' time, the median of several profiles. How
   long these kernels take is their part of all kernels' shortest times in these profiles, of that
   of the whole model.
5. Some kernels cannot be divided by leaving out: where the operators of one kernel would save more
   than it takes, all together, no parts of it can say what each saves. ONNX Runtime's
   SkipLayerNormalization takes six times as long as a LayerNormalization, and 20 times as long as
   a sum: leaving out either saves nearly all of it. Such operators are listed as inseparable, and
   do not count.
6. What functions cost the engine is measured anew first: what is stored may come from a machine
   that was busy.

The error is in points of the kernels that the operator is in, and is to be below 10; beside it is
how far the processes differ. Takes about eight minutes; a machine that does nothing else gives the
best answer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from benchmarks.foreign_truth_models import CASES, without
from whence.attribution.cost_model import VIEWS
from whence.attribution.profile import Profile
from whence.codegen.toolchain import Toolchain
from whence.foreign.engine_rates import forget_functions, time_models
from whence.foreign.run import attribute, prepare, record

ENGINES = ("onnxruntime", "openvino")
LIMIT = 0.10
_PROCESSES, _ROUNDS = 5, 40
_MOST = 1.25
"""What all operators of a kernel may save together, of its time, before it counts as inseparable.
"""
_PROFILES, _RUNS = 5, 12
_WHOLE = "whole"


class Verdict(NamedTuple):
    model: str
    engine: str
    operator: str
    kind: str
    alone: bool
    """Is it in kernels of its own?"""
    said: float
    """Of the time of its kernels."""
    saved: float
    spread: float
    """How far the processes differ."""
    kernels_ns: float
    separable: bool = True
    """Do the operators of its kernel save no more than it takes, together?"""

    @property
    def is_right(self) -> bool:
        return not self.separable or abs(self.error) <= LIMIT

    @property
    def error(self) -> float:
        return self.said - self.saved


def partition(profile: Profile, leaving_out: str = "") -> Mapping[frozenset[str], int]:
    """The sets of operators that kernels do, and how many kernels do each. Operators that only say
    otherwise how a tensor is laid out are in any kernel.
    """
    names = {row.id: row.name for row in profile.sources if row.op not in VIEWS}
    return Counter(
        inside
        for kernel in profile.kernels
        if not kernel.inserted
        and (
            inside := frozenset(
                {names.get(part.id, "") for part in kernel.origin} - {"", leaving_out}
            )
        )
    )


def said(profiles: Sequence[Profile], name: str) -> tuple[float, float, bool]:
    """The operator's part of its kernels, theirs of all kernels, and whether it is alone in them."""
    number = next(row.id for row in profiles[0].sources if row.name == name)
    shortest: dict[str, float] = {}
    parts, own = [], set()
    alone = True
    for profile in profiles:
        time = part = 0
        for kernel in profile.kernels:
            # An engine that tells averages tells how single runs differ by their wall times.
            least = min(shortest.get(kernel.name, kernel.min_ns), kernel.min_ns)
            shortest[kernel.name] = least
            mine = [each for each in kernel.origin if each.id == number]
            if mine and not kernel.inserted:
                own.add(kernel.name)
                time += kernel.time_ns
                part += sum(each.time_ns for each in mine)
                alone &= len(kernel.origin) == 1
        parts.append(part / time)
    return (
        statistics.median(parts),
        sum(shortest[each] for each in own) / sum(shortest.values()),
        alone,
    )


def profiled(path: Path, engine: str, runs: int) -> Profile:
    subject = prepare(path)
    return attribute(subject, record(subject, engine, threads=1, runs=runs))[0]


def measure(name: str, engine: str) -> Iterator[Verdict]:
    case = CASES[name]
    model = case.build()
    kinds = {node.name: node.op_type for node in model.graph.node}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        onnx.save(model, place / f"{_WHOLE}.onnx")
        profiles = [profiled(place / f"{_WHOLE}.onnx", engine, _RUNS) for _ in range(_PROFILES)]
        left_out = []
        for operator in case.left_out:
            path = place / f"{operator}.onnx"
            onnx.save(without(model, operator), path)
            if partition(profiled(path, engine, 2)) == partition(profiles[0], operator):
                left_out.append(operator)
            else:
                path.unlink()
        inputs: dict[str, Any] = dict(prepare(place / f"{_WHOLE}.onnx").inputs)
        np.savez(place / "inputs.npz", **inputs)
        took = [
            found
            for _ in range(_PROCESSES)
            if (found := time_models(engine, place, _ROUNDS)) is not None
        ]
    yield from _judged(list(_verdicts(name, engine, kinds, left_out, profiles, took)), profiles)


def _verdicts(
    name: str,
    engine: str,
    kinds: Mapping[str, str],
    left_out: Sequence[str],
    profiles: Sequence[Profile],
    took: Sequence[Mapping[str, Sequence[int]]],
) -> Iterator[Verdict]:
    whole = statistics.median(statistics.median(each[_WHOLE]) for each in took)
    for operator in left_out:
        part, of_all, alone = said(profiles, operator)
        kernels = of_all * whole
        saved = [
            statistics.median(map(int.__sub__, each[_WHOLE], each[operator])) / kernels
            for each in took
        ]
        middle, spread = statistics.median(saved), max(saved) - min(saved)
        yield Verdict(name, engine, operator, kinds[operator], alone, part, middle, spread, kernels)


def _judged(found: Sequence[Verdict], profiles: Sequence[Profile]) -> Iterator[Verdict]:
    """Those whose kernels all their operators together would save more of than there is are
    inseparable.
    """
    names = {row.id: row.name for row in profiles[0].sources}
    by_name = {each.operator: each for each in found}
    too_much = set()
    for kernel in profiles[0].kernels:
        inside = {names[part.id] for part in kernel.origin if not kernel.inserted} & by_name.keys()
        if len(inside) > 1 and sum(by_name[each].saved for each in inside) > _MOST:
            too_much |= inside
    for each in found:
        yield each._replace(separable=each.operator not in too_much)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(CASES))
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    unknown = [name for name in options.models if name not in CASES]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(CASES)}")
    found: list[Verdict] = []
    print(
        f"{'model':14} {'engine':12} {'operator':28} {'kernels':>9} {'said':>6} {'saved':>7}"
        f" {'error':>7}  points"
    )
    for engine in options.engine or ENGINES:
        forget_functions(engine, Toolchain())
        for name in options.models or CASES:
            for each in measure(name, engine):
                found.append(each)
                print(
                    f"{each.model:14} {each.engine:12} {each.kind + ' ' + each.operator:28}"
                    f" {each.kernels_ns / 1e3:7.0f}µs {100 * each.said:5.1f}% {100 * each.saved:6.1f}%"
                    f" {100 * each.error:+7.1f} ± {100 * each.spread:4.1f}"
                    + (" alone" if each.alone else "")
                    + ("" if each.separable else " inseparable")
                    + ("" if each.is_right else "  WRONG"),
                    flush=True,
                )
    if options.json is not None:
        rows: list[dict[str, Any]] = [{**each._asdict(), "error": each.error} for each in found]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for engine in options.engine or ENGINES:
        mine = [each for each in found if each.engine == engine]
        counted = [each for each in mine if each.separable]
        good, fused = (
            sum(each.is_right for each in counted),
            sum(not each.alone for each in counted),
        )
        print(
            f"{engine}: {good} of {len(counted)} operators in {len({each.model for each in counted})}"
            f" models are within {100 * LIMIT:.0f} points; {fused} of them are fused with others;"
            f" {len(mine) - len(counted)} more are inseparable"
        )
    sys.exit(not all(each.is_right for each in found))


if __name__ == "__main__":
    main()
