"""Types, arrays and attributes, read from the text of a graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from whence.graph.literals import digest, read_element, read_float, seeded
from whence.graph.printer import DTYPE_ATTRS
from whence.graph.tokens import TextLine, Token, literal
from whence.ops.definition import Attr
from whence.types import Dim, DType, MapType, OptionalType, SequenceType, TensorType, ValueType

_DTYPES = {str(dtype): dtype for dtype in DType}


class Values:
    """Reads values; remembers how large arrays were written, so that they can be written so
    again.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = arrays
        self.spelled: dict[str, str] = {}
        """What stood in braces, by the array's digest."""

    def type(self, line: TextLine) -> ValueType:
        token = line.taken("word", "a type")
        match token.text:
            case "seq" | "opt" as outer:
                line.expect("(")
                element = self.type(line)
                line.expect(")")
                return SequenceType(element) if outer == "seq" else OptionalType(element)
            case "map":
                line.expect("(")
                key = self._dtype(line, line.taken("word", "an element type"))
                line.expect(",")
                value = self.type(line)
                line.expect(")")
                return MapType(key, value)
        dtype = self._dtype(line, token)
        line.expect("[")
        if line.skip("..."):
            line.expect("]")
            return TensorType(dtype, None)
        dims: list[Dim] = []
        while not line.skip("]"):
            if dims:
                line.expect(",")
            dims.append(self._dim(line))
        return TensorType(dtype, tuple(dims))

    def _dtype(self, line: TextLine, token: Token) -> DType:
        if token.text not in _DTYPES:
            known = ", ".join(list(_DTYPES)[1:12])
            raise line.error(f"no element type '{token.text}'; there are {known}, ...", token)
        return _DTYPES[token.text]

    def _dim(self, line: TextLine) -> Dim:
        if line.skip("?"):
            return None
        if line.next.kind == "number":
            return line.integer("a dimension")
        return line.word("a dimension (a number, a name or '?')")

    # ---- arrays ----

    def array(self, line: TextLine, kind: ValueType) -> np.ndarray | None:
        """What stands in braces; `None` when it is left out."""
        opening = line.next
        line.expect("{")
        if not isinstance(kind, TensorType) or kind.static_shape is None:
            raise line.error(f"an array has known dimensions, not {kind}", opening)
        shape = kind.static_shape
        if line.skip("..."):
            line.expect("}")
            return None
        start = line.place
        value = self._contents(line, kind.dtype, shape)
        tokens = line.tokens[start : line.place]
        line.expect("}")
        # Digests are how large arrays are written anyway.
        if tokens and not tokens[0].text.startswith("sha256-"):
            self.spelled[digest(value)] = _joined(tokens)
        return value

    def _contents(self, line: TextLine, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
        if line.skip("seed"):
            seed, limits = line.integer("a seed"), None
            if line.skip("from"):
                low = self._number(line)
                line.expect("to")
                limits = (low, self._number(line))
            if dtype is DType.STRING:
                raise line.error("text cannot be made up from a seed")
            return seeded(seed, dtype, shape, limits)
        if line.skip("all"):
            return np.full(shape, self._element(line, dtype), dtype.numpy)
        if line.next.text.startswith("sha256-"):
            token = line.take()
            if token.text not in self._arrays:
                raise line.error(
                    f"the array {token.text} is not in this text: give it to"
                    " parse_graph, which takes arrays by digest",
                    token,
                )
            found = self._arrays[token.text]
            if TensorType.of(found) != TensorType(dtype, shape):
                raise line.error(f"{token.text} is the digest of {TensorType.of(found)}", token)
            return found
        first = line.next
        items: list[Any] = []
        while not line.at("}"):
            if items:
                line.expect(",")
            items.append(self._element(line, dtype))
        if len(items) != math.prod(shape):
            raise line.error(f"{math.prod(shape)} elements are wanted, not {len(items)}", first)
        value = np.empty(len(items), dtype.numpy)
        value[:] = items
        return value.reshape(shape)

    def _number(self, line: TextLine) -> float:
        return float(line.taken("number", "a number").text)

    def _element(self, line: TextLine, dtype: DType) -> Any:
        token = line.take()
        if dtype is DType.STRING and token.kind == "string":
            return literal(line, token)
        try:
            return read_element(token.text, dtype)[()]
        except (ValueError, OverflowError):
            raise line.error(f"'{token.text}' is no element of type {dtype}", token) from None

    # ---- attributes ----

    def attribute(self, line: TextLine, key: str) -> Attr:
        token = line.next
        if token.kind == "string":
            return literal(line, line.take())
        if token.kind == "number":
            return self._scalar(line, line.take())
        if line.at("["):
            items: list[Any] = line.listed("[]", lambda: self.attribute(line, ""))
            return tuple(items)
        word = line.taken("word", f"a value of attribute '{key}'").text
        if line.at("[") and word in _DTYPES:
            line.place -= 1
            kind = self.type(line)
            value = self.array(line, kind)
            if value is None:
                raise line.error(f"the value of attribute '{key}' is left out", token)
            return value
        if word in ("True", "False"):
            return word == "True"
        if key in DTYPE_ATTRS:
            return int(self._dtype(line, token))
        return word

    def _scalar(self, line: TextLine, token: Token) -> int | float:
        try:
            return int(token.text)
        except ValueError:
            pass
        try:
            return read_float(token.text)
        except ValueError:
            raise line.error(f"'{token.text}' is no number", token) from None


def _joined(tokens: list[Token]) -> str:
    """The tokens with the blanks that stood between them."""
    text = ""
    for before, token in zip([None, *tokens], tokens, strict=False):
        gap = before is not None and before.column + len(before.text) < token.column
        text += " " * gap + token.text
    return text
