"""One process that makes mutants, compiles them together with checked addresses, runs them and
compares them with the interpreter. Run by `tests.mutate`, which starts another where it ends.

A line of JSON is written when a mutant is begun and when it is done, so that whoever reads them
knows which one a crash belongs to.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tests.mutation.damage import Stuck, limited
from tests.mutation.onnx_mutants import Mutant
from tests.mutation.rounding import Change, compared, rounding_explains
from tests.mutation.seeds import Seed, restore
from tests.mutation.tflite_mutants import TfliteMutant, written
from whence.api import compile_model, prepare
from whence.codegen.emit import KernelUnit, pack
from whence.codegen.functions import KernelFunction
from whence.codegen.toolchain import SourceUnit, Toolchain
from whence.errors import CompileError, GraphError, WhenceError
from whence.frontends.onnx.reader import read_onnx
from whence.frontends.tflite.reader import read_tflite
from whence.graph import Graph, Node
from whence.graph.interpreter import Observer
from whence.graph.state import initial_state
from whence.passes.shapes.propagate_types import fix_input_shapes
from whence.runtime.engine import Engine
from whence.types import DType, TensorType, ValueType

SECONDS_FOR_ONE = 30
_OUTSIDE, _NO_MEMORY = "out of bounds for axis", "Unable to allocate"
_NO_BROADCAST = "could not be broadcast together"
_NO_ELEMENTS = "of an empty sequence"


class Collected(BaseException):
    """A mutant has got as far as asking for native code."""


class Batch(Toolchain):
    """Compiles the kernels of many mutants into one library, with checked addresses."""

    def __init__(self, sanitize: bool) -> None:
        super().__init__(jobs=1, sanitize=sanitize)
        self._wanted: dict[str, KernelFunction] | None = None
        self._held: frozenset[str] = frozenset()
        self._path = Path()

    def build_library(self, units: Sequence[SourceUnit], **options: Any) -> Path:
        functions = [
            function
            for unit in units
            if isinstance(unit, KernelUnit)
            for function in unit.functions
        ]
        if functions and self._wanted is not None:
            self._wanted |= {function.symbol: function for function in functions}
            raise Collected
        if functions and {function.symbol for function in functions} <= self._held:
            return self._path
        return super().build_library(units, **options)

    def make(self, tries: Sequence[Callable[[], object]]) -> None:
        """Take each as far as its kernels, and compile those of all of them."""
        self._wanted = {}
        for attempt in tries:
            attempt()
        wanted, self._wanted, self._held = self._wanted, None, frozenset()
        if wanted:
            try:
                self._path = super().build_library(pack(wanted.values()))
                self._held = frozenset(wanted)
            except CompileError:
                # One of them is bad. Each mutant then compiles its own, and the right one fails.
                pass


@dataclass
class Candidate:
    """A mutant as a file, and its inputs."""

    index: int
    seed: str
    form: str
    data: bytes
    inputs: list[Any]
    done: list[str]

    def read(self) -> Graph:
        return read_onnx(self.data) if self.form == "onnx" else read_tflite(self.data)

    def fed(self, graph: Graph, rng: np.random.Generator) -> list[Any]:
        """Its inputs, made up for a form that has no examples."""
        if self.form == "onnx":
            return self.inputs
        found = []
        for node in graph.inputs:
            kind = node.type
            assert isinstance(kind, TensorType)
            shape = [dim if isinstance(dim, int) else 2 for dim in kind.shape or ()]
            if np.prod(shape, dtype=np.float64) > 1e6:
                raise WhenceError("an input that is too large to try")
            dtype = kind.dtype.numpy
            values: Any
            if dtype.kind in "iu":
                values = rng.integers(0 if dtype.kind == "u" else -4, 6, shape)
            else:
                values = rng.standard_normal(shape)
            found.append(np.asarray(values).astype(dtype))
        return found


def candidate(run: int, index: int, seeds: dict[str, list[Seed]]) -> Candidate:
    """Mutant number `index` of the run: the same in every process."""
    rng = np.random.default_rng([run, index])
    operators = sorted(seeds)
    of_one = seeds[operators[int(rng.integers(len(operators)))]]
    seed = of_one[int(rng.integers(len(of_one)))]
    if seed.form == "tflite":
        changed = TfliteMutant(seed.model, rng)
        changed.change()
        return Candidate(index, seed.name, "tflite", changed.bytes(), [], changed.done)
    mutant = Mutant(seed.model, seed.inputs, rng)
    # A loop in a TFLite file has its length in a number that may be changed to any other.
    if rng.random() < 0.3 and not mutant.has_loops:
        data = written(mutant)
        if data is not None:
            changed = TfliteMutant(data, rng)
            changed.change()
            return Candidate(index, seed.name, "tflite", changed.bytes(), [], changed.done)
    mutant.change()
    inputs = [mutant.inputs[each.name] for each in mutant.graph.input if each.name in mutant.inputs]
    return Candidate(
        index, seed.name, "onnx", mutant.model.SerializeToString(), inputs, mutant.done
    )


def compiled_outputs(it: Candidate, engine: Engine) -> list[Any]:
    graph = it.read()
    inputs = it.fed(graph, rng_of(it))
    calls = 2 if graph.variables else 1
    model = compile_model(graph, engine=engine)
    found: list[Any] = []
    for _ in range(calls):
        made = model(*inputs)
        found.extend(made if isinstance(made, tuple) else [made])
    return found


def interpreted(it: Candidate, graph: Graph, observe: Observer | None = None) -> list[Any]:
    """What the interpreter makes of it, in as many calls."""
    inputs = it.fed(graph, rng_of(it))
    if not graph.variables:
        return list(graph.run(inputs, observe))
    state = initial_state(graph)
    return [value for _ in range(2) for value in graph.run(inputs, observe, state)]


def outcome(it: Candidate, engine: Engine) -> tuple[str, str]:
    """`ran` and `refused` are what a mutant may come to; every other word is a defect."""
    try:
        with limited(SECONDS_FOR_ONE):
            found = compiled_outputs(it, engine)
    except (GraphError, CompileError):
        return "broken", traceback.format_exc()
    except WhenceError as error:
        if len(str(error).splitlines()) != 1:
            return "long", str(error)
        return "refused", str(error)
    except Stuck:
        return "stuck", traceback.format_exc()
    except Collected:
        raise
    except BaseException:
        return "raw", traceback.format_exc()
    try:
        with limited(SECONDS_FOR_ONE):
            graph = it.read()
            expected = interpreted(it, graph)
    except WhenceError as error:
        if not depends_on_values(graph, error):
            return "unchecked", str(error)
        try:
            with limited(SECONDS_FOR_ONE):
                expected = without_unused(it)
        except WhenceError as still:
            return "unchecked", str(still)
        except (Stuck, Exception):
            return "reference", traceback.format_exc()
    except (Stuck, Exception):
        return "reference", traceback.format_exc()
    result = compared(expected, found)
    if result[0] == "different" and has_litert_tables(graph):
        # LiteRT's functions of 16 bits lie on straight lines between every 128th code: with a
        # coarse scale that is far from the function, which is what the interpreter computes.
        graph = it.read()
        prepare(graph)
        return compared(interpreted(it, graph), found)
    if result[0] == "different" and rounding_explains(partial(run_again, it), expected, found):
        return "ran", ""
    return result


def run_again(
    it: Candidate, change: Change, change_constant: Change, observe: Observer
) -> list[Any]:
    """What the interpreter makes of it with other inputs and constants, of values that an observer
    changes.
    """
    graph = it.read()
    for node in graph:
        if node.op == "Const" and isinstance(node.value, np.ndarray):
            node.value = change_constant(node.value)
    # What an operator passes on may be the input itself.
    inputs = [change(deepcopy(value)) for value in it.fed(graph, rng_of(it))]
    return interpreted(replace(it, inputs=inputs, form="onnx"), graph, observe)


def rng_of(it: Candidate) -> np.random.Generator:
    return np.random.default_rng(it.index)


def has_litert_tables(graph: Graph) -> bool:
    return any(
        isinstance(node.type, TensorType)
        and node.type.dtype is DType.I16
        and node.attrs.get("arithmetic") == "fixed_point"
        for node in graph
        if node.op == "QuantizeLinear"
    )


def depends_on_values(graph: Graph, error: WhenceError) -> bool:
    """Was an operator refused for integers that only the run knows, such as axes or indices, for
    shapes made of them, or for the memory it takes? Who does not need its result need not compute
    it. Indices in the file are no different: what is never run may hold any.
    """
    if _OUTSIDE in str(error) or _NO_MEMORY in str(error):
        return True
    for node in graph:
        if f"({node.op})" in str(error):
            of_sizes = _NO_BROADCAST in str(error) or _NO_ELEMENTS in str(error)
            if of_sizes and not all(map(is_static, node_types(graph, node))):
                return True
            for ref in node.inputs[1:]:
                kind = None if ref is None else graph.type_of(ref)
                if graph.const_value(ref) is None and isinstance(kind, TensorType):
                    return kind.dtype.is_integer
    return False


def node_types(graph: Graph, node: Node) -> list[ValueType]:
    return [graph.type_of(ref) for ref in node.inputs if ref is not None]


def is_static(kind: ValueType) -> bool:
    return isinstance(kind, TensorType) and kind.elements is not None


def without_unused(it: Candidate) -> list[Any]:
    """What the interpreter makes of the model without operators whose values nobody reads: with the
    sizes of this run, who asks for the shape of a value does not read it.
    """
    graph = it.read()
    fed = it.fed(graph, rng_of(it))
    shapes = {node.name: np.shape(value) for node, value in zip(graph.inputs, fed, strict=True)}
    fix_input_shapes(graph, shapes)
    prepare(graph, portable=True)
    return interpreted(it, graph)


def prepared(it: Candidate, engine: Engine) -> None:
    try:
        with limited(SECONDS_FOR_ONE):
            compiled_outputs(it, engine)
    except BaseException:
        # Whatever it comes to, it will come to again when it counts.
        pass


def work(options: argparse.Namespace, log: TextIO) -> None:
    def say(**line: Any) -> None:
        log.write(json.dumps(line) + "\n")
        log.flush()

    seeds = restore(options.seeds)
    toolchain = Batch(not options.plain)
    engine = Engine(threads=1, toolchain=toolchain)
    skipped = set(options.skip)
    wanted = [index for index in range(options.first, options.last) if index not in skipped]
    for begin in range(0, len(wanted), options.batch):
        batch = []
        for index in wanted[begin : begin + options.batch]:
            say(index=index, begun="making")
            batch.append(candidate(options.seed, index, seeds))

        def attempt(it: Candidate) -> None:
            say(index=it.index, begun="compiling")
            prepared(it, engine)

        toolchain.make([lambda it=it: attempt(it) for it in batch])  # type: ignore[misc]
        for it in batch:
            say(index=it.index, begun="running")
            kind, text = outcome(it, engine)
            say(index=it.index, outcome=kind, text=text, seed=it.seed, form=it.form, done=it.done)


def save(it: Candidate, folder: Path) -> Path:
    """The mutant as files, to look at."""
    path = folder / f"mutant{it.index}.{it.form}"
    path.write_bytes(it.data)
    if it.form == "onnx":
        arrays = {str(number): array for number, array in enumerate(it.inputs)}
        np.savez(path.with_suffix(".npz"), **arrays)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--last", type=int, required=True)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--skip", type=int, nargs="*", default=[])
    parser.add_argument("--plain", action="store_true", help="without the sanitizer")
    parser.add_argument("--save", type=Path, help="only write the mutants to this folder")
    options = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    if options.save is not None:
        seeds = restore(options.seeds)
        for index in range(options.first, options.last):
            save(candidate(options.seed, index, seeds), options.save)
        return
    with options.log.open("a", encoding="utf-8") as log:
        work(options, log)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
