"""Debug databases to test with: small ones by hand, hostile ones by hypothesis."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from whence.debugdb import DebugDatabase, Extra
from whence.debugdb.rows import Column, Kind
from whence.debugdb.tables import RESERVED, TABLES

DATA = Path(__file__).parent / "data"

NASTY = (
    "]]>", "]]", ">", "<![CDATA[", "&", "&amp;", "&#0;", "<", '"', '""', "'", ",", "\n", "\r", "\r\n", "\t", "\0", "\x01", "\x1b[31m", "\x7f", "\x85",
    "\u2028", "\ufeff", "\ufffe", "\uffff", "\ud800", "\udcff", "\ud83d\ude00", "😀", "_x0041_", "_x000", "_", "x0041_", "_x005F_",
    "%s", "?", "--", "é", " ",
    "\\", "12", "-1", "NULL", "'; DROP TABLE source; --",
)  # fmt: skip

texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=12),
    st.lists(st.sampled_from(NASTY), max_size=5).map("".join),
)
_INTEGERS = st.integers(-(2**63), 2**63 - 1)
_REALS = st.floats(allow_nan=False, allow_infinity=False)


def _cells(column: Column) -> st.SearchStrategy[object]:
    cells: st.SearchStrategy[object] = {Kind.INT: _INTEGERS, Kind.REAL: _REALS, Kind.TEXT: texts}[
        column.kind
    ]
    return cells if column.required or column.default is not None else st.one_of(st.none(), cells)


@st.composite
def _extras(draw: st.DrawFn) -> list[Extra]:
    names = draw(st.lists(texts.filter(lambda name: name not in RESERVED), max_size=3, unique=True))
    found = []
    for name in names:
        columns = draw(st.lists(texts, min_size=1, max_size=3, unique=True))
        rows = draw(st.lists(st.tuples(*(texts for _ in columns)), max_size=3))
        found.append(Extra(name, tuple(columns), tuple(rows)))
    return found


@st.composite
def databases(draw: st.DrawFn) -> DebugDatabase:
    """A database with anything in any cell, name or path."""
    db = DebugDatabase(draw(texts), draw(texts), extras=draw(_extras()))
    for table in draw(
        st.lists(st.sampled_from(TABLES), unique_by=lambda table: table.name, max_size=4)
    ):
        db.add(
            table,
            draw(st.lists(st.tuples(*(_cells(column) for column in table.columns)), max_size=3)),
        )
    return db


def document(
    *tables: str, root: str = '<debug source="in.tflite" optimised="out.tflite">'
) -> bytes:
    return "\n".join(
        ["<?xml version='1.0' encoding='UTF-8'?>", root, *tables, "</debug>", ""]
    ).encode()


def table(name: str, *lines: str) -> str:
    """As the legacy core writes it."""
    return (
        f"  <table name='{name}'><![CDATA["
        + "".join(f"{line}\r\n" for line in lines)
        + "]]></table>"
    )


SOURCE = table(
    "source",
    '"id","operator","kernel_w","kernel_h","ofm_w","ofm_h","ofm_d","ext_key"',
    '0,"Conv2DBias",3,3,32,32,16,0',
    '1,"Relu",1,1,32,32,16,1',
)
OPTIMISED = table(
    "optimised",
    '"id","source_id","operator","kernel_w","kernel_h","ofm_w","ofm_h","ofm_d"',
    '0,0,"Conv2DBias",3,3,32,32,16',
    '1,-1,"Memcpy",1,1,8,8,4',
)
QUEUE = table("queue", '"offset","cmdstream_id","optimised_id"', "328,0,0")
CMDSTREAM = table("cmdstream", '"id","file_offset"', "0,5136")

REGOR = document(
    "<table"
    ' name="queue">\n<![CDATA[\n"offset","cmdstream_id","optimised_id","scheduled_id"\n328,1,3,108\n456,1,0,109\n]]>\n</table>',
    "<table"
    ' name="perf">\n<![CDATA[\n"id","source_id","optimised_id","operator","name","op_cycles"\n'
    '108,1,3,"Conv2D","conv1/Relu",14752\n]]>\n</table>',
    "<table"
    ' name="perf_debug_conn">\n<![CDATA[\n"id","input_op_id","input_index"\n108,"-1",0\n"-2",108,""\n]]>\n</table>',
    '<table name="cmdstream">\n<![CDATA[\n"id"\n1\n]]>\n</table>',
    "<table"
    ' name="optimised">\n<![CDATA[\n"id","source_id","operator","kernel_w","kernel_h","ofm_w","ofm_h","ofm_d"\n1,1,"Conv2D",3,3,32,32,16\n'
    '2,0,"MemoryCopy",1,1,8,8,4\n3,1,"Conv2D",3,3,32,32,16\n]]>\n</table>',
    "<table"
    ' name="source">\n<![CDATA[\n"id","operator","kernel_w","kernel_h","ofm_w","ofm_h","ofm_d","ext_key"\n'
    '1,"Conv2D",1,1,"","","",0\n]]>\n</table>',
    '<table name="group">\n<![CDATA[\n"id","group_id"\n113,108\n]]>\n</table>',
    root='<debug source="out/tiny">',
)
