"""The luci tables: upstream's bytes, upstream's verdicts on malformed bytes, and round trips of
anything else.
"""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.errors import ModelError
from whence.provenance.luci_tables import (
    EXECUTION_PLAN_TABLE,
    OP_TABLE,
    SOURCE_TABLE,
    LuciTables,
    TableCodec,
    origins,
    read_tables,
)

ALL_TABLES: tuple[TableCodec[Any], ...] = (SOURCE_TABLE, OP_TABLE, EXECUTION_PLAN_TABLE)
U32_MAX = 2**32 - 1

# A valid first entry of each table, id 1.
ENTRY: dict[str, bytes] = {
    SOURCE_TABLE.name: bytes.fromhex("01000000 02000000 6100"),
    OP_TABLE.name: bytes.fromhex("01000000 01000000 07000000"),
    EXECUTION_PLAN_TABLE.name: bytes.fromhex("01000000 01000000 07000000"),
}

every_table = pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)


def u32(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def rejects(table: TableCodec[Any], data: bytes, what: str, offset: int) -> None:
    with pytest.raises(ModelError) as caught:
        table.decode(data)
    message = str(caught.value)
    assert message.startswith(f"{table.name}: ")
    assert what in message
    assert message.endswith(f", at offset {offset}")
    assert "\n" not in message


# --- bytes that upstream writes
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "entries", "expected"),
    [
        (SOURCE_TABLE, {}, "00000000"),
        (SOURCE_TABLE, {1: "node1"}, "01000000 01000000 06000000 6e6f64653100"),
        (SOURCE_TABLE, {0: ""}, "01000000 00000000 01000000 00"),
        (SOURCE_TABLE, {2: "b", 1: "a"}, "02000000 01000000 02000000 6100 02000000 02000000 6200"),
        (SOURCE_TABLE, {U32_MAX: "é"}, "01000000 ffffffff 03000000 c3a900"),
        (OP_TABLE, {}, "00000000"),
        (OP_TABLE, {5: frozenset({1, 2})}, "01000000 05000000 02000000 01000000 02000000"),
        (OP_TABLE, {5: frozenset()}, "01000000 05000000 00000000"),
        (EXECUTION_PLAN_TABLE, {}, "00000000"),
        (EXECUTION_PLAN_TABLE, {1: (1, 100)}, "01000000 01000000 02000000 01000000 64000000"),
        (
            EXECUTION_PLAN_TABLE,
            {1: (7, 9, 9, 2)},
            "01000000 01000000 04000000 07000000 09000000 09000000 02000000",
        ),
    ],
)
def test_vectors_in_both_directions(
    table: TableCodec[Any], entries: dict[int, Any], expected: str
) -> None:
    data = bytes.fromhex(expected)
    assert table.encode(entries) == data
    assert table.decode(data).entries == entries
    assert table.decode(data).notes == ()


def test_the_import_test_plan_of_upstream() -> None:
    plan = {1: (100,), 2: (300,), 3: (200,)}
    data = EXECUTION_PLAN_TABLE.encode(plan)
    assert data == u32(3, 1, 1, 100, 2, 1, 300, 3, 1, 200)
    assert EXECUTION_PLAN_TABLE.decode(data).entries == plan
    rejects(EXECUTION_PLAN_TABLE, u32(4) + data[4:], "says 4, the table holds 3", 0)


def test_the_op_table_of_the_seeds_picture() -> None:
    # node1 and node2 became node5, then node6; node3 absorbed node4. In the last file node6 is
    # operator 0 and node3 operator 1.
    data = OP_TABLE.encode({0: frozenset({1, 2}), 1: frozenset({3, 4})})
    assert data == u32(2, 0, 2, 1, 2, 1, 2, 3, 4)
    sources = {number: f"node{number}" for number in (1, 2, 3, 4)}
    assert origins(sources, OP_TABLE.decode(data).entries) == {
        0: frozenset({1, 2}),
        1: frozenset({3, 4}),
    }


