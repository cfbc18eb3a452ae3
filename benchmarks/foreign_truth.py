"""Is the attribution of other engines' kernels true? What a profile says an operator costs, beside
what leaving it out of the model saves that engine.

    python -m benchmarks.foreign_truth                          both engines, eight models
    python -m benchmarks.foreign_truth gates --engine openvino
    python -m benchmarks.foreign_truth --quick                  does it run?

1. The models (`benchmarks/foreign_truth_models.py`) are short, and the operators that are left out
   are a good part of the kernel that they are fused into, if the engine fuses them. The list is
   fixed, and every operator on it is judged or listed with the reason why not.
2. All other operators must be in the same kernels as before, else what is saved is not the operator
   but another fusion: the engine is asked for both models, and such operators are listed as fused
   otherwise.
3. The models with the operator and without run in turns in one process, on one thread, and so does
   one that computes nothing; what counts is the time that the process computes. What the operator
   saves is the median difference of the two in the same round, so that what changes from round to
   round, a machine that others use as well, is the same for both. Several processes do that, as
   where memory lies differs from one to the next; the median of theirs counts.
4. What is said is the operator's part of its kernels' time, the median of several profiles. How
   long these kernels take is their part of all kernels' shortest times in these profiles, of what
   the model takes longer than the one that computes nothing: a call may copy inputs for longer than
   it computes.
5. A profile may say that operators of a kernel cannot be told apart, as the kernel takes longer than
   they do one by one (`foreign/inseparable.py`: ONNX Runtime's SkipLayerNormalization). That is a
   statement too, and judged: all of them together must save at least 20 points more than the
   kernel takes.
6. Without an operator an engine may compute the one before it by other code: OpenVINO has products
   with a function behind them done by brgemm and those without by MLAS. What is saved then is the
   operator and the difference of the two, which a profile can tell as far as the small models have
   it that functions are measured with. Where the engine names its code and the names differ, both
   are shown with the figures, and the operator is listed instead of judged.
7. What functions cost the engine is measured anew first: what is stored may come from a machine
   that was busy.
8. The error is in points of the kernels that the operator is in, and is to be below 10. Beside it
   is the range that it lies in with a probability of 95 %, by how processes and profiles differ.
   Where the limit is inside that range, more of both are made, up to four times as many; an
   operator that is still on neither side then is undecided.

An engine passes if no operator is wrong, and at least ten in five models are right: those that are
undecided, or that the profile says cannot be told apart, are not among them. With `--quick`, a
round or two of everything: whether it runs, not what is true. Takes ten to twenty minutes; a
machine that does nothing else gives the best answer in the shortest time.
"""

from __future__ import annotations

import argparse
import enum
import json
import math
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from benchmarks.foreign_truth_models import CASES, nothing, without
from whence.attribution.cost_model import VIEWS
from whence.attribution.profile import Profile
from whence.codegen.toolchain import Toolchain
from whence.foreign.engine_rates import forget_functions, time_models
from whence.foreign.placement import CANNOT_BE_TOLD_APART
from whence.foreign.run import attribute, prepare, record

ENGINES = ("onnxruntime", "openvino")
LIMIT = 0.10
LEAST_OPERATORS, LEAST_MODELS = 10, 5
"""That an engine is judged by."""
_MORE_THAN_ALL = 1.0 + 2 * LIMIT
"""What operators that cannot be told apart must save together, of their kernel: with less, there
are parts that are right for each of them.
"""
_WHOLE, _NOTHING = "whole", "nothing"
_UNLIKELY = 0.05
"""That what is measured lies outside the range that is shown."""


class Effort(NamedTuple):
    batches: int
    """At most, while an operator is undecided: of processes and profiles each."""
    processes: int
    rounds: int
    profiles: int
    runs: int


THOROUGH = Effort(4, 11, 24, 7, 12)
QUICK = Effort(1, 1, 2, 1, 2)


class Finding(enum.Enum):
    RIGHT = "right"
    WRONG = "WRONG"
    UNDECIDED = "undecided"


class Range(NamedTuple):
    """A median, and what it lies between with a probability of 95 %."""

    low: float
    middle: float
    high: float

    def over(self, positive: Range) -> Range:
        """Divided, where both may be anywhere in their range."""
        limits = [
            each / by for each in (self.low, self.high) for by in (positive.low, positive.high)
        ]
        return Range(min(limits), self.middle / positive.middle, max(limits))


def median_of(values: Sequence[float]) -> Range:
    """The range is that of order statistics, which assumes nothing of how values are distributed.
    All of them, if they are few.
    """
    ordered = sorted(values)
    count = len(ordered)
    outside, tail = 0, 1 / 2**count
    # With a probability of `tail`, no more than `outside` values are below the median.
    while 2 * tail <= _UNLIKELY:
        outside += 1
        tail += math.comb(count, outside) / 2**count
    least = max(0, outside - 1)
    return Range(ordered[least], statistics.median(ordered), ordered[count - 1 - least])


