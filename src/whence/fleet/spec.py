"""What a sweep measures: a TOML file, or models named on the command line, as a list of cells.

models  = ["models/*.onnx", "models/tiny.tflite"]     # beside the file, unless absolute
engines = ["whence", "onnxruntime"]
threads = [1, 2]
targets = ["", "x86-64-v3"]                           # what code is generated for; whence only
versions = ["current", "../whence-0.1"]               # checkouts or wheels of whence
machines = ["icelake", "graviton"]                    # labels of a cluster's nodes

[shapes.bert_base]                                    # several: a cell for each
input_ids = [[1, 8], [1, 128]]

[limits]
timeout = 600          # seconds for a cell
memory_gib = 8         # of private memory
error = 0.02           # standard error of the median run, as a part of it
seconds = 20           # at most so long for the timed runs
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from whence.errors import InputError
from whence.fleet.cell import CURRENT, WHENCE
from whence.fleet.process import CellLimits

SUFFIXES = (".onnx", ".tflite", ".circle")
_LIMITS = ("timeout", "memory_gib", "error", "seconds", "warmup", "tune")
_TARGET = re.compile(r"[A-Za-z0-9_.+-]*")
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Spec:
    """A matrix: every model with every engine, target, number of threads, shape and version."""

    models: tuple[Path, ...]
    engines: tuple[str, ...] = (WHENCE,)
    threads: tuple[int, ...] = (0,)
    targets: tuple[str, ...] = ("",)
    versions: tuple[str, ...] = (CURRENT,)
    machines: tuple[str, ...] = ()
    """Labels of the machines of a cluster; empty for whichever there is."""
    shapes: Mapping[str, tuple[Shapes, ...]] = field(default_factory=dict)
    """By model name: each set of shapes is a cell of its own."""
    limits: CellLimits = field(default_factory=CellLimits)

    def shapes_of(self, model: Path) -> tuple[Shapes, ...]:
        return self.shapes.get(model.stem, ({},))


def read_spec(path: Path) -> Spec:
    """The spec in a TOML file. What it says that nobody understands is an error, not ignored."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"'{path}': no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is not TOML: {error}") from error
    where = f"'{path}'"
    _check_known(content, [each.name for each in fields(Spec)], where)
    given: dict[str, Any] = {
        name: _texts(content[name], f"{where}: {name}")
        for name in ("engines", "targets", "versions", "machines")
        if name in content
    }
    if "threads" in content:
        counts = _several(content["threads"])
        given["threads"] = tuple(_whole(each, f"{where}: threads") for each in counts)
    models = _texts(content.get("models", ()), f"{where}: models")
    return checked(
        Spec(
            models=tuple(find_models(models, path.parent)),
            shapes=_shapes(content.get("shapes", {}), where),
            limits=_limits(content.get("limits", {}), f"{where}: [limits]"),
            **given,
        )
    )


def _check_known(content: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    if unknown := sorted(set(content).difference(known)):
        raise InputError(
            f"{where} has {unknown[0]!r}, which a sweep does not know; there is"
            f" {', '.join(sorted(known))}"
        )


def checked(spec: Spec) -> Spec:
    """The spec, if it makes sense."""
    if not spec.models:
        raise InputError("a sweep needs at least one model (.onnx, .tflite or .circle)")
    names = {model.stem for model in spec.models}
    if unknown := sorted(set(spec.shapes) - names):
        raise InputError(f"shapes are given for '{unknown[0]}', which is none of the models")
    for target in spec.targets:
        if not _TARGET.fullmatch(target):
            raise InputError(f"'{target}' is not the name of a target")
    for count in spec.threads:
        if count < 0:
            raise InputError(f"{count} threads cannot run a model")
    return spec


def find_models(names: Sequence[str], beside: Path) -> Iterator[Path]:
    """The files that paths and patterns name, each once, in order; in a folder, all models."""
    found: dict[Path, None] = {}
    for name in names:
        path = Path(name) if Path(name).is_absolute() else beside / name
        if path.is_dir():
            matches = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
        elif not path.is_file() and any(mark in name for mark in "*?["):
            base = Path(path.anchor) if path.is_absolute() else Path()
            matches = sorted(base.glob(str(path.relative_to(path.anchor))))
        else:
            matches = [path]
        if not matches:
            raise InputError(f"'{name}' matches no model")
        for match in matches:
            if not match.is_file():
                raise InputError(f"'{match}': no such file")
            found.setdefault(match.resolve())
    yield from found


def _several(given: object) -> Sequence[object]:
    """A list, or one alone."""
    return given if isinstance(given, list | tuple) else [given]


def _texts(given: object, what: str) -> tuple[str, ...]:
    found = _several(given)
    texts = [each for each in found if isinstance(each, str)]
    if len(texts) != len(found):
        raise InputError(f"{what} is not a list of texts")
    return tuple(dict.fromkeys(texts))


def _whole(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{what}: {value!r} is not a whole number")
    return value


def _shapes(content: object, where: str) -> dict[str, tuple[Shapes, ...]]:
    if not isinstance(content, dict):
        raise InputError(f"{where}: shapes are tables, [shapes.MODEL]")
    found: dict[str, tuple[Shapes, ...]] = {}
    for model, inputs in content.items():
        if not isinstance(inputs, dict):
            raise InputError(f"{where}: [shapes.{model}] is not a table of inputs")
        choices = []
        for name, given in inputs.items():
            if not isinstance(given, list):
                raise InputError(f"{where}: the shape of '{name}' is a list, like [1, 128]")
            several = given and all(isinstance(each, list) for each in given)
            choices.append(
                [
                    (name, tuple(_whole(dim, f"{where}: the shape of '{name}'") for dim in shape))
                    for shape in (given if several else [given])
                ]
            )
        lengths = {len(choice) for choice in choices if len(choice) > 1}
        if len(lengths) > 1:
            raise InputError(
                f"{where}: the inputs of [shapes.{model}] have different numbers of shapes; the"
                " first of each go together, the second, and so on"
            )
        count = lengths.pop() if lengths else 1
        found[model] = tuple(
            dict(choice[number if len(choice) > 1 else 0] for choice in choices)
            for number in range(count)
        )
    return found


def _limits(content: object, where: str) -> CellLimits:
    if not isinstance(content, dict):
        raise InputError(f"{where} is not a table")
    _check_known(content, _LIMITS, where)
    for name, value in content.items():
        if name != "tune" and (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not 0 <= value < math.inf
        ):
            raise InputError(f"{where}: {name} is {value!r}, not a number from 0")
    usual = CellLimits()
    return CellLimits(
        timeout=float(content.get("timeout", usual.timeout)),
        memory=int(content.get("memory_gib", 0) * 2**30),
        error=max(1e-4, float(content.get("error", usual.error))),
        seconds=float(content.get("seconds", usual.seconds)),
        warmup=int(content.get("warmup", usual.warmup)),
        tune=bool(content.get("tune", False)),
    )


def combinations(spec: Spec) -> Iterator[tuple[Path, str, str, int, Shapes, str, str]]:
    """Every cell as model, engine, target, threads, shapes, version, machine. What is ours alone
    (targets, versions) is not multiplied for other engines.
    """
    for model, engine in itertools.product(spec.models, spec.engines):
        ours = engine == WHENCE
        for shapes, threads, target, version, machine in itertools.product(
            spec.shapes_of(model),
            spec.threads,
            spec.targets if ours else ("",),
            spec.versions if ours else (CURRENT,),
            spec.machines or ("",),
        ):
            yield model, engine, target, threads, shapes, version, machine
