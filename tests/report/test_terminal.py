"""The table fits, adds up, and survives hostile names."""

from __future__ import annotations

import dataclasses
import io
import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.attribution.harness import profile_of
from whence.attribution.findings import Finding
from whence.attribution.policy import EXACT
from whence.attribution.profile import GROUPINGS, Profile
from whence.attribution.rows import Distribution
from whence.attribution.throughput import Throughput
from whence.graph.builder import GraphBuilder
from whence.graph.escaping import fit
from whence.report.files import WRITERS
from whence.report.findings import print_findings
from whence.report.terminal import (
    closure_line,
    duration,
    header,
    policy_line,
    print_profile,
    throughput_line,
)
from whence.types import DType


def printed(profile: Profile, width: int, by: str = "op", limit: int = 20) -> str:
    stream = io.StringIO()
    print_profile(Console(file=stream, width=width, highlight=False), profile, by, limit)
    return stream.getvalue()


@pytest.mark.parametrize("by", GROUPINGS)
@pytest.mark.parametrize("width", [80, 120, 200])
def test_it_fits_and_nothing_in_a_name_takes_effect(profile: Profile, by: str, width: int) -> None:
    text = printed(profile, width, by)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "\x1b" not in text
    assert "\x00" not in text


def test_it_says_what_the_profile_says(profile: Profile) -> None:
    text = printed(profile, 120)
    assert text.startswith("made/up.onnx · cpu, 2 threads · 4 runs · ")
    assert "profiling cost 0.3 %" in text
    assert "what became of it" in text
    assert "did nothing" in text
    assert "4 operators: 2 live, 1 folded, 1 removed, 0 lost" in text
    assert "= 100 %" in text


def test_the_heading_and_the_rows_are_means(profile: Profile) -> None:
    runs = (1_000_000, 1_000_000, 1_000_000, 5_000_000)
    disturbed = dataclasses.replace(profile, runs_ns=runs, wall_ns=sum(runs))
    assert "· 2.00 ms per run (mean; median 1.00 ms) ·" in header(disturbed, 200)
    even = dataclasses.replace(profile, runs_ns=(1_000_000,) * 4, wall_ns=4_000_000)
    assert "· 1.00 ms per run ·" in header(even, 200)


def test_a_cost_of_profiling_that_cannot_be_is_the_noise_of_the_machine(profile: Profile) -> None:
    def told(ratio: float, wall_ns: int) -> str:
        return header(dataclasses.replace(profile, overhead_ratio=ratio, wall_ns=wall_ns), 200)

    assert "profiling cost +501 %: too noisy to believe" in told(5.01, 10**9)
    assert "profiling cost -40 %: too noisy to believe" in told(-0.4, 10**9)
    assert "profiling cost 9.0 %" in told(0.09, 10**9)
    # A run of 50 µs can be half of it.
    assert "profiling cost 60.0 %" in told(0.6, 200_000)


def test_kernels_are_told_by_their_operators_and_what_they_make(profile: Profile) -> None:
    text = printed(profile, 160, "kernel")
    assert "fuse_" not in text
    assert "layer1/relu" in text
    assert "f32[1," in text


def test_rows_that_are_left_out_are_counted(profile: Profile) -> None:
    assert "... and 3 more; --limit 0 shows all" in printed(profile, 120, limit=1)
    assert "more;" not in printed(profile, 120, limit=0)


@pytest.mark.parametrize(
    ("residual", "line"),
    [
        (
            {"dispatch": 6, "idle": 3, "profiler": 0},
            " kernels 99.1 % + dispatch 0.6 % + idle 0.3 % = 100 %",
        ),
        (
            {"dispatch": 0, "idle": 0, "unattributed: x\n": 9},
            " kernels 99.1 % + dispatch 0.0 % + idle 0.0 % + unattributed: x\\n 0.9 % = 100 %",
        ),
    ],
)
def test_the_last_line_adds_up(profile: Profile, residual: dict[str, int], line: str) -> None:
    row = dataclasses.replace(profile.sources[0], time_ns=991)
    assert (
        closure_line(
            dataclasses.replace(profile, sources=(row,), residual_ns=residual, wall_ns=1000)
        )
        == line
    )


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (3060, "3.06 µs"),
        (31_200_000, "31.2 ms"),
        (2.5e9, "2.50 s"),
        (4e11, "400 s"),
    ],
)
def test_durations(nanoseconds: float, text: str) -> None:
    assert duration(nanoseconds) == text


def test_a_name_loses_its_middle(profile: Profile) -> None:
    assert fit("/layer1/0/conv1/Conv", 12) == "/la…nv1/Conv"
    assert fit("a\nb", 12) == "a\\nb"
    long = dataclasses.replace(profile, model="m" * 300)
    assert len(header(long, 100)) == 100
    # On a narrow terminal no line is longer than it, and no fact is cut.
    for width in (60, 80):
        lines = header(long, width).splitlines()
        assert len(lines) > 1
        assert max(map(len, lines)) <= width
        assert " ".join(line.strip() for line in lines).count("profiling cost") == 1


