"""Tokens a second of a language model, beside onnxruntime-genai, llama.cpp and OpenVINO GenAI.

    python -m benchmarks.decode FOLDER [--engines whence,onnxruntime-genai,llama.cpp,openvino-genai]
        [--threads 1,2] [--rounds 5] [--gguf FILE] [--openvino FOLDER] [--python engine=PYTHON ...]

FOLDER is as ONNX Runtime GenAI's builder writes it; a `.gguf` file in it is llama.cpp's. Every
engine is a process of its own, which is stopped while it is not its turn, so that none waits for
another's threads; `--python` runs an engine by another interpreter (a virtual environment that has
it). In each round every engine measures once: prefill of 128 tokens, and decoding 32 tokens after
16 and after 512, from the first call behind the prompt to the last. Printed are medians over the
rounds, tokens a second, and whence's ratio to the fastest peer: above 1, whence is ahead. For each
token all weights are read, and the keys and values before it: how much that is of the bandwidth
which `benchmarks.roofline` finds in the same rounds is printed for decoding.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

ENGINES = ("whence", "onnxruntime-genai", "llama.cpp", "openvino-genai")
MEASURES = {"prefill 128": (128, 0), "decode after 16": (16, 32), "decode after 512": (512, 32)}
"""By name: tokens of the prompt, and tokens that are decoded."""
CONTEXT = 1024


class Measured(Protocol):
    def __call__(self, prompt: list[int], count: int) -> float:
        """Seconds for the prompt; with a count, for so many tokens behind it."""


def tokens_of(count: int, vocabulary: int) -> list[int]:
    """Any text will do; no two neighbours alike, and none of the first, which have other uses."""
    return [vocabulary // 8 + 37 * number % (vocabulary // 2) for number in range(count)]


def whence_engine(folder: Path, threads: int, others: dict[str, str]) -> Measured:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
    from generate import LanguageModel  # type: ignore[import-not-found]

    model = LanguageModel(folder, context=CONTEXT, threads=threads)

    def measure(prompt: list[int], count: int) -> float:
        model.tokens = []
        return _timed(
            lambda: model.read(prompt),
            lambda scores: model.read([int(scores.argmax())]),
            count,
        )

    return measure


def _timed(prefill: Callable[[], Any], decode: Callable[[Any], Any], count: int) -> float:
    began = time.perf_counter()
    found = prefill()
    if not count:
        return time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(count):
        found = decode(found)
    return time.perf_counter() - began


def genai_engine(folder: Path, threads: int, others: dict[str, str]) -> Measured:
    import onnxruntime_genai as genai  # type: ignore[import-not-found]

    config = genai.Config(str(folder))
    config.overlay(
        json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}})
    )
    model = genai.Model(config)

    def measure(prompt: list[int], count: int) -> float:
        settings = genai.GeneratorParams(model)
        settings.set_search_options(max_length=CONTEXT, do_sample=False)
        generator = genai.Generator(model, settings)

        # Appending runs the prompt; a token is chosen from its scores and run by the next call.
        def prefill() -> None:
            generator.append_tokens(prompt)
            generator.generate_next_token()

        return _timed(prefill, lambda _: generator.generate_next_token(), count)

    return measure


def llama_engine(folder: Path, threads: int, others: dict[str, str]) -> Measured:
    import xllamacpp  # type: ignore[import-not-found]

    given = others.get("gguf")
    path = Path(given) if given else next(iter(sorted(folder.glob("*.gguf"))))
    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx, settings.n_batch, settings.n_parallel = CONTEXT, 512, 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.warmup = True
    server = xllamacpp.Server(settings)

    def measure(prompt: list[int], count: int) -> float:
        answer = server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": max(count + 1, 1),
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
            }
        )
        timings = answer["timings"]
        if not count:
            return float(timings["prompt_ms"]) / 1e3
        # The first token comes with the prompt.
        return float(timings["predicted_ms"]) / 1e3 * count / max(timings["predicted_n"] - 1, 1)

    return measure


def openvino_engine(folder: Path, threads: int, others: dict[str, str]) -> Measured:
    import numpy as np
    import openvino  # type: ignore[import-not-found]
    import openvino_genai  # type: ignore[import-not-found]

    given = others.get("openvino")
    if not given:
        raise SystemExit("openvino-genai reads a folder of its own, or a GGUF file: --openvino")
    # Prompts are the same in every round, and none is to be found in a cache.
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    pipe = openvino_genai.LLMPipeline(
        given, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=threads
    )

    def measure(prompt: list[int], count: int) -> float:
        ids = openvino.Tensor(np.array([prompt], np.int64))
        inputs = openvino_genai.TokenizedInputs(
            ids, openvino.Tensor(np.ones((1, len(prompt)), np.int64))
        )
        settings = openvino_genai.GenerationConfig()
        settings.max_new_tokens, settings.ignore_eos, settings.do_sample = count + 1, True, False
        metrics = pipe.generate(inputs, settings).perf_metrics
        first = metrics.get_ttft().mean / 1e3
        return first if not count else metrics.get_tpot().mean / 1e3 * count

    return measure


MAKERS: dict[str, Callable[[Path, int, dict[str, str]], Measured]] = {
    "whence": whence_engine,
    "onnxruntime-genai": genai_engine,
    "llama.cpp": llama_engine,
    "openvino-genai": openvino_engine,
}


def worker(engine: str, folder: Path, threads: int, others: dict[str, str]) -> None:
    """Measure whatever the parent asks for, a line of JSON each."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What engines say must not come between.
    config = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))
    vocabulary = int(config["model"]["vocab_size"])
    try:
        measure = MAKERS[engine](folder, threads, others)
        for prompt, count in MEASURES.values():
            measure(tokens_of(prompt, vocabulary), min(count, 2))
    except (Exception, SystemExit) as error:
        text = str(error).splitlines() or [type(error).__name__]
        print(json.dumps({"failed": text[0][:200]}), file=out)
        return
    print(json.dumps({"ready": True}), file=out)
    for line in sys.stdin:
        prompt, count = json.loads(line)
        print(json.dumps({"seconds": measure(tokens_of(prompt, vocabulary), count)}), file=out)