class Verdict(NamedTuple):
    model: str
    engine: str
    operator: str
    kind: str
    alone: bool
    """Is it in kernels of its own?"""
    said: Range
    """Of the time of its kernels."""
    saved: Range
    kernels_ns: float
    together: float | None = None
    """Of operators that the profile says cannot be told apart: what all of them save."""
    other_code: str = ""
    """What the engine computes by other code where the operator is left out, with both names."""

    @property
    def finding(self) -> Finding:
        if self.together is not None:
            return Finding.RIGHT if self.together >= _MORE_THAN_ALL else Finding.WRONG
        error = self.error
        if max(abs(error.low), abs(error.high)) <= LIMIT:
            return Finding.RIGHT
        if error.low > LIMIT or error.high < -LIMIT:
            return Finding.WRONG
        return Finding.UNDECIDED

    @property
    def error(self) -> Range:
        return Range(
            self.said.low - self.saved.high,
            self.said.middle - self.saved.middle,
            self.said.high - self.saved.low,
        )


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


class Said(NamedTuple):
    """Of an operator, by several profiles."""

    part: Range
    """Of the time of its kernels,"""
    of_all: Range
    """and theirs of that of all kernels, as the shortest runs of each are."""
    alone: bool
    """Is it in kernels of its own?"""


def said(profiles: Sequence[Profile], name: str) -> Said:
    number = next(row.id for row in profiles[0].sources if row.name == name)
    parts, of_all = [], []
    alone = True
    for profile in profiles:
        time = part = shortest = 0
        for kernel in profile.kernels:
            mine = [each for each in kernel.origin if each.id == number]
            if mine and not kernel.inserted:
                time += kernel.time_ns
                part += sum(each.time_ns for each in mine)
                # An engine that tells averages tells how single runs differ by their wall times.
                shortest += kernel.min_ns
                alone &= len(kernel.origin) == 1
        parts.append(part / time)
        of_all.append(shortest / sum(kernel.min_ns for kernel in profile.kernels))
    return Said(median_of(parts), median_of(of_all), alone)


class Profiled(NamedTuple):
    profile: Profile
    code: Mapping[str, str]
    """By convolution or product: what the engine calls the code that computes it."""


def profiled(path: Path, engine: str, runs: int) -> Profiled:
    subject = prepare(path)
    profile, placement = attribute(subject, record(subject, engine, threads=1, runs=runs))
    heavy = {
        subject.source[number].name: place.node.kernel
        for place in placement.places
        if not place.is_inserted
        for number in place.weights
        if subject.source[number].is_heavy
    }
    return Profiled(profile, heavy)


