"""What a file may cost when it is read and compiled, whatever it claims: a kilobyte can name
shapes, windows and patterns that take hours or fill memory.

Every limit is far above what models have, and what is beyond one is refused in one line that says
what was found and what the limit is, or is left to the run, which pays for it only when asked. The
rank of a tensor is limited where types are made (`types.MAX_RANK`); how much is folded, in
`passes/fold/fold_constants.py`.
"""

from __future__ import annotations

from whence.errors import ModelError

MAX_SPARSE_BYTES = 1 << 28
"""Dense size of a sparse tensor that is allowed however few values the file holds for it."""
MAX_SPARSE_RATIO = 1024
"""Above that size: how many times larger the dense form may be than the stored values. Pruned
weights keep one in ten, at the very least one in a hundred."""

MAX_UNROLLED = 256
"""Terms that one element of a kernel may be written out with (LRN's neighbouring channels). A wider
window is computed by the reference."""

MAX_CONCATENATED = 128
"""Parts that a kernel chooses an element from: compilers take ever longer over each further one. A
Concat of more is a copy of each, by the reference."""

MAX_PARTS = 1 << 16
"""Parts that an axis with fewer elements may be split into."""

MAX_PATTERN_STEPS = 10_000
"""States of the automaton of a regular expression; a match costs at most so much per character."""
MAX_REPEAT_COUNT = 1000
"""The largest n of `{n}` in a regular expression, which is also RE2's."""

MAX_TEXT = 1 << 28
"""Characters, or pieces, that one operator on text may make."""
MAX_FOLDED_TEXT = 1 << 20
"""Characters of constants that operators on text are evaluated on while compiling."""
MAX_SKIPPED_WORDS = 1 << 12
"""The largest `max_skip_count` of a TfIdfVectorizer, whose reference goes through all of them."""


def check_sparse(found: str, nbytes: int, held: int) -> None:
    """Raise `ModelError` when sparse tensors with `held` bytes of values would be far larger as
    the dense ones of `nbytes`. `found` says which was read last.
    """
    if nbytes > max(MAX_SPARSE_BYTES, MAX_SPARSE_RATIO * held):
        raise ModelError(
            f"{found}: with zeros that is {nbytes} bytes so far, for {held} that are stored; the limit"
            f" is {MAX_SPARSE_BYTES} bytes, or {MAX_SPARSE_RATIO} times what is stored"
        )


def check_text(op: str, what: str, count: int) -> None:
    """Raise `ModelError` when an operator on text would make more than memory should hold."""
    if count > MAX_TEXT:
        raise ModelError(f"{op}: its result would have {count} {what}, and the limit is {MAX_TEXT}")
