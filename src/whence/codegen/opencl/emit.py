"""Kernels as one OpenCL program. Kernels with the same body are one function, which names every
layer it serves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from whence.codegen.emit import served_comment, text_digest
from whence.codegen.functions import KernelFunction
from whence.codegen.opencl.prelude import prelude
from whence.codegen.opencl.render_cl import NAME, Device, Launch, render_opencl
from whence.errors import UnsupportedError
from whence.kernels.ir import Kernel
from whence.kernels.tile import Tile

TILE = Tile(rows=8, vectors=2, lanes=16, cache_bytes=1 << 18, transforms=False)
"""How constants are packed. The division into work items is the device programs' own."""


@dataclass(frozen=True, slots=True)
class EmittedOpenCl:
    """OpenCL C for a list of kernels."""

    launches: tuple[Launch | None, ...]
    """Of each kernel, in order; `None` for one that was refused."""
    functions: tuple[KernelFunction, ...]
    source: str
    """Of the whole program."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """By position: why a kernel has no form in OpenCL C."""


def emit_opencl(
    kernels: Sequence[Kernel], origins: Sequence[Sequence[str]], device: Device
) -> EmittedOpenCl:
    """The kernels as one program. `origins` names, for each, the source operators it came from, for
    the comment it opens with.
    """
    launches: list[Launch | None] = []
    refused: dict[int, str] = {}
    symbols: dict[str, str] = {}
    served: dict[str, list[str]] = {}
    for number, (kernel, names) in enumerate(zip(kernels, origins, strict=True)):
        try:
            text, launch = render_opencl(kernel, device)
        except UnsupportedError as error:
            refused[number] = str(error)
            launches.append(None)
            continue
        # The kernel is named after operators, whose names the model may have made up.
        stem = re.sub(r"[^A-Za-z0-9_]+", "_", kernel.name)[:100]
        symbol = symbols.setdefault(text, f"{stem}_{text_digest(text)}")
        served.setdefault(symbol, []).append(" + ".join(names))
        launches.append(replace(launch, symbol=symbol))
    functions = tuple(
        KernelFunction(symbol, served_comment(served[symbol]) + text.replace(NAME, symbol))
        for text, symbol in symbols.items()
    )
    source = "\n".join(
        [prelude(doubles=device.doubles), *(function.text for function in functions)]
    )
    return EmittedOpenCl(tuple(launches), functions, source, refused)
