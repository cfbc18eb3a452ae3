"""The debug database: tables of what a compilation did, as Vela's XML, DuckDB and Parquet. The last
two are in `store` and `locate`.
"""

from whence.debugdb.from_program import from_program, sample_rows
from whence.debugdb.tables import DebugDatabase, Extra
from whence.debugdb.vela_xml import parse_xml, read_xml, write_xml, xml_text

__all__ = [
    "DebugDatabase",
    "Extra",
    "from_program",
    "parse_xml",
    "read_xml",
    "sample_rows",
    "write_xml",
    "xml_text",
]
