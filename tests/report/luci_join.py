"""Times of a profile on the operators of a Circle file, by luci-profile's ids: what a tool of
somebody else would do.

    python luci_join.py MODEL.circle FOLDER CONVERTED.circle

It knows the two formats, the Circle schema with luci's tables and the debug database, and nothing
of whence. It prints, as JSON, a row for each source operator in the model's source table.
"""

from __future__ import annotations

import json
import struct
import sys
from csv import DictReader
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
from circle_schema.v0_10 import circle


def operators_and_tables(path: str) -> tuple[list[str], dict[int, str], dict[int, list[int]]]:
    """The types of the operators of subgraph 0, the source table, and the op table."""
    model = circle.Model.Model.GetRootAs(Path(path).read_bytes(), 0)
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    numbers = {
        number: name
        for name, number in vars(circle.BuiltinOperator.BuiltinOperator).items()
        if isinstance(number, int)
    }
    graph = model.Subgraphs(0)
    types = [
        numbers[codes[graph.Operators(index).OpcodeIndex()].BuiltinCode()]
        for index in range(graph.OperatorsLength())
    ]
    metadata = {
        model.Metadata(index).Name().decode(): bytes(
            model.Buffers(model.Metadata(index).Buffer()).DataAsNumpy()
        )
        for index in range(model.MetadataLength())
    }
    sources = {
        key: payload[:-1].decode() for key, payload in entries(metadata["ONE_source_table"], 1)
    }
    ops = {
        key: list(struct.unpack(f"<{len(payload) // 4}I", payload))
        for key, payload in entries(metadata["ONE_op_table"], 4)
    }
    return types, sources, ops


def entries(data: bytes, unit: int) -> list[tuple[int, bytes]]:
    (count,) = struct.unpack_from("<I", data)
    found, offset = [], 4
    for _ in range(count):
        key, length = struct.unpack_from("<II", data, offset)
        found.append((key, data[offset + 8 : offset + 8 + length * unit]))
        offset += 8 + length * unit
    return found


def from_duckdb(path: Path) -> list[dict[str, Any]]:
    """By source operator: the tables' id, type, fate, places in the file, and its time."""
    with duckdb.connect(str(path), read_only=True) as connection:
        answer = connection.execute(
            """SELECT f.table_id, o.name, s.operator, o.fate, s.ext_key,
                   (SELECT list(position ORDER BY position) FROM file_operator p
                    WHERE p.source_id = s.id AND p.position IS NOT NULL) AS positions,
                   coalesce((SELECT sum(time_ns) FROM attributed a WHERE a.source_id = s.id), 0)
                       ::BIGINT AS time_ns
               FROM source s JOIN operator o ON o.source_id = s.id
               JOIN (SELECT DISTINCT source_id, table_id FROM file_operator) f
                   ON f.source_id = s.id
               ORDER BY f.table_id"""
        )
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def from_xml(path: Path) -> list[dict[str, Any]]:
    tables = {
        table.get("name"): list(DictReader((table.text or "").strip().splitlines()))
        for table in ElementTree.parse(path).getroot().iter("table")
    }
    found = []
    for row in tables["source"]:
        places = [each for each in tables["file_operator"] if each["source_id"] == row["id"]]
        (operator,) = [each for each in tables["operator"] if each["source_id"] == row["id"]]
        times = [each for each in tables["attributed"] if each["source_id"] == row["id"]]
        found.append(
            {
                "table_id": int(places[0]["table_id"]),
                "name": operator["name"],
                "operator": row["operator"],
                "fate": operator["fate"],
                "ext_key": int(row["ext_key"]) if row["ext_key"] else None,
                "positions": sorted(int(each["position"]) for each in places if each["position"])
                or None,
                "time_ns": sum(int(each["time_ns"]) for each in times),
            }
        )
    return sorted(found, key=lambda row: row["table_id"])


def main(model: str, folder: str, converted: str) -> None:
    types, sources, ops = operators_and_tables(model)
    rows = from_duckdb(Path(folder) / "profile.duckdb")
    assert rows == from_xml(Path(folder) / "debug.xml")
    assert [row["table_id"] for row in rows] == sorted(sources)
    for row in rows:
        places = sorted(position for position, ids in ops.items() if row["table_id"] in ids)
        assert row["name"].partition("#")[0] == sources[row["table_id"]]
        assert (row["positions"] or []) == places
        assert row["ext_key"] == (places[0] if places else None)
        alone = {types[position] for position in places if ops[position] == [row["table_id"]]}
        assert row["operator"] == (alone.pop() if len(alone) == 1 else "?")
        assert (row["time_ns"] > 0) <= (row["fate"] == "live")
    _, sources_again, ops_again = operators_and_tables(converted)
    assert sources_again == sources
    live = {row["table_id"] for row in rows if row["fate"] == "live"}
    assert live <= {source for ids in ops_again.values() for source in ids} <= set(sources)
    print(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