# --- bytes that upstream rejects
# -------------------------------------------------------------------------------------


@every_table
@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_too_short_for_the_count(table: TableCodec[Any], size: int) -> None:
    rejects(table, bytes(size), "entry count", 0)


@every_table
@pytest.mark.parametrize("size", range(1, 8))
def test_trailing_bytes_too_few_for_an_entry_head(table: TableCodec[Any], size: int) -> None:
    rejects(table, u32(0) + bytes(size), f"{size} bytes are too few", 4)
    one_entry = u32(1) + ENTRY[table.name]
    rejects(table, one_entry + bytes(size), f"{size} bytes are too few", len(one_entry))


@every_table
def test_payload_past_the_end(table: TableCodec[Any]) -> None:
    rejects(table, u32(1) + ENTRY[table.name][:-1], "1 claims", 12)
    rejects(table, u32(1, 1, 1), "where 0 are left", 12)
    # length x 4 would wrap to a valid size in 32-bit arithmetic
    rejects(table, u32(1, 1, 2**30 + 1, 7), "where 4 are left", 12)


@every_table
def test_duplicate_id(table: TableCodec[Any]) -> None:
    entry = ENTRY[table.name]
    for count in (1, 2):
        rejects(table, u32(count) + entry + entry, "1 appears twice", 4 + len(entry))


@every_table
@pytest.mark.parametrize("count", [0, 2, U32_MAX])
def test_count_disagrees_with_the_entries(table: TableCodec[Any], count: int) -> None:
    rejects(table, u32(count) + ENTRY[table.name], f"says {count}, the table holds 1", 0)


@pytest.mark.parametrize(
    "table", [SOURCE_TABLE, EXECUTION_PLAN_TABLE], ids=lambda table: table.name
)
def test_zero_length_payload_is_rejected(table: TableCodec[Any]) -> None:
    rejects(table, u32(1, 9, 0), "9 has length 0", 8)
    rejects(table, u32(2, 9, 0) + ENTRY[table.name], "9 has length 0", 8)


