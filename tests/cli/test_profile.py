"""`whence profile` and `whence diff` on a small model."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from tests.cli.conftest import Whence, conv_bn_relu
from whence.attribution.read import read_profile
from whence.cli.console import progress


def test_profile_prints_a_table_that_adds_up(whence: Whence, tiny: Path) -> None:
    done = whence("profile", tiny, "--runs", 3, "--warmup", 1, "--threads", 1)
    assert done.code == 0
    # The header has as many lines as its figures need.
    header = " ".join(done.out.replace(" · ", " ").split())
    assert header.startswith("tiny.onnx cpu, 1 thread 3 runs ")
    assert "conv1" in done.out
    assert "4 operators: 2 live, 1 folded, 1 removed, 0 lost" in done.out
    assert "= 100 %" in done.out


def test_profile_leaves_files(whence: Whence, tiny: Path, tmp_path: Path) -> None:
    folder, alone = tmp_path / "out", tmp_path / "deep" / "alone.json"
    done = whence("profile", tiny, "--runs", 2, "-o", folder, "--json", alone)
    assert done.code == 0
    assert {path.name for path in folder.iterdir()} == {
        "profile.json",
        "report.html",
        "debug.xml",
        "profile.duckdb",
        "trace.pftrace",
        "profile.pb.gz",
        "speedscope.json",
        "model_explorer.json",
        "model_explorer_time.json",
        "model_explorer_sync.json",
    }
    content = json.loads(alone.read_text())
    assert content == json.loads((folder / "profile.json").read_text())
    assert content["schema"] == "whence.profile/1"
    assert content["model"] == "tiny.onnx"
    assert [row["name"] for row in content["sources"]] == ["conv1", "bn1", "relu1", "same"]
    assert (
        sum(row["time_ns"] for row in content["sources"]) + sum(content["residual_ns"].values())
        == content["wall_ns"]
    )


def test_full_paths_are_kept_when_asked_for(whence: Whence, tiny: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.json"
    assert whence("profile", tiny, "--runs", 1, "--json", alone, "--full-paths").code == 0
    assert json.loads(alone.read_text())["model"] == str(tiny)


@pytest.mark.parametrize("by", ["type", "module", "line", "kernel", "pass"])
def test_profile_groups(whence: Whence, tiny: Path, by: str) -> None:
    done = whence("profile", tiny, "--runs", 1, "--warmup", 0, "--by", by)
    assert done.code == 0
    assert "= 100 %" in done.out


def test_a_hostile_name_is_printed_escaped(whence: Whence, tmp_path: Path) -> None:
    path = tmp_path / "hostile.onnx"
    onnx.save(conv_bn_relu("\x1b[31m[bold]red[/bold]\n"), path)
    done = whence("profile", path, "--runs", 1, "-o", tmp_path / "out")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "[bold]red[/bold]" in done.out
    assert (
        json.loads((tmp_path / "out" / "profile.json").read_text())["sources"][1]["name"]
        == "\x1b[31m[bold]red[/bold]\n"
    )


@pytest.mark.parametrize("arguments", [["--by", "colour"], ["--runs", "0"], ["--shape", "x:1"]])
def test_bad_usage(whence: Whence, tiny: Path, arguments: list[str]) -> None:
    assert whence("profile", tiny, *arguments).code == 2


def test_diff_of_a_profile_with_itself(whence: Whence, tiny: Path, tmp_path: Path) -> None:
    whence("profile", tiny, "--runs", 2, "-o", tmp_path)
    done = whence("diff", tmp_path, tmp_path / "profile.json", "--fail-over", "5%")
    assert done.code == 0
    assert "4 of 4 operators are within the noise" in done.out


def test_diff_fails_when_over(whence: Whence, tiny: Path, tmp_path: Path) -> None:
    whence("profile", tiny, "--runs", 3, "-o", tmp_path)
    content = json.loads((tmp_path / "profile.json").read_text())
    # Made-up times: how far those of a busy machine spread is not what is tested.
    before, slower, same = (tmp_path / f"{name}.json" for name in ("before", "slower", "same"))
    for file, times in (
        (before, [1000, 1010, 1020]),
        (slower, [1110, 1120, 1130]),
        (same, [1005, 1015, 1025]),
    ):
        file.write_text(json.dumps({**content, "runs_ns": times}))
    assert whence("diff", before, slower).code == 0
    done = whence("diff", before, slower, "--fail-over", "5%")
    assert done.code == 1
    assert "the whole model" in done.err
    assert whence("diff", slower, before, "--fail-over", "5%").code == 0
    assert whence("diff", before, same, "--fail-over", "5%").code == 0


def test_diff_complains_in_one_line(whence: Whence, tmp_path: Path) -> None:
    done = whence("diff", tmp_path / "missing.json", tmp_path)
    assert done.code == 1
    assert "no such file" in done.err
    assert done.err.count("\n") == 1
    assert whence("diff", tmp_path, tmp_path, "--fail-over", "much").code == 2


def test_exact_measures_by_leaving_out(whence: Whence, tiny: Path, tmp_path: Path) -> None:
    done = whence("profile", tiny, "--runs", 2, "--exact", "-o", tmp_path)
    assert done.code == 0
    assert "shares within kernels: measured by leaving out" in done.out
    content = json.loads((tmp_path / "profile.json").read_text())
    assert content["policy"].startswith("Measured by leaving out")
    assert content["policy"] in (tmp_path / "debug.xml").read_text()
    pprof = gzip.decompress((tmp_path / "profile.pb.gz").read_bytes())
    assert b"shares within kernels: measured by leaving out" in pprof
    for name in ("trace.pftrace", "speedscope.json", "model_explorer.json", "report.html"):
        assert b"Measured by leaving out" in (tmp_path / name).read_bytes(), name


def test_a_shape_needs_no_name_where_there_is_one_input(whence: Whence, tmp_path: Path) -> None:
    path = save_exp(tmp_path / "one.onnx", "x")
    done = whence("profile", path, "--runs", 1, "--shape", "4x8", "--by", "kernel")
    assert done.code == 0
    assert "sizes open" not in done.err
    assert whence("run", path, "--shape", "3x8").out.startswith("xy  f32[3,8]")
    assert whence("convert", path, "--shape", "3x8", "-o", tmp_path / "out.onnx").code == 0


def test_a_shape_without_a_name_is_refused_where_there_are_two_inputs(
    whence: Whence, tmp_path: Path
) -> None:
    path = save_exp(tmp_path / "two.onnx", "a", "b")
    done = whence("profile", path, "--shape", "4x8")
    assert done.code == 1
    assert "--shape a=4x8 or --shape b=4x8" in done.err
    done = whence("profile", path, "--shape", "a=4x8", "--shape", "a=3x8")
    assert "two shapes" in done.err


def test_passes_work_on_the_sizes_that_a_profile_would_take(whence: Whence, tmp_path: Path) -> None:
    done = whence("passes", save_exp(tmp_path / "one.onnx", "x"))
    assert done.code == 0
    assert "these are taken: --dim n=1" in done.err


def test_what_a_folder_does_not_have_is_said(whence: Whence, tiny: Path, tmp_path: Path) -> None:
    assert "left out" not in whence("profile", tiny, "--runs", 1, "-o", tmp_path / "all").out
    path = tmp_path / "chosen.onnx"
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 18]> chosen (float[20,8] x, float[20] v) => (float[n,8] y)'
            "<float zero = {0}> { m = Greater(v, zero) r = Compress<axis = 0>(x, m) p = Softmax(r) y = Exp(p) }"
        ),
        path,
    )
    done = whence("profile", path, "--runs", 1, "-o", tmp_path / "some")
    assert "left out: model_explorer*.json, optimised nodes and generated code, as" in done.out
    assert "for sizes that only a run knows" in done.out
    assert not list((tmp_path / "some").glob("model_explorer*"))


def test_passes_why_and_profile_tell_of_the_same_program(whence: Whence, tmp_path: Path) -> None:
    """Positions are a constant where the length is a number, and computed where it is open."""
    path = tmp_path / "positions.onnx"
    zero, one = (numpy_helper.from_array(np.asarray(each, np.int64), f"c{each}") for each in (0, 1))
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], "shape"),
        helper.make_node("Gather", ["s", "c0"], ["n"], "length"),
        helper.make_node("Range", ["c0", "n", "c1"], ["p"], "positions"),
        helper.make_node("Cast", ["p"], ["f"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"], "add"),
    ]
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["length"]) for name in "xy"]
    graph = helper.make_graph(nodes, "positions", kinds[:1], kinds[1:], [zero, one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    profiled = whence("profile", path, "--runs", 1).out
    (counts,) = re.findall(r"5 operators: (\d+ live, \d+ folded)", profiled)
    passes = whence("passes", path)
    assert f"5 source operators: {counts}" in passes.out
    assert "these are taken: --dim length=32" in passes.err
    assert "positions (Range) live" in whence("why", path, "positions").out
    assert "positions (Range) folded" in whence("why", path, "positions", "--dim", "length=32").out
    fixed = whence("passes", path, "--dim", "length=32").out
    assert f"5 source operators: {counts}" not in fixed


def test_a_place_that_cannot_be_written_is_refused_before_the_run(
    whence: Whence, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for option, place, reason in (
        ("-o", tmp_path / "file" / "deep", "is a file"),
        ("--json", tmp_path, "is a folder"),
        ("-o", Path("/proc/whence"), "cannot write to '/proc'"),
        ("--json", Path("/proc/whence/x.json"), "cannot write to '/proc'"),
    ):
        monkeypatch.setattr(
            "whence.cli.profile.compile_model", lambda *_, **__: pytest.fail("it was compiled")
        )
        done = whence("profile", tiny, option, place)
        assert done.code == 1
        assert reason in done.err
        assert not done.out


def test_files_are_written_before_the_table_is_read(tiny: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from whence.cli.main import main; sys.argv[1:] ="
        f" ['profile', {str(tiny)!r}, '--runs', '1', '-o', {str(tmp_path / 'out')!r}]; main()"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stderr is not None
    # As `| head -0` does.
    running.stdout.close()
    assert "Traceback" not in running.stderr.read()
    running.wait(timeout=120)
    running.stderr.close()
    assert (tmp_path / "out" / "report.html").exists()
    assert (tmp_path / "out" / "profile.json").exists()


def test_a_bar_shows_no_count_while_there_is_none() -> None:
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress("compiling", console=shown) as bar:
        bar.refresh()
        bar.update(bar.task_ids[0], completed=2, total=5)
        bar.refresh()
    assert isinstance(shown.file, io.StringIO)
    assert "None" not in shown.file.getvalue()
    assert "2/5" in shown.file.getvalue()


def test_a_bar_is_titled_with_any_name() -> None:
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress("reading a[/b].onnx", console=shown) as bar:
        bar.show("measured [bold]c", 1, 2)
        bar.refresh()
    assert isinstance(shown.file, io.StringIO)
    assert "reading a[/b].onnx" in shown.file.getvalue()
    assert "measured [bold]c" in shown.file.getvalue()


def save_exp(path: Path, *names: str) -> Path:
    """A model that leaves the rows of its inputs open."""
    kinds = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8])
        for name in (*names, *(f"{name}y" for name in names))
    ]
    nodes = [helper.make_node("Exp", [name], [f"{name}y"]) for name in names]
    graph = helper.make_graph(nodes, "open", kinds[: len(names)], kinds[len(names) :])
    onnx.save(helper.make_model(graph), path)
    return path


def test_a_profile_knows_what_it_is_of(whence: Whence, tmp_path: Path) -> None:
    path = save_exp(tmp_path / "one.onnx", "x")
    done = whence("profile", path, "--runs", 1, "--shape", "4x8", "-o", tmp_path / "out")
    assert done.code == 0
    facts = json.loads((tmp_path / "out" / "profile.json").read_text())["environment"]
    assert facts["input x"] == "4×8"
    assert facts["model sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert {"whence", "cpu", "cores", "system", "date", "ziglang"} <= set(facts)
    assert read_profile(tmp_path / "out").environment == facts
    pprof = gzip.decompress((tmp_path / "out" / "profile.pb.gz").read_bytes())
    for name in ("debug.xml", "trace.pftrace", "speedscope.json", "model_explorer.json"):
        assert facts["model sha256"].encode() in (tmp_path / "out" / name).read_bytes(), name
    assert facts["model sha256"].encode() in pprof
    assert facts["model sha256"] in (tmp_path / "out" / "report.html").read_text()
    done = whence("profile", path, "--runs", 1, "--json", tmp_path / "guessed.json")
    facts = json.loads((tmp_path / "guessed.json").read_text())["environment"]
    assert (facts["input x"], facts["dimension n"]) == ("1×8", "1")


def test_another_engine_is_profiled_in_the_operators_of_the_file(
    whence: Whence, tiny: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    options = ("--engine", "onnxruntime", "--runs", 2, "--warmup", 1, "--threads", 1)
    done = whence("profile", tiny, *options, "-o", folder)
    assert done.code == 0
    # The header has as many lines as its figures need.
    assert done.out.startswith("tiny.onnx")
    assert "onnxruntime 1." in done.out
    assert "conv1" in done.out
    found = read_profile(folder)
    assert [row.name for row in found.sources] == ["conv1", "bn1", "relu1", "same"]
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    assert {kernel.evidence for kernel in found.kernels} <= {"tensor", "name", "neighbour"}


@pytest.mark.parametrize(
    ("engine", "hint"), [("tvm", ""), ("tensorrt", "; `whence import` reads traces of tensorrt")]
)
def test_an_unknown_engine_is_told_which_there_are(
    whence: Whence, tiny: Path, engine: str, hint: str
) -> None:
    done = whence("profile", tiny, "--engine", engine)
    assert done.code == 1
    text = " ".join(done.err.split())
    assert f"there is no engine '{engine}'; there are cpu, opencl, " in text
    assert f"onnxruntime, openvino, inductor, litert{hint}" in text


def test_options_of_our_own_kernels_are_not_for_other_engines(whence: Whence, tiny: Path) -> None:
    assert whence("profile", tiny, "--engine", "onnxruntime", "--exact").code == 2


def with_open_batch(path: Path) -> Path:
    """A product whose number of rows is open."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 3], [0.5] * 12)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [weight],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def test_streams_and_batch_give_a_throughput(whence: Whence, tmp_path: Path) -> None:
    model, file = with_open_batch(tmp_path / "rows.onnx"), tmp_path / "profile.json"
    options = ("--runs", 3, "--threads", 1, "--streams", 2, "--batch", 5, "--json", file)
    done = whence("profile", model, *options)
    assert done.code == 0
    assert "2 streams, batch 5: " in done.out
    assert "samples/s" in done.out
    found = read_profile(file)
    assert found.environment["input x"] == "5×4"
    assert found.throughput is not None
    assert (found.throughput.streams, found.throughput.batch, found.throughput.runs) == (2, 5, 16)
    assert found.throughput.samples_per_second == pytest.approx(
        5 * 16e9 / found.throughput.elapsed_ns
    )


def test_a_batch_that_the_model_does_not_take_is_refused(whence: Whence, tiny: Path) -> None:
    done = whence("profile", tiny, "--batch", 4)
    assert done.code != 0
    assert "no input of the model takes a batch of another size (x " in done.err
