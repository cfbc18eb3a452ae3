"""Single kernels, compiled together and run one work item at a time, for tests of lowering and
rendering without a runtime.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.kernels.emulated_tiles import EMULATED_TILES
from whence.codegen.prelude import PRELUDE
from whence.codegen.render_c import render_kernel
from whence.codegen.toolchain import SourceUnit, Toolchain
from whence.codegen.vectors import VECTORS
from whence.graph import Graph, Node
from whence.kernels.group import Group
from whence.kernels.ir import Kernel
from whence.kernels.tile import Tile

Lower = Callable[[Group, Node, Tile], Kernel]

_CASES_PER_UNIT = 4


@dataclass(frozen=True, slots=True)
class NativeCase:
    """A graph that is one group, what to run it on, and how it is lowered."""

    name: str
    graph: Graph
    feeds: Mapping[str, np.ndarray]
    lower: Lower
    tile: Tile
    anchor: str

    def group(self) -> Group:
        graph = self.graph
        members = tuple(node for node in graph if node.op not in {"Input", "Const", "Output"})
        inputs = dict.fromkeys(
            ref
            for node in members
            for ref in node.inputs
            if ref is not None and graph[ref.node].op in {"Input", "Const"}
        )
        outputs = tuple(ref for node in graph.outputs for ref in node.inputs if ref is not None)
        return Group(graph, self.name, members, tuple(inputs), outputs)

    def kernel(self) -> Kernel:
        (anchor,) = (node for node in self.graph if node.op == self.anchor)
        return self.lower(self.group(), anchor, self.tile)


def run_native(cases: Sequence[NativeCase]) -> list[list[np.ndarray]]:
    """The outputs of each case. Work items run one by one, last first: none may depend on
    another.
    """
    kernels = [case.kernel() for case in cases]
    texts = [render_kernel(kernel, f"case{number}") for number, kernel in enumerate(kernels)]
    batches = [
        texts[start : start + _CASES_PER_UNIT] for start in range(0, len(texts), _CASES_PER_UNIT)
    ]
    units = [
        SourceUnit(f"cases{number}", PRELUDE + VECTORS + EMULATED_TILES + "\n".join(batch))
        for number, batch in enumerate(batches)
    ]
    library = ctypes.CDLL(str(Toolchain().build_library(units)))
    return [
        _run(getattr(library, f"case{number}"), case, kernel)
        for number, (case, kernel) in enumerate(zip(cases, kernels, strict=True))
    ]


def _run(function: Callable[..., None], case: NativeCase, kernel: Kernel) -> list[np.ndarray]:
    group = case.group()
    arrays = []
    for position, ref in enumerate(group.inputs):
        node = case.graph[ref.node]
        value = case.feeds[node.name] if node.value is None else node.value
        packed = kernel.packings[position](value) if position in kernel.packings else value
        assert packed.size == kernel.params[position].elements
        arrays.append(_guarded(packed))
    outputs = [
        _guarded(np.full(group.shape(ref), 77, group.dtype(ref).numpy)) for ref in group.outputs
    ]
    # What a kernel finds there is nothing it may build on: as floats, these bytes are no numbers.
    scratch = _guarded(np.full(max(kernel.scratch_bytes, 1), 0xFF, np.uint8))
    pointers = (ctypes.c_void_p * (len(arrays) + len(outputs)))(
        *(array.ctypes.data for array in (*arrays, *outputs))
    )
    for task in reversed(range(kernel.tasks)):
        function(
            pointers,
            ctypes.c_int64(task),
            ctypes.c_int64(task + 1),
            ctypes.c_void_p(scratch.ctypes.data),
        )
    return outputs


def _guarded(array: np.ndarray) -> np.ndarray:
    """A copy that ends where the process may not read or write: a kernel that goes beyond it does
    not get away with it.
    """
    page, align = mmap.PAGESIZE, max(4, array.dtype.itemsize)
    room = mmap.mmap(-1, (-(-array.nbytes // page) + 2) * page)
    end = len(room) - page
    if ctypes.CDLL(None).mprotect(
        ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(room)) + end),
        ctypes.c_size_t(page),
        0,
    ):
        raise OSError("mprotect")
    copy = (
        np.frombuffer(room, np.uint8, array.nbytes, (end - array.nbytes) // align * align)
        .view(array.dtype)
        .reshape(array.shape)
    )
    copy[...] = array
    return copy