def changed_code(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The convolutions and products that other code computes than before, with both names."""
    return ", ".join(
        f"{name} by {after[name]} instead of {code}"
        for name, code in before.items()
        if after.get(name, code) != code
    )


class Outcome(NamedTuple):
    """Of one model on one engine."""

    verdicts: list[Verdict]
    fused_otherwise: list[str]
    """Operators without which the engine fuses others in another way."""


def measure(name: str, engine: str, effort: Effort) -> Outcome:
    case = CASES[name]
    model = case.build()
    kinds = {node.name: node.op_type for node in model.graph.node}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        whole = place / f"{_WHOLE}.onnx"
        onnx.save(model, whole)
        onnx.save(nothing(model), place / f"{_NOTHING}.onnx")
        found = profiled(whole, engine, effort.runs)
        profiles = [found.profile]
        compared: dict[str, str] = {}
        fused_otherwise = []
        for operator in case.left_out:
            path = place / f"{operator}.onnx"
            onnx.save(without(model, operator), path)
            less = profiled(path, engine, 2)
            if partition(less.profile) == partition(profiles[0], operator):
                compared[operator] = changed_code(found.code, less.code)
            else:
                fused_otherwise.append(operator)
                path.unlink()
        inputs: dict[str, Any] = dict(prepare(whole).inputs)
        np.savez(place / "inputs.npz", **inputs)
        took: list[Mapping[str, Sequence[int]]] = []
        verdicts: list[Verdict] = []
        for batch in range(1, effort.batches + 1):
            while len(profiles) < batch * effort.profiles:
                profiles.append(profiled(whole, engine, effort.runs).profile)
            for seed in range((batch - 1) * effort.processes, batch * effort.processes):
                if (times := time_models(engine, place, effort.rounds, seed)) is not None:
                    took.append(times)
            verdicts = list(_verdicts(name, engine, kinds, compared, profiles, took))
            verdicts = _with_inseparable(verdicts, profiles[0])
            if not any(is_judged(each, Finding.UNDECIDED) for each in verdicts):
                break
    return Outcome(verdicts, fused_otherwise)


def is_judged(each: Verdict, finding: Finding) -> bool:
    return not each.other_code and each.finding is finding


def _verdicts(
    name: str,
    engine: str,
    kinds: Mapping[str, str],
    left_out: Mapping[str, str],
    profiles: Sequence[Profile],
    took: Sequence[Mapping[str, Sequence[int]]],
) -> Iterator[Verdict]:
    """`left_out` are the operators, each with the code that changes without it."""
    computing = [statistics.median(map(int.__sub__, each[_WHOLE], each[_NOTHING])) for each in took]
    for operator, other_code in left_out.items():
        part, of_all, alone = said(profiles, operator)
        saved = median_of(
            [
                statistics.median(map(int.__sub__, each[_WHOLE], each[operator])) / kernels
                for each, kernels in zip(took, computing, strict=True)
            ]
        )
        own = of_all.middle * statistics.median(computing)
        yield Verdict(
            *(name, engine, operator, kinds[operator], alone, part, saved.over(of_all), own),
            other_code=other_code,
        )


def _with_inseparable(found: Sequence[Verdict], profile: Profile) -> list[Verdict]:
    """Operators that the profile itself says cannot be told apart have what all of those in their
    kernel save together.
    """
    rows = {row.id: row for row in profile.sources}
    saved = {each.operator: each.saved.middle for each in found}
    together: dict[str, float] = {}
    for kernel in profile.kernels:
        inside = [rows[part.id] for part in kernel.origin if not kernel.inserted]
        unclear = [row.name for row in inside if CANNOT_BE_TOLD_APART in row.became]
        whole = sum(saved.get(each, 0.0) for each in unclear)
        together |= dict.fromkeys(unclear, whole)
    return [each._replace(together=together.get(each.operator)) for each in found]


def judge(
    engine: str, found: Sequence[Verdict], fused_otherwise: Sequence[str]
) -> tuple[str, bool]:
    """A line for one engine, and whether it passes."""
    judged = [each for each in found if not each.other_code]
    otherwise = [f"{each.model} {each.operator}" for each in found if each.other_code]
    compared = [each for each in judged if each.together is None]
    right = [each for each in compared if each.finding is Finding.RIGHT]
    undecided = [each for each in compared if each.finding is Finding.UNDECIDED]
    models = len({each.model for each in right})
    line = (
        f"{engine}: {len(right)} of {len(compared)} operators, in {models} models, are within"
        f" {100 * LIMIT:.0f} points; {sum(not each.alone for each in right)} of them are fused"
        f" with others; {len(judged) - len(compared)} are said to be inseparable, of which"
        f" {sum(is_judged(each, Finding.RIGHT) for each in judged if each.together is not None)}"
        " are"
    )
    if undecided:
        line += f"; undecided: {', '.join(f'{each.model} {each.operator}' for each in undecided)}"
    if otherwise:
        line += f"; not judged, as without them other code is used: {', '.join(otherwise)}"
    if fused_otherwise:
        line += f"; not compared, as without them others are fused: {', '.join(fused_otherwise)}"
    enough = len(right) >= LEAST_OPERATORS and models >= LEAST_MODELS
    if not enough:
        line += f"; fewer than {LEAST_OPERATORS} right operators in {LEAST_MODELS} models"
    return line, enough and not any(is_judged(each, Finding.WRONG) for each in judged)


def show(each: Verdict) -> str:
    return (
        f"{each.model:14} {each.engine:12} {each.kind + ' ' + each.operator:28}"
        f" {each.kernels_ns / 1e3:7.0f}µs {100 * each.said.middle:5.1f}%"
        f" {100 * each.saved.middle:6.1f}% {100 * each.error.middle:+7.1f}"
        f" {100 * each.error.low:+6.1f} to {100 * each.error.high:+5.1f}"
        + (" alone" if each.alone else "")
        + (
            f" inseparable: {100 * each.together:.0f}% together"
            if each.together is not None
            else ""
        )
        + (f" without it, {each.other_code}" if each.other_code else "")
        + ("" if each.other_code or each.finding is Finding.RIGHT else f" {each.finding.value}")
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(CASES))
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="little of everything: does it run?")
    options = parser.parse_args()
    unknown = [name for name in options.models if name not in CASES]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(CASES)}")
    found: list[Verdict] = []
    otherwise: dict[str, list[str]] = {engine: [] for engine in options.engine or ENGINES}
    print(
        f"{'model':14} {'engine':12} {'operator':28} {'kernels':>9} {'said':>6} {'saved':>7}"
        f" {'error':>7} {'95 %':>10}"
    )
    for engine, listed in otherwise.items():
        forget_functions(engine, Toolchain())
        for name in options.models or CASES:
            made = measure(name, engine, QUICK if options.quick else THOROUGH)
            found += made.verdicts
            listed += [f"{name} {each}" for each in made.fused_otherwise]
            print(*map(show, made.verdicts), sep="\n", flush=True)
    if options.json is not None:
        rows: list[dict[str, Any]] = [
            {**each._asdict(), "error": each.error, "finding": each.finding.value} for each in found
        ]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    passed = True
    for engine, listed in otherwise.items():
        line, good = judge(engine, [each for each in found if each.engine == engine], listed)
        passed &= good
        print(line)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
