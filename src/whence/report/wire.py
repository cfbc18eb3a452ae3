"""The wire format of protocol buffers: as much as the formats here need to be written."""

from __future__ import annotations

from collections.abc import Iterable

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def varint(value: int) -> bytes:
    """Seven bits a byte, least significant first. A negative number is written as its 64-bit two's
    complement.
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """An int32, int64, uint64, bool or enum field."""
    return varint(field << 3 | _VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    return varint(field << 3 | _FIXED64) + value.to_bytes(8, "little")


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    # Bytes of a name that were no text to begin with are lone surrogates here, which no reader
    # takes.
    return message(field, value.encode("utf-8", "backslashreplace"))


def packed(field: int, values: Iterable[int]) -> bytes:
    """A repeated number field. Nothing at all when it is empty."""
    content = b"".join(varint(value) for value in values)
    return message(field, content) if content else b""
