"""What was found by timing kernels on this machine, kept for every later compilation.

One JSON file for each way of running: the processor, the compiler, the number of threads, and the
source that kernels are made by. It lies in the cache folder, which is private; it is replaced
whole, and one that cannot be read is as good as none. Nothing in it is believed further than that:
a choice that is not among those that could have been made for its problem is passed over when it
comes to be used.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whence.building.source_digest import kernel_digest
from whence.codegen.cache import cache_key, kept_if_possible, replace_file
from whence.codegen.toolchain import Toolchain

if TYPE_CHECKING:
    from whence.kernels.choice import Choice

_FOLDER = "tuned"
# What a file that is not of this shape raises when it is read.
_MISREAD = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest kernel for a problem."""

    choice: Choice
    nanoseconds: int
    usual: Choice
    """What the cost model takes."""
    usual_nanoseconds: int


class TuningRecords:
    """The winners for one toolchain and number of threads. Read on first use."""

    def __init__(self, toolchain: Toolchain, threads: int) -> None:
        self._cache, self._toolchain, self._threads = toolchain.cache, toolchain, threads
        self._content: bytes | None = None
        self._winners: dict[str, Winner] | None = None

    @property
    def digest(self) -> str:
        """Differs whenever the winners do; empty while there are none. Takes no more than reading
        the file, which a start can afford.
        """
        content = self._read()
        return hashlib.sha256(content).hexdigest() if content else ""

    @property
    def winners(self) -> Mapping[str, Winner]:
        """By problem."""
        if self._winners is None:
            self._winners = self._decode(self._read())
        return self._winners

    @property
    def choices(self) -> dict[str, Choice]:
        """By problem, as lowering takes them."""
        return {problem: winner.choice for problem, winner in self.winners.items()}

    def add(self, found: Mapping[str, Winner]) -> None:
        """Remember these, beside what others have written meanwhile."""
        self._content = None
        merged = {**self._decode(self._read()), **found}
        content = _encode(merged)
        self._winners, self._content = merged, content
        # Minutes of timing are not thrown away: this process goes on with what it found.
        with kept_if_possible("what was tuned is not kept"):
            replace_file(self._cache.subfolder(_FOLDER) / self._name(), content, is_durable=True)

    def _read(self) -> bytes:
        if self._content is None:
            self._content = b""
            folder = self._cache.folder / _FOLDER
            # Where nothing was ever tuned, no start pays for finding out under which name it would
            # be.
            with suppress(OSError):
                if folder.is_dir():
                    self._content = (folder / self._name()).read_bytes()
        return self._content

    def _name(self) -> str:
        return (
            cache_key("tuned", self._toolchain.key(), str(self._threads), kernel_digest())[:32]
            + ".json"
        )

    def _decode(self, content: bytes) -> dict[str, Winner]:
        from whence.kernels.choice import decode_choice

        if not content:
            return {}
        try:
            return {
                str(problem): Winner(
                    decode_choice(record["choice"]),
                    int(record["nanoseconds"]),
                    decode_choice(record["usual"]),
                    int(record["usual_nanoseconds"]),
                )
                for problem, record in json.loads(content)["winners"].items()
            }
        except _MISREAD:
            path = self._cache.folder / _FOLDER / self._name()
            warnings.warn(
                f"'{path}' is damaged: kernels are chosen as if nothing had been tuned; tune again",
                RuntimeWarning,
                stacklevel=4,
            )
            return {}


def _encode(winners: Mapping[str, Winner]) -> bytes:
    from whence.kernels.choice import encode_choice

    records = {
        problem: {
            "choice": encode_choice(winner.choice),
            "nanoseconds": winner.nanoseconds,
            "usual": encode_choice(winner.usual),
            "usual_nanoseconds": winner.usual_nanoseconds,
        }
        for problem, winner in sorted(winners.items())
    }
    return json.dumps({"winners": records}, indent=1).encode()