def test_on_a_narrow_terminal_an_operator_ends_in_its_kernel_and_modules_have_no_column() -> None:
    graph = GraphBuilder("narrow")
    x = graph.input("x", DType.F32, [1, 32, 24, 24])
    weights = graph.const(np.ones((32, 32, 3, 3), np.float32))
    for number in range(2):
        x = graph.op("Conv", x, weights, name=f"/a/stage{number}/branch/Conv", pads=(1, 1, 1, 1))
        x = graph.op("Sigmoid", x, name=f"/a/stage{number}/branch/activation/Sigmoid")
    graph.output("y", x)
    found = profile_of(graph.finish(), 1_000_000)
    found = dataclasses.replace(
        found,
        sources=tuple(dataclasses.replace(row, module="decoder.upper") for row in found.sources),
    )
    narrow, wide = (printed(found, width) for width in (80, 140))
    assert "decoder.upper" in wide
    assert re.search(r"with Conv → kernels \d", wide)
    assert "of it layout changes" in wide
    assert "decoder" not in narrow
    row = next(line for line in narrow.splitlines() if "/a/stage0/branch/Conv" in line)
    assert re.search(r"  → kernels? [\d, ]+", row)
    assert "…" not in row
    # What to do next is wrapped, not cut.
    assert found.findings[0].title in " ".join(narrow.split())


@pytest.mark.parametrize("by", ["op", "kernel"])
def test_what_a_kernel_runs_into_is_no_markup(profile: Profile, by: str) -> None:
    """A profile may come from anybody."""
    sources = tuple(
        dataclasses.replace(row, bound="[/red]", of_peak=0.5) for row in profile.sources
    )
    kernels = tuple(
        dataclasses.replace(row, bound="[/red]", least_ns=1.0) for row in profile.kernels
    )
    odd = dataclasses.replace(profile, sources=sources, kernels=kernels)
    assert "[/red]" in printed(odd, 200, by)


def test_modules_with_short_names_have_a_column(profile: Profile) -> None:
    rows = tuple(dataclasses.replace(row, name=f"n{row.id}") for row in profile.sources)

    def header_of(module: str, width: int) -> str:
        named = tuple(dataclasses.replace(row, module=module) for row in rows)
        return printed(dataclasses.replace(profile, sources=named), width)

    assert re.search(r"operator +module +what became", header_of("fc", 100))
    assert re.search(r"n\d +fc ", header_of("fc", 100))
    assert "module" not in header_of("", 100)


def test_an_unmeasurable_cost_is_not_called_negative(profile: Profile) -> None:
    assert "profiling cost below 0.1 %" in header(
        dataclasses.replace(profile, overhead_ratio=-0.02), 120
    )


def test_every_writer_writes(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("out")
    names = {path.name for path in dataclasses.replace(profile, writers=WRITERS).save(folder)}
    assert names >= {
        "profile.json",
        "speedscope.json",
        "profile.pb.gz",
        "trace.pftrace",
        "model_explorer.json",
    }
    assert names == {path.name for path in folder.iterdir()}


def test_how_shares_were_found_is_said(profile: Profile) -> None:
    assert policy_line(profile) == " shares within kernels: modelled"
    waiting = dataclasses.replace(profile.kernels[0], waited_ns=profile.attributed_ns // 4)
    other = dataclasses.replace(profile, policy=EXACT, notes=("a", "b"), kernels=(waiting,))
    assert (
        policy_line(other)
        == " shares within kernels: measured by leaving out · 2 notes in profile.json · threads"
        " waited for others 25.0 %"
    )
    assert policy_line(profile) in printed(profile, 80, "op")


def test_the_heading_of_the_last_column_is_whole_beside_long_names(profile: Profile) -> None:
    rows = tuple(
        dataclasses.replace(row, name=f"/model/{row.id}/" + "block/" * 8, became="→ kernel 1")
        for row in profile.sources
    )
    lines = printed(dataclasses.replace(profile, sources=rows), 80).splitlines()
    assert any(line.rstrip().endswith("what became of it") for line in lines)


@pytest.mark.parametrize("width", [1, 30, 240])
def test_findings_are_wrapped_below_themselves(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = "words " * 20
    found = Finding("rule", "a title", advice, 10.0, ("some evidence",), (), ())
    monkeypatch.setattr(Profile, "findings", (found,))
    stream = io.StringIO()
    print_findings(Console(file=stream, width=width), profile_of(GraphBuilder("n").finish(), []))
    lines = stream.getvalue().splitlines()
    assert lines[0] == " 1. a title"
    assert all(line.startswith("    ") and line == line.rstrip() for line in lines[1:])
    assert " ".join(" ".join(lines[1:]).split()).endswith(f"some evidence → {advice.strip()}")


@pytest.mark.parametrize(("elapsed_ns", "said"), [(10**9, " 4 runs/s"), (10**5, " 40000 runs/s")])
def test_throughput(elapsed_ns: int, said: str) -> None:
    latency = Distribution(1, 1, 1, 1)
    assert said in throughput_line(Throughput(1, 1, 4, elapsed_ns, latency))
