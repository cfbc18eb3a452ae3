"""Reading protocol buffers without knowing their schema: fields by number. Written apart from the
encoder, to check it.
"""

from __future__ import annotations

from collections import defaultdict


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        assert shift < 70


def fields(data: bytes) -> dict[int, list[int | bytes]]:
    """All values of each field, in order. Fails on anything that is not well-formed."""
    found: dict[int, list[int | bytes]] = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        field, kind = tag >> 3, tag & 7
        assert field > 0
        if kind == 0:
            value, at = read_varint(data, at)
            found[field].append(value)
        elif kind == 1:
            found[field].append(int.from_bytes(data[at : at + 8], "little"))
            at += 8
        else:
            assert kind == 2
            length, at = read_varint(data, at)
            assert at + length <= len(data)
            found[field].append(data[at : at + length])
            at += length
    assert at == len(data)
    return found


def messages(data: bytes, field: int) -> list[dict[int, list[int | bytes]]]:
    """The messages in a field."""
    return [fields(value) for value in fields(data)[field] if isinstance(value, bytes)]


def number(message: dict[int, list[int | bytes]], field: int, default: int = 0) -> int:
    values = message.get(field, [])
    assert all(isinstance(value, int) for value in values)
    return int(values[-1]) if values else default


def text(message: dict[int, list[int | bytes]], field: int) -> str:
    values = message.get(field, [b""])
    assert isinstance(values[-1], bytes)
    return values[-1].decode("utf-8")


def unpacked(message: dict[int, list[int | bytes]], field: int) -> list[int]:
    """A repeated number, packed."""
    found = []
    for data in message.get(field, []):
        assert isinstance(data, bytes)
        at = 0
        while at < len(data):
            value, at = read_varint(data, at)
            found.append(value)
    return found
