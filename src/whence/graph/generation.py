"""Generating text with a decoder that is a graph of the model: ONNX Runtime's GreedySearch,
Sampling and BeamSearch, for decoders like GPT-2's.

A decoder takes the tokens that are new, their positions, a mask over all tokens and the caches of
its layers, and gives scores for the next token and the new caches. Scores pass through the same
rules in all three: penalties for what was said before, masks, a least length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whence.errors import ModelError
from whence.graph.iterations import captures
from whence.graph.node import Node
from whence.ops.attributes import get_float, get_int
from whence.ops.definition import Value
from whence.ops.registry import REGISTRY
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.graph.graph import Graph

RunBody = Callable[["Graph", Sequence[Value]], list[Value]]
_LOWEST = np.finfo(np.float32).min
_NEVER = np.float32(-1e9)
_FIXED_INPUTS = 3
"""Tokens, positions and mask come before the caches."""


class SearchOptions(NamedTuple):
    """What the inputs of a search say."""

    tokens: np.ndarray
    max_length: int
    min_length: int
    repetition_penalty: float
    vocab_mask: np.ndarray | None
    prefix_vocab_mask: np.ndarray | None
    attention_mask: np.ndarray | None


def greedy_search(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    """The likeliest token, again and again."""
    options = _search_options(node, inputs)
    return [_one_by_one(node, inputs, run, options, lambda scores: np.argmax(scores, axis=-1))]


def sampling(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    """A token by chance among the likeliest, which together have the probability `top_p`. The
    chances are ONNX Runtime's; the dice are not.
    """
    options = _search_options(node, inputs)
    seed = _number(node, inputs, "seed", get_int(node.attrs, "seed", 0))
    dice = np.random.default_rng(abs(int(seed)))
    top_p, least = get_float(node.attrs, "top_p", 0.0), get_int(node.attrs, "min_tokens_to_keep", 0)
    temperature = get_float(node.attrs, "temperature", 1.0)

    def choose(scores: np.ndarray) -> np.ndarray:
        probabilities = np.exp(log_softmax(scores / np.float32(temperature)).astype(np.float64))
        order = np.argsort(-probabilities, axis=-1, kind="stable")
        chosen = []
        for row, ranks in zip(probabilities, order, strict=True):
            ranked = row[ranks]
            # The first is kept in any case, and each whose predecessors do not have enough yet.
            keep = np.concatenate(([0.0], np.cumsum(ranked)[:-1])) < max(top_p, 1e-9)
            keep[: max(least, 1)] = True
            weights = np.where(keep, ranked, 0.0)
            chosen.append(ranks[dice.choice(weights.size, p=weights / weights.sum())])
        return np.array(chosen)

    return [_one_by_one(node, inputs, run, options, choose)]


def beam_search(node: Node, inputs: tuple[Value, ...], run: RunBody) -> Sequence[Value]:
    """The likeliest texts, kept side by side: sequences [batch, results, length] and their
    scores.
    """
    options = _search_options(node, inputs)
    count = int(_number(node, inputs, "num_beams", 1))
    results = int(_number(node, inputs, "num_return_sequences", 1))
    if not 1 <= results <= count:
        raise ModelError(f"{node.op}: {results} results of {count} beams")
    batch = options.tokens.shape[0]
    beams = Beams(
        batch,
        count,
        _number(node, inputs, "length_penalty", 1.0),
        eos=get_int(node.attrs, "eos_token_id", -1),
        pad=get_int(node.attrs, "pad_token_id", -1),
        stops_early=bool(get_int(node.attrs, "early_stopping", 0)),
    )

    def spread(mask: np.ndarray | None) -> np.ndarray | None:
        return None if mask is None else np.repeat(mask, count, axis=0)

    wide = options._replace(
        tokens=np.repeat(options.tokens, count, axis=0),
        attention_mask=spread(options.attention_mask),
        prefix_vocab_mask=spread(options.prefix_vocab_mask),
    )
    decoder = _Decoder(node, inputs, run, wide)
    sequences = wide.tokens
    while sequences.shape[1] < options.max_length and not beams.is_done:
        scores = _ruled(node, wide, log_softmax(decoder.scores()), sequences)
        tokens, origins = beams.step(scores, sequences)
        sequences = np.concatenate((sequences[origins], tokens[:, np.newaxis]), axis=1)
        if sequences.shape[1] < options.max_length and not beams.is_done:
            decoder.feed(tokens, origins)
    return list(beams.best(sequences, results, options.max_length))[: len(node.outputs)]


def _one_by_one(
    node: Node,
    inputs: tuple[Value, ...],
    run: RunBody,
    options: SearchOptions,
    choose: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Texts that grow a token at a time. The end token, and what follows it, is the padding."""
    eos, pad = get_int(node.attrs, "eos_token_id", -1), get_int(node.attrs, "pad_token_id", -1)
    sequences = options.tokens
    decoder = _Decoder(node, inputs, run, options)
    ended = np.zeros(sequences.shape[0], np.bool_)
    while sequences.shape[1] < options.max_length and not ended.all():
        tokens = choose(_ruled(node, options, decoder.scores(), sequences)).astype(np.int32)
        ended |= tokens == eos
        tokens = np.where(ended, np.int32(pad), tokens)
        sequences = np.concatenate((sequences, tokens[:, np.newaxis]), axis=1)
        if sequences.shape[1] < options.max_length and not ended.all():
            decoder.feed(tokens)
    missing = max(options.max_length - sequences.shape[1], 0)
    return np.pad(sequences, ((0, 0), (0, missing)), constant_values=pad).astype(np.int32)


