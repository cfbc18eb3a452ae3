"""The debug database as XML: CSV tables in CDATA, the form that Arm Vela's users parse.

Written as Vela's legacy core writes it since 4.5, to the byte: the tables source, optimised, queue
and cmdstream, each on a line of its own, text quoted, CRLF between rows. whence's own tables follow
when they hold rows, then tables of other writers; readers that look tables up by name pass over
them. Where Vela would write a broken file we do not: attributes are escaped, `]]>` in a cell is
split over two CDATA sections, and characters that XML cannot hold are written as in `escaping`. The
last table, `whence_format`, says that this is so; a file that needs none of it does not have one.

Read are both of Vela's forms: this one, and that of the Regor core, whose ids count from 1 with 0
for none (here -1, as in the legacy form). Files are taken for hostile: no document type, no
entities, sizes bounded. What is merely odd is read and noted (`lenient`).
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from whence.debugdb.csv_text import is_integer, read_csv, write_csv
from whence.debugdb.escaping import escape, unescape
from whence.debugdb.lenient import TableReader
from whence.debugdb.tables import OWN_TABLES, VELA_TABLES, DebugDatabase
from whence.errors import ModelError

FORMAT = "whence_format"
VERSION = "1"
MOST_BYTES = 1 << 29
_MOST_TABLES = 1000
_DEEPEST = 16
_CHUNK = 1 << 20
_ATTRIBUTE_SPACE = {"\n": "&#10;", "\t": "&#9;"}


def write_xml(db: DebugDatabase, path: Path) -> None:
    """Write the database to a file."""
    path.write_bytes(xml_text(db).encode("utf-8"))


def xml_text(db: DebugDatabase) -> str:
    """The whole file."""
    writer = _Writer()
    for table in VELA_TABLES:
        writer.table(table.name, table.header, db.rows(table))
    for table in OWN_TABLES:
        if db.rows(table):
            writer.own = True
            writer.table(table.name, table.header, db.rows(table))
    for extra in db.extras:
        writer.table(
            extra.name,
            extra.columns,
            [[int(cell) if is_integer(cell) else cell for cell in row] for row in extra.rows],
        )
    source, optimised = writer.attribute(db.source_path), writer.attribute(db.optimised_path)
    if writer.own:
        writer.table(FORMAT, ("key", "value"), [("version", VERSION)])
    return (
        f"<?xml version='1.0' encoding='UTF-8'?>\n<debug source={source}"
        f" optimised={optimised}>\n{''.join(writer.parts)}</debug>\n"
    )


class _Writer:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.own = False
        """Is there anything in the file that needs the format's table?"""

    def table(self, name: str, header: tuple[str, ...], rows: object) -> None:
        assert isinstance(rows, list)
        body = write_csv(
            [self.text(column) for column in header],
            ([self.text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows),
        )
        self.parts.append(
            "  <table"
            f" name={self.attribute(name, single=True)}><![CDATA[{body.replace(']]>', ']]]]><![CDATA[>')}]]></table>\n"
        )

    def attribute(self, value: str, *, single: bool = False) -> str:
        """The value in quotes: double ones as in Vela's root, or single ones as in its tables."""
        quoted = quoteattr(self.text(value), {**_ATTRIBUTE_SPACE, '"': "&quot;", "'": "&apos;"})
        return f"'{quoted[1:-1]}'" if single else quoted

    def text(self, value: str) -> str:
        escaped = escape(value)
        self.own |= escaped != value
        return escaped


def read_xml(path: Path) -> DebugDatabase:
    """Read a debug database of either form; raises a `ModelError` of one line if it is none."""
    try:
        if not path.is_file():
            raise ModelError(f"'{path}': no such file")
        if path.stat().st_size > MOST_BYTES:
            raise ModelError(
                f"'{path}' is larger than {MOST_BYTES >> 20} MB, which no debug database is"
            )
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror or error}") from error
    return parse_xml(data, str(path))


def parse_xml(data: bytes, name: str = "debug.xml") -> DebugDatabase:
    """As `read_xml`, from the bytes of a file that errors call `name`."""
    notes: list[str] = []
    try:
        found = _Document(name).parse(data)
    except expat.ExpatError as error:
        repaired = _repaired(data)
        if repaired is None:
            raise _malformed(name, error) from error
        notes.append(
            "a file name in the first line is not escaped, as Vela writes it; it was read as it"
            " stands"
        )
        try:
            found = _Document(name).parse(repaired)
        except expat.ExpatError:
            raise _malformed(name, error) from error
    return _database(found, notes, name)


