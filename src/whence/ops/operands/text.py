"""Operators that count words."""

from __future__ import annotations

from collections.abc import Mapping

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import Check, TypeQuery
from whence.ops.limits import MAX_SKIPPED_WORDS, MAX_TEXT


def _counted_words(query: TypeQuery) -> None:
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


RULES: Mapping[str, Check] = {"TfIdfVectorizer": _counted_words}