class _Decoder:
    """A decoder between its steps: what it will be given next."""

    def __init__(
        self, node: Node, inputs: tuple[Value, ...], run: RunBody, options: SearchOptions
    ) -> None:
        self._body = node.bodies["decoder"]
        self._first: Graph | None = node.bodies.get("init_decoder")
        self._run = run
        captured = captures(node)
        self._captured = inputs[len(inputs) - captured :]
        tokens = options.tokens
        # Positions count the tokens that are no padding, whatever a mask says.
        real = tokens != get_int(node.attrs, "pad_token_id", -1)
        mask = real if options.attention_mask is None else options.attention_mask
        self._mask = mask.astype(np.int32)
        self._tokens = tokens.astype(np.int32)
        counted = np.cumsum(real, axis=1, dtype=np.int32)
        self._positions = np.where(real, counted - 1, 0).astype(np.int32)
        self._next = counted[:, -1:]
        formal = self._body.inputs[_FIXED_INPUTS : len(self._body.inputs) - captured]
        self._caches: list[Value] = [self._empty(each, tokens.shape[0]) for each in formal]

    @staticmethod
    def _empty(formal: Node, batch: int) -> np.ndarray:
        kind = formal.type
        if not isinstance(kind, TensorType) or kind.shape is None or len(kind.shape) != 5:
            raise ModelError(f"the decoder's cache '{formal.name}' should have five dimensions")
        heads, size = kind.shape[2], kind.shape[4]
        if not isinstance(heads, int) or not isinstance(size, int):
            raise ModelError(f"the decoder's cache '{formal.name}' does not say its heads' size")
        return np.zeros((2, batch, heads, 0, size), kind.dtype.numpy)

    def scores(self) -> np.ndarray:
        """Scores for the next token of each text."""
        body, self._first = self._first or self._body, None
        given = [self._tokens, self._positions, self._mask, *self._caches, *self._captured]
        logits, *self._caches = self._run(body, given)
        return np.asarray(logits)[:, -1, :].astype(np.float32)

    def feed(self, tokens: np.ndarray, origins: np.ndarray | None = None) -> None:
        """The next tokens, and which text each continues if not its own."""
        if origins is not None:
            self._caches = [np.take(cache, origins, axis=1) for cache in self._caches]
            self._mask, self._next = self._mask[origins], self._next[origins]
        self._tokens = tokens.astype(np.int32)[:, np.newaxis]
        self._positions = self._next
        self._next = self._next + np.int32(1)
        self._mask = np.concatenate((self._mask, np.ones_like(self._mask[:, :1])), axis=1)


class Ended(NamedTuple):
    """A text that has ended."""

    score: float
    tokens: np.ndarray


class Beams:
    """The texts that a beam search keeps, `count` for each of a batch, and the best that have
    ended. `step` takes the next token of each.
    """

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


def _ruled(
    node: Node, options: SearchOptions, scores: np.ndarray, sequences: np.ndarray
) -> np.ndarray:
    """Scores after everything that is asked of texts, in ONNX Runtime's order."""
    scores, length = scores.copy(), sequences.shape[1]
    if options.repetition_penalty != 1.0:
        for row, said in zip(scores, sequences, strict=True):
            seen = np.unique(said)
            penalty = np.float32(options.repetition_penalty)
            row[seen] = np.where(row[seen] < 0, row[seen] * penalty, row[seen] / penalty)
    size = get_int(node.attrs, "no_repeat_ngram_size", 0)
    if 0 < size <= length:
        for row, said in zip(scores, sequences, strict=True):
            recent = said[length - size + 1 :]
            for start in range(length - size + 1):
                if np.array_equal(said[start : start + size - 1], recent):
                    row[said[start + size - 1]] = _LOWEST
    if options.vocab_mask is not None:
        scores[:, options.vocab_mask.reshape(-1) == 0] = _LOWEST
    if options.prefix_vocab_mask is not None and length == options.tokens.shape[1]:
        scores[options.prefix_vocab_mask == 0] = _LOWEST
    eos = get_int(node.attrs, "eos_token_id", -1)
    if length < options.min_length and eos >= 0:
        scores[:, eos] = _LOWEST
    return scores


def log_softmax(scores: np.ndarray) -> np.ndarray:
    wide = scores.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    found: np.ndarray = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return found.astype(np.float32)


def _search_options(node: Node, inputs: tuple[Value, ...]) -> SearchOptions:
    tokens = np.asarray(inputs[0])
    return SearchOptions(
        tokens.astype(np.int32),
        int(_number(node, inputs, "max_length", tokens.shape[1])),
        int(_number(node, inputs, "min_length", 0)),
        _number(node, inputs, "repetition_penalty", 1.0),
        _operand(node, inputs, "vocab_mask"),
        _operand(node, inputs, "prefix_vocab_mask"),
        _operand(node, inputs, "attention_mask"),
    )


def _operand(node: Node, inputs: tuple[Value, ...], name: str) -> np.ndarray | None:
    """The value of an operand. Behind those that are given is what the decoder captures."""
    place = REGISTRY[node.op].operands.positions[name]
    given = place < len(inputs) - captures(node) and inputs[place] is not None
    return np.asarray(inputs[place]) if given else None


def _number(node: Node, inputs: tuple[Value, ...], name: str, default: float) -> float:
    value = _operand(node, inputs, name)
    return default if value is None else float(value.reshape(-1)[0])
