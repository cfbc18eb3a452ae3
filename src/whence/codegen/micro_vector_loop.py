"""Loops that look bytes up in tables, in C: several iterations at a time as vectors, the rest one
by one.

A compiler sees in such a loop only one load after another. Other loops it makes vectors of by
itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whence.codegen.c_text import c_index
from whence.codegen.render_c import CWriter
from whence.codegen.typed_vectors import TypedVectors, vector_type
from whence.kernels.index import Looked
from whence.kernels.ir import TASK, Kernel, Load, Loop, LoopKind, Micro, Stmt, Store, walk
from whence.types import DType

# Entries of a table with one for each byte, and iterations at a time; machines with shorter vectors
# take several.
_CODES = 256
_LANES = 16


@dataclass(frozen=True, slots=True)
class VectorLoop(Micro):
    """A loop over stores that is to be written as vectors, if it can."""

    loop: Loop
    stores: tuple[Store, ...]


def with_vector_loops(kernel: Kernel) -> Kernel:
    """The kernel with its innermost loops marked where they look something up."""
    return replace(kernel, body=tuple(_marked(stmt) for stmt in kernel.body))


def _marked(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Loop):
        return stmt
    stores = tuple(each for each in stmt.body if isinstance(each, Store))
    if (
        stmt.kind is LoopKind.VECTOR
        and len(stores) == len(stmt.body)
        and any(_looks_up(store) for store in stores)
    ):
        return VectorLoop(stmt, stores)
    return replace(stmt, body=tuple(_marked(each) for each in stmt.body))


def _looks_up(store: Store) -> bool:
    tables = (
        part.index.terms
        for part in walk(store.value)
        if isinstance(part, Load) and part.dtype in (DType.I8, DType.U8)
    )
    return any(
        isinstance(atom, Looked) and atom.extent == _CODES for terms in tables for atom, _ in terms
    )


def write_vector_loop(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, VectorLoop)
    loop, stores, line = micro.loop, micro.stores, writer.line
    var = loop.var
    vectors = TypedVectors(writer, var, _LANES, {})
    in_order = all(
        vectors.spread(store.index) and store.value.dtype is writer.dtype_of(store.buffer)
        for store in stores
    )
    if not in_order or not vectors.can_write(*(store.value for store in stores)):
        writer.statement(loop)
        return
    writer.open("")
    low, high = "0", str(var.extent)
    if var.name == TASK:
        first = f" - {loop.first}" if loop.first else ""
        low, high = (
            f"begin{first} > 0 ? begin{first} : 0",
            f"end{first} < {var.extent} ? end{first} : {var.extent}",
        )
    line(f"int64_t at = {low};")
    line(f"const int64_t stop = {high};")
    vectors.load_ahead([store.value for store in stores], var.name)
    writer.open(f"for (; at + {_LANES} <= stop; at += {_LANES})")
    line(f"const int64_t {var.name} = at;")
    texts = [vectors.write(store.value) for store in stores]
    for store, text in zip(stores, texts, strict=True):
        line(
            f"*({vector_type(store.value.dtype, _LANES)} *)({store.buffer} +"
            f" {c_index(store.index)}) = {text};"
        )
    writer.close()
    writer.open("for (; at < stop; at++)")
    line(f"const int64_t {var.name} = at;")
    writer.statements(stores)
    writer.close()
    writer.close()