@every_table
def test_hostile_counts_fail_without_allocating(table: TableCodec[Any]) -> None:
    tracemalloc.start()
    try:
        rejects(table, u32(U32_MAX, U32_MAX, U32_MAX), "claims", 12)
        rejects(table, u32(U32_MAX), f"says {U32_MAX}", 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


# --- bytes that upstream accepts although it never writes them
# -------------------------------------------------------


@every_table
def test_count_zero_and_nothing_else(table: TableCodec[Any]) -> None:
    assert table.decode(u32(0)).entries == {}


def test_op_entry_without_sources_decodes_but_has_no_origin() -> None:
    decoded = OP_TABLE.decode(u32(1, 5, 0))
    assert decoded.entries == {5: frozenset()}
    assert decoded.notes == ()
    with pytest.raises(ModelError, match="ONE_op_table: operator 5 has no source"):
        origins({1: "node1"}, decoded.entries)


def test_name_without_nul_loses_its_last_byte_and_says_so() -> None:
    decoded = SOURCE_TABLE.decode(u32(2, 1, 2) + b"a\0" + u32(2, 5) + b"node1")
    assert decoded.entries == {1: "a", 2: "node"}
    assert decoded.notes == (
        (
            "ONE_source_table: a name does not end in NUL, its last byte is dropped (first at"
            " offset 22)"
        ),
    )


def test_embedded_nul_is_kept() -> None:
    data = u32(1, 1, 4) + b"a\0b\0"
    assert SOURCE_TABLE.decode(data).entries == {1: "a\0b"}
    assert SOURCE_TABLE.encode({1: "a\0b"}) == data


def test_repeated_source_ids_collapse_and_are_noted() -> None:
    decoded = OP_TABLE.decode(u32(1, 5, 3, 2, 1, 2))
    assert decoded.entries == {5: frozenset({1, 2})}
    assert decoded.notes == (
        (
            "ONE_op_table: the source ids of an operator are out of order or repeated (first at"
            " offset 12)"
        ),
    )


def test_repeated_plan_numbers_are_kept() -> None:
    decoded = EXECUTION_PLAN_TABLE.decode(u32(1, 5, 3, 2, 1, 2))
    assert decoded.entries == {5: (2, 1, 2)}
    assert decoded.notes == ()


def test_entries_out_of_order_are_noted_once() -> None:
    decoded = OP_TABLE.decode(u32(3, 9, 0, 8, 0, 7, 0))
    assert decoded.entries == {9: frozenset(), 8: frozenset(), 7: frozenset()}
    assert decoded.notes == ("ONE_op_table: entries are out of order (first at offset 12)",)


def test_names_are_raw_bytes() -> None:
    data = u32(1, 1, 5) + b"\xff\xc3\xa9\xc3\0"
    assert SOURCE_TABLE.decode(data).entries == {1: "\udcffé\udcc3"}
    assert SOURCE_TABLE.encode(SOURCE_TABLE.decode(data).entries) == data


# --- metadata of a whole file
# ----------------------------------------------------------------------------------------


def test_unknown_metadata_is_ignored_and_the_last_of_a_name_wins() -> None:
    tables = read_tables(
        [
            ("min_runtime_version", b"1"),
            ("ONE_source_table", u32(1, 1, 1) + b"x"),
            ("ONE_op_table", OP_TABLE.encode({0: frozenset({1})})),
            ("one_op_table", b"not a table of ours"),
            ("ONE_source_table", SOURCE_TABLE.encode({1: "second"})),
            ("ONE_execution_plan_table", u32(2, 1, 1, 0, 0, 1, 1)),
        ]
    )
    assert tables == LuciTables(
        sources={1: "second"},
        ops={0: frozenset({1})},
        plan={1: (0,), 0: (1,)},
        notes=("ONE_execution_plan_table: entries are out of order (first at offset 16)",),
    )


def test_a_malformed_table_is_an_error_even_if_a_later_one_replaces_it() -> None:
    with pytest.raises(ModelError, match="ONE_op_table"):
        read_tables([("ONE_op_table", b""), ("ONE_op_table", u32(0))])


def test_no_metadata_means_empty_tables() -> None:
    assert read_tables([]) == LuciTables({}, {}, {}, ())


# --- origins
# ---------------------------------------------------------------------------------------------------------


def test_origins_need_both_tables() -> None:
    # What ONE 1.20 and later write: all sources, no operators.
    tables = read_tables(
        [
            ("ONE_source_table", SOURCE_TABLE.encode({0: "conv", 1: "relu"})),
            ("ONE_op_table", u32(0)),
        ]
    )
    assert tables.sources == {0: "conv", 1: "relu"}
    assert origins(tables.sources, tables.ops) == {}
    # Without sources, not even a dangling or an empty entry matters.
    assert origins({}, {0: frozenset({9}), 1: frozenset()}) == {}
    assert origins({}, {}) == {}


def test_origin_of_an_unlisted_source_is_an_error() -> None:
    with pytest.raises(ModelError) as caught:
        origins({1: "a"}, {0: frozenset({1}), 4: frozenset({1, 8, 7})})
    assert (
        str(caught.value)
        == "ONE_op_table: operator 4 stems from source 7, which ONE_source_table does not list"
    )


# --- what cannot be written
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "entries", "what"),
    [
        (SOURCE_TABLE, {-1: "a"}, "source -1"),
        (SOURCE_TABLE, {2**32: "a"}, "source 4294967296"),
        (SOURCE_TABLE, {1: "\ud800"}, "source 1"),
        (OP_TABLE, {3: frozenset({2**32})}, "operator 3"),
        (OP_TABLE, {3: frozenset({-1})}, "operator 3"),
        (EXECUTION_PLAN_TABLE, {4: ()}, "position 4"),
        (EXECUTION_PLAN_TABLE, {4: (0, 2**32)}, "position 4"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(
    table: TableCodec[Any], entries: dict[int, Any], what: str
) -> None:
    with pytest.raises(ModelError) as caught:
        table.encode(entries)
    assert str(caught.value).startswith(f"{table.name}: {what} cannot be written: ")
    assert "\n" not in str(caught.value)


# --- anything else
# ---------------------------------------------------------------------------------------------------

numbers = st.integers(0, U32_MAX)
raw_names = st.one_of(st.binary(max_size=12), st.text("a/é☃🙂\0\n", max_size=8).map(str.encode))
names = raw_names.map(lambda raw: raw.decode("utf-8", "surrogateescape"))

# Words small enough to be plausible counts and ids, mixed with any bytes: random bytes alone never
# get past the first length.
fragments = st.one_of(
    st.integers(0, 4).map(u32),
    numbers.map(u32),
    st.sampled_from(list(ENTRY.values())),
    st.binary(max_size=5),
)
table_like = st.one_of(st.binary(max_size=64), st.lists(fragments, max_size=12).map(b"".join))


@given(st.dictionaries(numbers, raw_names))
def test_any_names_round_trip(table: dict[int, bytes]) -> None:
    data = u32(len(table)) + b"".join(
        u32(key, len(table[key]) + 1) + table[key] + b"\0" for key in sorted(table)
    )
    decoded = SOURCE_TABLE.decode(data)
    assert decoded.notes == ()
    assert SOURCE_TABLE.encode(decoded.entries) == data
    assert {
        key: name.encode("utf-8", "surrogateescape") for key, name in decoded.entries.items()
    } == table


@given(
    st.one_of(
        st.tuples(st.just(SOURCE_TABLE), st.dictionaries(numbers, names)),
        st.tuples(st.just(OP_TABLE), st.dictionaries(numbers, st.frozensets(numbers))),
        st.tuples(
            st.just(EXECUTION_PLAN_TABLE),
            st.dictionaries(numbers, st.lists(numbers, min_size=1).map(tuple)),
        ),
    )
)
def test_tables_round_trip_in_id_order(case: tuple[TableCodec[Any], dict[int, Any]]) -> None:
    table, entries = case
    decoded = table.decode(table.encode(entries))
    assert list(decoded.entries.items()) == sorted(entries.items(), key=lambda item: item[0])
    assert decoded.notes == ()


@settings(max_examples=500)
@given(st.sampled_from(ALL_TABLES), table_like)
def test_any_bytes_decode_or_are_a_model_error(table: TableCodec[Any], data: bytes) -> None:
    try:
        decoded = table.decode(data)
    except ModelError:
        return
    again = table.encode(decoded.entries)
    assert (again == data) == (decoded.notes == ())
    canonical = table.decode(again)
    assert canonical.entries == decoded.entries
    assert canonical.notes == ()


@given(
    st.sampled_from(ALL_TABLES),
    st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=12)), max_size=4),
)
def test_notes_are_empty_exactly_when_the_bytes_are_canonical(
    table: TableCodec[Any], entries: list[tuple[int, bytes]]
) -> None:
    # Whole entries, so that most examples decode and many of them are out of order, repeated or
    # unterminated.
    units = [
        (key, payload[: len(payload) // table.unit_bytes * table.unit_bytes])
        for key, payload in entries
    ]
    data = u32(len(units)) + b"".join(
        u32(key, len(payload) // table.unit_bytes) + payload for key, payload in units
    )
    try:
        decoded = table.decode(data)
    except ModelError:
        assert len({key for key, _ in units}) < len(units) or not all(
            payload for _, payload in units
        )
        return
    assert (table.encode(decoded.entries) == data) == (decoded.notes == ())
