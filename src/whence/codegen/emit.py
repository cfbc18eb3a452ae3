"""Kernels as compilable units. Kernels with the same body are one function, which names every layer
it serves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from whence.codegen.c_text import c_comment
from whence.codegen.functions import KernelFunction
from whence.codegen.prelude import PRELUDE
from whence.codegen.render_c import render_call, render_kernel
from whence.codegen.toolchain import SourceUnit
from whence.codegen.vectors import VECTORS
from whence.errors import UnsupportedError
from whence.kernels.ir import Kernel
from whence.kernels.loops.look_up import with_look_up_loops
from whence.kernels.size_arguments import with_size_arguments

# Enough kernels in a unit to make starting a compiler worth it, few enough to keep all cores busy
# to the end.
_LINES_PER_UNIT = 1200
_NAME = "@name@"
_HEADER = "whence_kernels.h"


class KernelUnit(SourceUnit):
    """A unit that says which functions it holds, so that units of several models can be packed
    anew.
    """

    __slots__ = ()


NO_KERNELS = KernelUnit("", "", ((_HEADER, PRELUDE + VECTORS),), opening=f'#include "{_HEADER}"\n')
"""What all units begin as."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """C for a list of kernels: the symbol of each, in order, and the units that define them."""

    symbols: tuple[str, ...]
    """Empty for a kernel that was refused."""
    units: tuple[KernelUnit, ...]
    refused: Mapping[int, str] = field(default_factory=dict)
    """By position: why a kernel has no form in C."""


def emit(
    kernels: Sequence[Kernel],
    origins: Sequence[Sequence[str]],
    written: Callable[[KernelFunction], None] | None = None,
) -> Emitted:
    """The kernels as C. `origins` names, for each, the source operators it came from, for the
    comment it opens with. `written` is told of each function, without that comment, as soon as it
    is there.
    """
    found: list[str] = []
    refused: dict[int, str] = {}
    bodies: dict[KernelFunction, str] = {}
    served: dict[str, list[str]] = {}
    called: set[str] = set()
    # Layers that repeat are written once; whom a kernel is for is not part of its text.
    texts: dict[Kernel, KernelFunction] = {}
    for number, (kernel, names) in enumerate(zip(kernels, origins, strict=True)):
        plain = replace(kernel, name="", members=(), packings={})
        try:
            if plain not in texts:
                texts[plain] = _written(plain)
            body = texts[plain]
        except UnsupportedError as error:
            refused[number] = str(error)
            found.append("")
            continue
        # The kernel is named after operators, whose names the model may have made up; which of
        # several in the model it is makes no difference to the code.
        stem = re.sub(r"_\d+$", "", re.sub(r"[^A-Za-z0-9_]+", "_", kernel.name)[:100])
        symbol = bodies.get(body, "")
        if not symbol:
            symbol = bodies[body] = f"{stem}_{text_digest(body.text)}"
            if written is not None:
                for each in body.calls:
                    if each.symbol not in called:
                        written(each)
                written(KernelFunction(symbol, body.text.replace(_NAME, symbol), body.calls))
            called.update(each.symbol for each in body.calls)
        served.setdefault(symbol, []).append(" + ".join(names))
        found.append(symbol)
    functions = [
        KernelFunction(
            symbol, served_comment(served[symbol]) + body.text.replace(_NAME, symbol), body.calls
        )
        for body, symbol in bodies.items()
    ]
    return Emitted(tuple(found), pack(functions), refused)


def _written(kernel: Kernel) -> KernelFunction:
    """A kernel in C, under `_NAME`."""
    shared = with_size_arguments(kernel)
    if shared is None:
        return KernelFunction(_NAME, render_kernel(with_look_up_loops(kernel), _NAME))
    common, sizes = shared
    body = render_kernel(common, _NAME, sizes_are_given=True)
    symbol = f"shared_{text_digest(body)}"
    function = KernelFunction(symbol, body.replace(_NAME, symbol))
    return KernelFunction(_NAME, render_call(_NAME, symbol, sizes), (function,))


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def served_comment(layers: Sequence[str]) -> str:
    """Names the layers that a function serves, a few of them."""
    shown = [*layers[:8], *([f"... and {len(layers) - 8} more"] if len(layers) > 8 else [])]
    return "".join(f"/* {c_comment(layer)} */\n" for layer in shown)


def pack(functions: Iterable[KernelFunction]) -> tuple[KernelUnit, ...]:
    """The functions, and those that they call, in units of a size that compiles well. A symbol
    that comes twice is taken once.
    """
    batches: list[list[KernelFunction]] = []
    lines = 0
    wanted = {part.symbol: part for each in functions for part in (*each.calls, each)}
    for function in wanted.values():
        count = function.text.count("\n")
        if not batches or lines + count > _LINES_PER_UNIT:
            batches.append([])
            lines = 0
        batches[-1].append(function)
        lines += count
    return tuple(
        NO_KERNELS.with_functions(f"kernels{number}", batch) for number, batch in enumerate(batches)
    )


def source_files(units: Sequence[SourceUnit]) -> Mapping[str, str]:
    """The C files of a compiled model, headers included, by name."""
    headers = {name: text for unit in units for name, text in unit.headers}
    return {**headers, **{f"{unit.name}.c": unit.source for unit in units}}
