"""The texts that a beam search keeps, and the best that have ended."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_NEVER = np.float32(-1e9)


class Ended(NamedTuple):
    """A text that has ended."""

    score: float
    tokens: np.ndarray


class Beams:
    """`count` texts for each of a batch. `step` takes the next token of each."""

    def __init__(
        self,
        batch: int,
        count: int,
        length_penalty: float,
        *,
        eos: int,
        pad: int,
        stops_early: bool,
    ) -> None:
        self._batch, self._count, self._penalty = batch, count, length_penalty
        self._eos, self._pad, self._stops_early = eos, pad, stops_early
        # All beams begin alike: only the first may go on.
        self._scores = np.full((batch, count), _NEVER, np.float32)
        self._scores[:, 0] = 0
        self._ended: list[list[Ended]] = [[] for _ in range(batch)]
        self._done = [False] * batch

    @property
    def is_done(self) -> bool:
        return all(self._done)

    def step(self, scores: np.ndarray, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From the scores of every next token: the tokens taken, and the beams they continue."""
        count, vocabulary = self._count, scores.shape[-1]
        total = (scores + self._scores.reshape(-1, 1)).reshape(self._batch, -1)
        # Enough that `count` remain even if as many end.
        order = np.argsort(-total, axis=-1, kind="stable")[:, : 2 * count]
        tokens = np.full((self._batch, count), self._pad, np.int32)
        origins = np.zeros((self._batch, count), np.int64)
        for text in range(self._batch):
            if self._done[text]:
                self._scores[text] = 0
                continue
            taken = 0
            for rank, place in enumerate(order[text]):
                beam, token = divmod(int(place), vocabulary)
                score = float(total[text, place])
                if token == self._eos:
                    if rank < count:
                        self._end(text, score, sequences[text * count + beam])
                    continue
                tokens[text, taken], origins[text, taken] = token, text * count + beam
                self._scores[text, taken] = score
                taken += 1
                if taken == count:
                    break
            self._done[text] = self._is_settled(
                text, float(total[text, order[text, 0]]), sequences.shape[1]
            )
        return tokens.reshape(-1), origins.reshape(-1)

    def best(
        self, sequences: np.ndarray, results: int, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best texts of each of the batch, those that have not ended among them, padded."""
        found = np.full((self._batch, results, length), self._pad, np.int32)
        scores = np.zeros((self._batch, results), np.float32)
        for text in range(self._batch):
            if not self._done[text]:
                for beam in range(self._count):
                    place = text * self._count + beam
                    self._end(text, float(self._scores[text, beam]), sequences[place])
            for rank, ended in enumerate(self._ended[text][:results]):
                found[text, rank, : ended.tokens.size] = ended.tokens
                scores[text, rank] = ended.score
        return found, scores

    def _end(self, text: int, score: float, tokens: np.ndarray) -> None:
        """Keep a text that ended, if it is among the best."""
        ended = self._ended[text]
        ended.append(Ended(score / tokens.size**self._penalty, tokens.copy()))
        ended.sort(key=lambda each: -each.score)
        del ended[self._count :]

    def _is_settled(self, text: int, best: float, length: int) -> bool:
        """Can no text that goes on become better than those that have ended?"""
        ended = self._ended[text]
        if len(ended) < self._count:
            return False
        return self._stops_early or ended[-1].score >= best / length**self._penalty
