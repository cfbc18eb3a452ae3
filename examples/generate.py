"""Text from a language model, in a folder as ONNX Runtime GenAI's builder writes it.

    pip install whence tokenizers
    python examples/generate.py FOLDER "Why is the sky blue?" --chat
    python examples/generate.py FOLDER "Once upon a time" --temperature 0.8 --seed 7 --profile

The folder has `model.onnx`, `genai_config.json` and `tokenizer.json`. Caches of keys and values
stay with the model (`state=`) and have room for `--context` tokens. A prompt is read in pieces of a
few fixed lengths, so that the model is compiled for those and for a single token, and for nothing
else. `--profile` shows where the time goes, by type of operator, for a piece of the prompt and for
a token.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import whence

PIECES = (128, 16)
"""Lengths in which a prompt is read, longest first, before single tokens."""


class LanguageModel:
    """A decoder and the tokens that it has read."""

    def __init__(self, folder: Path, *, context: int = 2048, threads: int = 0) -> None:
        config = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))["model"]
        decoder = config["decoder"]
        self._inputs, self._outputs = decoder["inputs"], decoder["outputs"]
        self.context = min(context, int(config["context_length"]))
        ends = config["eos_token_id"]
        self.ends = frozenset(ends if isinstance(ends, list) else [ends])
        cache = (1, decoder["num_key_value_heads"], self.context, decoder["head_size"])
        layers = range(decoder["num_hidden_layers"])
        state = {
            self._inputs[f"past_{kind}_names"] % layer: self._outputs[f"present_{kind}_names"]
            % layer
            for layer in layers
            for kind in ("key", "value")
        }
        mask = self._inputs["attention_mask"]
        self.model = whence.compile(
            folder / decoder["filename"],
            shapes={mask: (1, self.context), **dict.fromkeys(state, cache)},
            state=state,
            # Scores of what follows the earlier tokens of a prompt are of no use.
            only_last={self._outputs["logits"]: 1},
            threads=threads,
        )
        self.tokens: list[int] = []

    def inputs(self, tokens: Sequence[int], end: int) -> dict[str, np.ndarray]:
        """What a call takes whose tokens are the last of `end`."""
        mask = np.zeros((1, self.context), np.int64)
        mask[0, :end] = 1
        given = {
            self._inputs["input_ids"]: np.array([tokens], np.int64),
            self._inputs["attention_mask"]: mask,
        }
        positions = self._inputs.get("position_ids")
        if positions in {port.name for port in self.model.inputs}:
            given[positions] = np.arange(end - len(tokens), end, dtype=np.int64)[np.newaxis]
        return given

    def read(self, tokens: Sequence[int]) -> np.ndarray:
        """Go on with these tokens; the scores of what could follow the last of them."""
        if len(self.tokens) + len(tokens) > self.context:
            raise SystemExit(
                f"{len(self.tokens) + len(tokens)} tokens do not fit --context {self.context}"
            )
        scores = np.zeros(0, np.float32)
        read, self.tokens = len(self.tokens), [*self.tokens, *tokens]
        while read < len(self.tokens):
            left = len(self.tokens) - read
            # A last piece that is not full begins early: what it reads again, it writes again.
            length = next((each for each in PIECES if each <= read + left and each <= left * 2), 1)
            end = read + min(length, left)
            found = self.model(**self.inputs(self.tokens[end - length : end], end))
            logits = found[0] if isinstance(found, tuple) else found
            scores, read = logits[0, -1], end
        return scores


def choose(
    scores: np.ndarray, rng: np.random.Generator, temperature: float, top_k: int, top_p: float
) -> int:
    """The likeliest token; with a temperature, one drawn from the `top_k` likeliest, and of those
    from the fewest that together have a probability of `top_p`.
    """
    if temperature <= 0:
        return int(scores.argmax())
    likeliest = np.argsort(scores)[::-1][: top_k or None]
    scaled = scores[likeliest].astype(np.float64) / temperature
    chances = np.exp(scaled - scaled[0])
    chances /= chances.sum()
    enough = int(np.searchsorted(np.cumsum(chances), top_p)) + 1
    chances = chances[:enough] / chances[:enough].sum()
    return int(rng.choice(likeliest[:enough], p=chances))


def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    count: int,
    *,
    temperature: float = 0.0,
    top_k: int = 50,
    top_p: float = 1.0,
    seed: int = 0,
) -> Iterator[int]:
    """Tokens that follow the prompt, one by one."""
    rng = np.random.default_rng(seed)
    scores = model.read(prompt)
    for number in range(count):
        token = choose(scores, rng, temperature, top_k, top_p)
        if token in model.ends:
            return
        yield token
        if number + 1 < count:
            scores = model.read([token])


def show_profile(model: LanguageModel, runs: int) -> None:
    """Where the time of a piece of the prompt goes, and that of a token, apart."""
    lengths = [next((each for each in PIECES if each <= len(model.tokens)), 1), 1]
    for title, length in zip(("prefill", "decode"), lengths, strict=True):
        inputs = model.inputs(model.tokens[-length:], len(model.tokens))
        profile = whence.profile(model.model, inputs, runs=runs, warmup=2)
        rate = 1e9 * length / profile.run_ns
        print(f"\n{title}: {length} token(s) in {profile.run_ns / 1e6:.2f} ms, {rate:.0f} a second")
        for group in profile.by("type")[:8]:
            print(f"  {group.key:32} {100 * group.share:5.1f} %")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=64, help="at most so many new ones")
    parser.add_argument(
        "--context", type=int, default=2048, help="tokens that caches have room for"
    )
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token")
    parser.add_argument("--top-k", type=int, default=50)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--chat", action="store_true", help="the prompt is a question of a user")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--runs", type=int, default=20, help="that a profile is made of")
    given = parser.parse_args(arguments)
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        raise SystemExit("text becomes tokens by the package tokenizers: pip install it") from None

    tokenizer: Any = Tokenizer.from_file(str(given.folder / "tokenizer.json"))
    text = given.prompt
    if given.chat:
        text = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    model = LanguageModel(given.folder, context=given.context, threads=given.threads)
    found: list[int] = []
    shown, began = "", time.perf_counter()
    for token in generate(
        model,
        tokenizer.encode(text).ids,
        given.tokens,
        temperature=given.temperature,
        top_k=given.top_k,
        top_p=given.top_p,
        seed=given.seed,
    ):
        found.append(token)
        # A character may take several tokens: what is not whole yet is not shown yet.
        whole = tokenizer.decode(found)
        if not whole.endswith("\ufffd"):
            print(whole[len(shown) :], end="", flush=True)
            shown = whole
    print()
    seconds = time.perf_counter() - began
    print(f"{len(found)} tokens in {seconds:.2f} s, compiling included", file=sys.stderr)
    if given.profile:
        show_profile(model, given.runs)


if __name__ == "__main__":
    main()
