"""Operators on text. A tensor of strings is an object array of `str`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints, get_str, get_strs
from whence.ops.definition import Call, OpDef, TypeQuery, Value
from whence.ops.limits import MAX_SKIPPED_WORDS, MAX_TEXT, check_text
from whence.ops.operand import UNARY, named
from whence.ops.precision import tensor
from whence.ops.tensor.regular_expressions import FullMatcher
from whence.ops.types.type_rules import broadcast, predicate
from whence.types import TensorType


def strings(items: Iterable[str], shape: Sequence[int]) -> np.ndarray:
    """An object array of the given shape."""
    result = np.empty(tuple(shape), np.object_)
    result.reshape(-1)[:] = list(items)
    return result


def _texts(x: np.ndarray) -> list[str]:
    return [
        item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
        for item in x.reshape(-1)
    ]


def _concat(call: Call) -> Value:
    left, right = np.broadcast_arrays(tensor(call, 0), tensor(call, 1))
    first, second = _texts(left), _texts(right)
    check_text(call.op, "characters", sum(map(len, first)) + sum(map(len, second)))
    return strings((a + b for a, b in zip(first, second, strict=True)), left.shape)


def _split(call: Call) -> tuple[Value, Value]:
    x = tensor(call, 0)
    delimiter = get_str(call.attrs, "delimiter", "")
    most = get_int(call.attrs, "maxsplit", -1)
    # Without a delimiter any run of white space divides; Python drops it at both ends, as ONNX
    # asks.
    parts = [text.split(delimiter or None, most) if text else [] for text in _texts(x)]
    counts = np.array([len(part) for part in parts], np.int64).reshape(x.shape)
    width = int(counts.max(initial=0))
    check_text(call.op, "pieces", x.size * width)
    return (
        strings(
            (text for part in parts for text in (*part, *[""] * (width - len(part)))),
            (*x.shape, width),
        ),
        counts,
    )


def _full_match(call: Call) -> Value:
    x, matcher = tensor(call, 0), FullMatcher(get_str(call.attrs, "pattern", ""))
    return np.array([matcher.matches(text) for text in _texts(x)], np.bool_).reshape(x.shape)


def _match_type(query: TypeQuery) -> TensorType:
    # A pattern that cannot be used is refused when the model is read, not when it is run.
    FullMatcher(get_str(query.attrs, "pattern", ""))
    return predicate(query)


def _normalise(call: Call) -> Value:
    x, action = tensor(call, 0), get_str(call.attrs, "case_change_action", "NONE")
    exact = bool(get_int(call.attrs, "is_case_sensitive", 0))
    if x.ndim not in {1, 2} or (x.ndim == 2 and x.shape[0] != 1):
        raise ModelError(f"needs [C] or [1,C], found {list(x.shape)}")
    stop = {word if exact else word.lower() for word in get_strs(call.attrs, "stopwords")}
    words = [text for text in _texts(x) if (text if exact else text.lower()) not in stop]
    if action != "NONE":
        words = [text.lower() if action == "LOWER" else text.upper() for text in words]
    # Nothing left is one empty text, so that the tensor does not vanish.
    words = words or [""]
    return strings(words, (len(words),) if x.ndim == 1 else (1, len(words)))


def _check_counted_words(query: TypeQuery) -> None:
    """The pool holds all 1-grams, then all 2-grams, and so on; `ngram_counts` says where each kind
    begins, and `ngram_indexes` which element of the result each n-gram is counted in.
    """
    skipped = get_int(query.attrs, "max_skip_count", 0)
    if not 0 <= skipped <= MAX_SKIPPED_WORDS:
        raise ModelError(
            f"max_skip_count is {skipped}; it should be at least 0, and the limit is"
            f" {MAX_SKIPPED_WORDS}"
        )
    shortest = get_int(query.attrs, "min_gram_length", 1)
    longest = get_int(query.attrs, "max_gram_length", shortest)
    if not 1 <= shortest <= longest:
        raise ModelError(
            f"n-grams of {shortest} to {longest} words; min_gram_length should be at"
            " least 1, and max_gram_length no less"
        )
    starts, pool = get_ints(query.attrs, "ngram_counts", ()), _pool(query)
    if longest > len(starts):
        raise ModelError(
            f"max_gram_length is {longest}, and ngram_counts says where"
            f" {len(starts)} kinds of n-grams begin"
        )
    ends = (*starts[1:], pool)
    count = 0
    for words, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= pool or (end - start) % words:
            raise ModelError(
                f"ngram_counts {list(starts)} do not divide a pool of {pool} words into"
                f" n-grams: those of {words} would be from {start} to {end}"
            )
        count += (end - start) // words
    places = get_ints(query.attrs, "ngram_indexes", ())
    if len(places) < max(count, 1) or not all(0 <= place <= MAX_TEXT for place in places):
        raise ModelError(
            f"ngram_indexes should be {count} numbers from 0 to {MAX_TEXT}, one for each"
            f" n-gram of the pool; found {len(places)}, {_extremes(places)}"
        )
    weights = query.attrs.get("weights", ())
    if isinstance(weights, tuple) and len(weights) not in (0, len(places)):
        raise ModelError(f"{len(weights)} weights, and {len(places)} ngram_indexes")


def _pool(query: TypeQuery) -> int:
    numbers, words = (query.attrs.get(name, ()) for name in ("pool_int64s", "pool_strings"))
    return max(len(each) for each in (numbers, words) if isinstance(each, tuple))


def _extremes(places: tuple[int, ...]) -> str:
    return f"{min(places)} to {max(places)}" if places else "none"


OPS: tuple[OpDef, ...] = (
    OpDef("StringConcat", infer=broadcast, reference=_concat, operands=named("X", "Y")),
    OpDef("StringSplit", reference=_split, operands=UNARY),
    OpDef("RegexFullMatch", infer=_match_type, reference=_full_match, operands=UNARY),
    OpDef("StringNormalizer", reference=_normalise, operands=UNARY),
    OpDef("TfIdfVectorizer", operands=UNARY, check=_check_counted_words),
)