@dataclass(slots=True)
class Turn:
    """An engine in a process of its own, stopped while it is not its turn."""

    engine: str
    process: subprocess.Popen[str]

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"failed": "it ended"}
        return found

    def measure(self, prompt: int, count: int) -> float:
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps([prompt, count]) + "\n")
        self.process.stdin.flush()
        found = self.answer()
        self.process.send_signal(signal.SIGSTOP)
        return float(found["seconds"])

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


def start(engine: str, given: argparse.Namespace, threads: int) -> Turn | None:
    """The engine, ready; `None` with a line about it where it is not to be had."""
    pythons = dict(each.split("=", 1) for each in given.python)
    others = {"gguf": given.gguf, "openvino": given.openvino}
    command = [
        pythons.get(engine, sys.executable),
        str(Path(__file__).resolve()),
        str(given.folder),
    ]
    command += ["--worker", engine, "--threads", str(threads), "--others", json.dumps(others)]
    source = Path(__file__).resolve().parent.parent / "src"
    paths = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if given.verbose else subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"},
    )
    turn = Turn(engine, process)
    found = turn.answer()
    if "ready" not in found:
        print(f"{engine}: left out: {found.get('failed')}")
        turn.end()
        return None
    process.send_signal(signal.SIGSTOP)
    return turn


def weight_bytes(folder: Path) -> int:
    """Of a model and the file beside it that has its weights."""
    config = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))
    name = config["model"]["decoder"]["filename"]
    return sum(path.stat().st_size for path in folder.glob(f"{name}*"))


def cache_bytes(folder: Path) -> int:
    """Of the keys and values of one token, in float32."""
    config = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))
    of = config["model"]["decoder"]
    sizes = (of[name] for name in ("num_hidden_layers", "num_key_value_heads", "head_size"))
    return 2 * 4 * math.prod(sizes)


def compare(given: argparse.Namespace, threads: int) -> None:
    from benchmarks.roofline import bandwidth  # Other interpreters have no whence.

    turns = [turn for engine in given.engines.split(",") if (turn := start(engine, given, threads))]
    seconds: dict[tuple[str, str], list[float]] = {}
    memory: list[float] = []
    try:
        for _ in range(given.rounds):
            for name, (prompt, count) in MEASURES.items():
                memory.append(bandwidth(threads))
                for turn in turns:
                    seconds.setdefault((name, turn.engine), []).append(turn.measure(prompt, count))
    finally:
        for turn in turns:
            turn.end()
    available = statistics.median(memory)
    print(
        f"\n{threads} thread(s), tokens a second, median of {given.rounds};"
        f" memory {available:.1f} GB/s ({min(memory):.1f} to {max(memory):.1f})"
    )
    for name, (prompt, count) in MEASURES.items():
        rates = {
            turn.engine: (count or prompt) / statistics.median(seconds[name, turn.engine])
            for turn in turns
        }
        shown = "  ".join(f"{engine} {rate:.1f}" for engine, rate in rates.items())
        peers = [rate for engine, rate in rates.items() if engine != "whence"]
        ratio = f"  ratio {rates['whence'] / max(peers):.2f}" if peers and "whence" in rates else ""
        share = ""
        if count and "whence" in rates:
            weights = rates["whence"] * weight_bytes(given.folder) / 1e9
            cached = rates["whence"] * cache_bytes(given.folder) * (prompt + count / 2) / 1e9
            share = (
                f"  of memory's bandwidth: weights {weights / available:.0%},"
                f" with caches {(weights + cached) / available:.0%}"
            )
        print(f"  {name:17} {shown}{ratio}{share}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gguf", default="", help="llama.cpp's file; else one in the folder")
    parser.add_argument("--openvino", default="", help="openvino-genai's folder or GGUF file")
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PYTHON")
    parser.add_argument("--verbose", action="store_true", help="show what the engines say")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--others", default="{}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker, given.folder, int(given.threads), json.loads(given.others))
        return
    for threads in given.threads.split(","):
        compare(given, int(threads))


if __name__ == "__main__":
    main()
