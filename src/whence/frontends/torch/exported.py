"""Programs of `torch.export`: traced, decomposed and ready to be read."""

from __future__ import annotations

import importlib
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whence.errors import InputError, ModelError, UnsupportedError
from whence.frontends.naming import quoted
from whence.frontends.torch.operators import MAPPINGS, operator_key
from whence.frontends.torch.reader import (
    InputKind,
    TracedInput,
    TracedOutput,
    TracedProgram,
    read_program,
)
from whence.frontends.torch.sources import find_sources
from whence.frontends.torch.tensors import array_of
from whence.graph.graph import Graph


def export_module(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Any:
    """`torch.export` of a module, for inference."""
    torch = _torch("compiling a module")
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, Sequence):
        raise InputError(
            "a module is compiled with a tuple of example inputs:"
            f" whence.compile(module, (x,)), not {type(args).__name__}"
        )
    if module.training:
        raise InputError(
            "the module is in training mode, and whence runs inference: call module.eval() first"
        )
    try:
        with torch.no_grad(), _quiet():
            return torch.export.export(
                module, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes
            )
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        raise UnsupportedError(
            f"torch.export cannot trace {type(module).__name__}: {text}; torch.compile(module,"
            " backend='whence') runs modules with such code in parts"
        ) from error


def load_exported(path: str | Path) -> Any:
    """A program that `torch.export.save` wrote."""
    torch = _torch(f"reading {quoted(str(path))}")
    if not zipfile.is_zipfile(path):
        raise ModelError(
            f"{quoted(str(path))} is no program of torch.export: those are made with"
            " torch.export.save(torch.export.export(module, args), path)"
        )
    try:
        return torch.export.load(path)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise ModelError(f"PyTorch cannot read {quoted(str(path))}: {text}") from error


def read_exported(
    program: Any, *, name: str = "", dimensions: Mapping[str, str] | None = None
) -> Graph:
    """The graph of an exported program. `dimensions` says what the user calls the symbols in its
    shapes.
    """
    with _quiet():
        lowered = program.run_decompositions(decompositions())
    return read_program(
        TracedProgram(
            name or "torch.export",
            lowered.graph,
            find_sources(program.graph, lowered.graph),
            tuple(_inputs(lowered)),
            tuple(_outputs(lowered)),
            dict(dimensions or {}),
        )
    )


def decompositions() -> Any:
    """What PyTorch takes apart: everything it can that whence has no operator for."""
    from torch.export import default_decompositions

    table = default_decompositions()
    for target in list(table):
        if operator_key(target) in MAPPINGS:
            del table[target]
    return table


@contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch warns of its own use of what it has deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        # Recurrent layers keep their weights in a list as well, which they mend while they run.
        warnings.filterwarnings(
            "ignore", message=r".*_flat_weights(.|\n)* were assigned during export"
        )
        yield


def _inputs(program: Any) -> list[TracedInput]:
    found: list[TracedInput] = []
    assigned = set(program.graph_signature.buffers_to_mutate.values())
    constants = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            if type(spec.arg).__name__ == "ConstantArgument":
                found.append(TracedInput(InputKind.FIXED, spec.arg.name, spec.arg.value))
            else:
                found.append(TracedInput(InputKind.GIVEN, spec.arg.name))
        elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            state = kind == "BUFFER" and spec.target in assigned
            value = array_of(constants[spec.target])
            chosen = InputKind.STATE if state else InputKind.CONSTANT
            found.append(TracedInput(chosen, spec.target, value))
        elif kind == "TOKEN":
            # Orders effects, of which the operator that has one is refused by itself.
            found.append(TracedInput(InputKind.FIXED, spec.arg.name))
        else:
            raise UnsupportedError(f"the program has an input of kind {kind.lower()}")
    return found


def _outputs(program: Any) -> list[TracedOutput]:
    found: list[TracedOutput] = []
    for spec in program.graph_signature.output_specs:
        kind = spec.kind.name
        if kind == "USER_OUTPUT":
            found.append(TracedOutput(getattr(spec.arg, "name", "") or f"output_{len(found)}"))
        elif kind == "TOKEN":
            found.append(TracedOutput(""))
        elif kind == "BUFFER_MUTATION":
            found.append(TracedOutput(spec.arg.name, spec.target))
        else:
            raise UnsupportedError(
                f"the program writes to its argument {quoted(str(spec.target))}; whence leaves"
                " what it is given as it is: return the new value instead"
            )
    return found


def dimension_names(program: Any, dynamic_shapes: Any) -> dict[str, str]:
    """By symbol in the program's shapes: the name of the `torch.export.Dim` that was given for
    it.
    """
    metas = [
        node.meta["val"]
        for node, spec in zip(
            (each for each in program.graph.nodes if each.op == "placeholder"),
            program.graph_signature.input_specs,
            strict=True,
        )
        if spec.kind.name == "USER_INPUT"
    ]
    tensors = [meta for meta in metas if hasattr(meta, "shape")]
    found: dict[str, str] = {}
    for meta, spec in zip(tensors, _dimensions(dynamic_shapes), strict=False):
        for axis, dim in spec.items():
            name = getattr(dim, "__name__", "")
            symbol = str(meta.shape[axis]) if axis < len(meta.shape) else ""
            if name and not symbol.isdigit() and not hasattr(dim, "root"):
                found.setdefault(symbol, name)
    return found


def _dimensions(given: Any) -> Iterator[Mapping[int, Any]]:
    """What is said of each tensor, in the order of the arguments: a dictionary by axis, or a list
    with an entry for each.
    """
    if isinstance(given, Mapping) and all(isinstance(key, int) for key in given):
        yield given
    elif isinstance(given, Mapping):
        for each in given.values():
            yield from _dimensions(each)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        leaves = [
            each is None or isinstance(each, int) or hasattr(each, "__name__") for each in given
        ]
        if given and all(leaves) and any(hasattr(each, "__name__") for each in given):
            yield dict(enumerate(given))
        else:
            for each in given:
                yield from _dimensions(each)
    elif given is None:
        yield {}


def _torch(what_for: str) -> Any:
    """The `torch` package; a word on how to install it where it is missing."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UnsupportedError(
            f"{what_for} needs PyTorch, which is not installed ({error}): pip install"
            " 'whence[torch]'"
        ) from None
