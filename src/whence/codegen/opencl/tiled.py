"""Sums of products tiled through local memory: the loop that matrix products and convolutions share
in OpenCL C.

A group of 8 × 8 work items makes a tile of results, each work item several neighbouring columns of
several rows. Step by step the group copies a few steps of both operands into local memory, where
every value is then read by eight work items.
"""

from __future__ import annotations

from collections.abc import Callable

from whence.codegen.opencl.render_cl import ClWriter, Geometry
from whence.types import DType

_DEPTH = 16
_ITEMS = 8
_PAD = 4
"""Between rows of a tile, so that they do not lie in the same banks of local memory; a multiple of
a vector.
"""


def write_tiled(
    writer: ClWriter,
    rows: int,
    columns: int,
    depth: int,
    batch: int,
    load_a: Callable[[], None],
    load_b: Callable[[], None],
    store: Callable[[], None],
) -> None:
    """The whole kernel.

    `load_a` writes code that sets `value` to the left operand at (`m`, `k`), inside both extents;
    `load_b` to the right one at (`k`, `n`).
    `store` writes code that uses the sum `acc` of (`m`, `n`). All of them see `group`, the number
    in the batch.
    """
    line, counter = writer.line, writer.counter
    tall, wide = _each(rows), _each(columns)
    height, width = tall * _ITEMS, wide * _ITEMS
    writer.geometry = Geometry(
        (-(-columns // width) * _ITEMS, -(-rows // height) * _ITEMS, batch), (_ITEMS, _ITEMS, 1)
    )
    writer.local("left", DType.F32, _DEPTH, height + _PAD)
    writer.local("right", DType.F32, _DEPTH, width + _PAD)
    line(f"const {counter} group = get_group_id(2);")
    line(f"const {counter} n0 = get_group_id(0) * {width}, m0 = get_group_id(1) * {height};")
    line(f"const int lx = get_local_id(0), ly = get_local_id(1), item = ly * {_ITEMS} + lx;")
    vector = f"float{wide}"
    line(f"{vector} sum[{tall}];")
    line(f"for (int i = 0; i < {tall}; i++) sum[i] = ({vector})(0.0f);")
    writer.open(f"for ({counter} k0 = 0; k0 < {depth}; k0 += {_DEPTH})")
    for name, first, load, inside, extent in (
        ("left", "m", load_a, rows, height),
        ("right", "n", load_b, columns, width),
    ):
        writer.open(f"for (int e = item; e < {extent * _DEPTH}; e += {_ITEMS * _ITEMS})")
        # Rows of the left operand lie along its depth, those of the right one along its columns:
        # neighbours read neighbours.
        place, step = (
            (f"e / {_DEPTH}", f"e % {_DEPTH}")
            if name == "left"
            else (f"e % {extent}", f"e / {extent}")
        )
        line(f"const {counter} {first} = {first}0 + {place}, k = k0 + {step};")
        line("float value = 0.0f;")
        writer.open(f"if ({first} < {inside} && k < {depth})")
        load()
        writer.close()
        line(f"{name}[{step}][{place}] = value;")
        writer.close()
    line("barrier(CLK_LOCAL_MEM_FENCE);")
    writer.open(f"for (int k = 0; k < {_DEPTH}; k++)")
    line(f"const {vector} b = vload{wide}(lx, right[k]);")
    for i in range(tall):
        line(f"sum[{i}] += left[k][ly * {tall} + {i}] * b;")
    writer.close()
    line("barrier(CLK_LOCAL_MEM_FENCE);")
    writer.close()
    line(f"float made[{tall}][{wide}];")
    line(f"for (int i = 0; i < {tall}; i++) vstore{wide}(sum[i], 0, made[i]);")
    writer.open(f"for (int i = 0; i < {tall}; i++) for (int j = 0; j < {wide}; j++)")
    line(f"const {counter} m = m0 + ly * {tall} + i, n = n0 + lx * {wide} + j;")
    writer.open(f"if (m < {rows} && n < {columns})")
    line("const float acc = made[i][j];")
    store()
    writer.close()
    writer.close()


def _each(extent: int) -> int:
    """How many rows or columns a work item makes: as many as there are for it, eight at most."""
    return next((each for each in (2, 4) if extent <= each * _ITEMS), 8)