def _malformed(name: str, error: expat.ExpatError) -> ModelError:
    return ModelError(
        f"'{name}' is not well-formed XML: {expat.ErrorString(error.code)}, line {error.lineno}"
    )


def _database(found: _Document, notes: list[str], name: str) -> DebugDatabase:
    tables = [(title, list(read_csv(text))) for title, text in found.tables]
    ours = [content for title, content in tables if title == FORMAT]
    if ours and [["key", "value"], ["version", VERSION]] not in ours:
        raise ModelError(
            f"'{name}' was written in a format that this whence does not know; a newer one may"
            " read it"
        )
    decode = unescape if ours else str
    attributes = dict(found.attributes)
    db = DebugDatabase(
        decode(attributes.pop("source", "")),
        decode(attributes.pop("optimised", "")),
        notes=[*notes, *found.notes],
    )
    if attributes:
        db.notes.append(
            "attributes of <debug> that are not known:"
            f" {', '.join(f'{key}={value!r}' for key, value in attributes.items())}"
        )
    reader = TableReader(db)
    for title, content in tables:
        if title != FORMAT:
            header, *rows = [[decode(cell) for cell in row] for row in content] or [[]]
            reader.add(decode(title), header, rows)
    reader.finish(regor="optimised" not in found.attributes and not ours)
    return db


_ROOT = re.compile(rb'<debug source="(?P<source>.*?)"(?: optimised="(?P<optimised>.*)")?>\r?\n')


def _repaired(data: bytes) -> bytes | None:
    """The file with its root's attributes escaped, as Vela since 4.5 fails to; else `None`."""
    root = _ROOT.search(data, 0, 1 << 16)
    if root is None:
        return None
    parts = [
        f"{key}={quoteattr(value.decode('utf-8', 'replace'), {chr(34): '&quot;'})}"
        for key, value in root.groupdict().items()
        if value is not None
    ]
    head = f"<debug {' '.join(parts)}>\n".encode()
    if head.strip() == root[0].strip():
        return None
    return data[: root.start()] + head + data[root.end() :]


class _Document:
    """What the file holds: attributes of the root, and the text of each table."""

    def __init__(self, name: str) -> None:
        self.attributes: dict[str, str] = {}
        self.tables: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self._name = name
        self._path: list[str] = []
        self._title: str | None = None
        self._text: list[str] = []
        self._strange: Counter[str] = Counter()

    def parse(self, data: bytes) -> _Document:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            for start in range(0, len(data), _CHUNK):
                parser.Parse(data[start : start + _CHUNK], False)
            parser.Parse(b"", True)
        except (LookupError, ValueError) as error:
            # expat asks Python for encodings that it does not have itself.
            raise ModelError(f"'{self._name}' is not well-formed XML: {error}") from error
        self.notes += [
            f"{what} that no debug database has: passed over {count} times"
            for what, count in self._strange.items()
        ]
        return self

    def _refuse(self, *_: object) -> None:
        raise ModelError(
            f"'{self._name}' has a document type declaration, which no debug database needs and"
            " which may be an attack"
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._path and tag != "debug":
            raise ModelError(
                f"'{self._name}' is not a debug database: its root is <{tag[:40]!s}>, not <debug>"
            )
        if len(self._path) >= _DEEPEST:
            raise ModelError(
                f"'{self._name}' is not a debug database: elements are nested {_DEEPEST} deep"
            )
        self._path.append(tag)
        if len(self._path) == 1:
            self.attributes = attributes
        elif len(self._path) == 2 and tag == "table":
            if len(self.tables) >= _MOST_TABLES:
                raise ModelError(f"'{self._name}' has more than {_MOST_TABLES} tables")
            if "name" not in attributes:
                self._strange["a table without a name"] += 1
            self._title, self._text = attributes.get("name", "unnamed"), []
        else:
            self._strange["an element"] += 1

    def _end(self, tag: str) -> None:
        self._path.pop()
        if len(self._path) == 1 and self._title is not None:
            self.tables.append((self._title, "".join(self._text)))
            self._title = None

    def _characters(self, text: str) -> None:
        if len(self._path) == 2 and self._title is not None:
            self._text.append(text)
        elif text.strip():
            self._strange["text outside of a table"] += 1
