"""Traces made elsewhere: what engines' own tools write, as profiles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Whence
from tests.cli.conftest import whence as whence_command
from tests.debugdb.making import DATA
from tests.foreign import executorch_files, inductor_files, tensorrt_files
from tests.foreign.models import make
from tests.foreign.record import FOLDER
from tests.foreign.record_executorch import exported
from tests.pytorch import require_torch
from whence.attribution.profile import Profile
from whence.attribution.read import read_profile
from whence.errors import InputError, ModelError
from whence.foreign.executorch_reader import read_etdump, read_handles
from whence.foreign.import_trace import detect, import_trace
from whence.foreign.run import load_source
from whence.foreign.source import SourceGraph
from whence.foreign.tensorrt_reader import layer_members

__all__ = ["whence_command"]
EXECUTED = Path(__file__).with_name("recorded") / "openvino_exec_graph.xml"
"""Of the residual network: `openvino.serialize(compiled.get_runtime_model(), ...)` of OpenVINO
2026.4.1 after three runs, on x86-64 with AVX2.
"""


def times_of(profile: Profile) -> dict[str, int]:
    return {row.name: row.time_ns for row in profile.sources if row.time_ns}


def closes(profile: Profile) -> bool:
    return profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns


def test_onnxruntime(tmp_path: Path) -> None:
    folder = FOLDER / "onnxruntime" / "residual"
    trace, graph = folder / "trace.json", folder / "optimised.onnx"
    assert detect(trace) == "onnxruntime"
    found = import_trace(trace, make("residual", tmp_path), graph=graph)
    assert closes(found)
    # A trace does not say which runs were to warm up.
    assert found.runs == 3
    assert found.engine == "onnxruntime"
    assert times_of(found).keys() >= {"stem", "a_conv1", "a_conv2", "b_conv1", "b_conv2"}


def test_openvino(tmp_path: Path) -> None:
    assert detect(EXECUTED) == "openvino"
    found = import_trace(EXECUTED, make("residual", tmp_path))
    assert closes(found)
    assert found.residual_ns == {}
    assert any("first" in note for note in found.notes)
    assert times_of(found).keys() >= {"stem", "a_conv1", "a_conv2", "b_conv1", "b_conv2", "pool"}


def test_openvino_with_a_counters_report(tmp_path: Path) -> None:
    report = tmp_path / "benchmark_detailed_counters_report.csv"
    report.write_text(
        "layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms)\n"
        "pool_out;Status.EXECUTED;Reduce;jit_avx2_f32;0.25;0.25\n"
        "stem_bn;Status.NOT_RUN;BatchNorm;undef;0;0\n"
    )
    found = import_trace(EXECUTED, make("residual", tmp_path), graph=report)
    assert times_of(found) == {"pool": 250_000}
    report.write_text("nothing;here\n")
    with pytest.raises(ModelError, match="no detailed counters report"):
        import_trace(EXECUTED, make("residual", tmp_path), graph=report)


def test_tensorrt(tmp_path: Path) -> None:
    trace, layers = tensorrt_files.write(tmp_path)
    assert detect(trace) == "tensorrt"
    found = import_trace(trace, make("residual", tmp_path), graph=layers)
    assert closes(found)
    assert found.residual_ns == {}
    assert found.wall_ns == 149_000
    by_kernel = {kernel.name: kernel for kernel in found.kernels}
    names = {row.id: row.name for row in found.sources}
    fused = by_kernel[tensorrt_files.A2]
    assert [names[part.id] for part in fused.origin] == ["a_conv2", "a_bn2", "a_add", "a_relu2"]
    # The tensor's name is on the reformat behind it.
    assert fused.evidence == "tensor"
    moved = by_kernel[f"Reformatting CopyNode for Output Tensor 0 to {tensorrt_files.A2}"]
    assert moved.inserted
    assert [names[part.id] for part in moved.origin] == ["b_conv1", "b_conv2"]
    assert "7 of 7 data edges between kernels are edges of the engine's graph" in found.notes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv3.weight + conv3 + PWN(act1)", ["conv3", "act1"]),
        ("PWN(PWN(sig1), act1)", ["sig1", "act1"]),
        ("pool_clone_1", ["pool"]),
        ("cat_act2_out copy", ["cat"]),
        ("cat_act2_out_clone_0 copy", ["cat"]),
        ("(Unnamed Layer* 107) [Shuffle]", []),
    ],
)
def test_names_of_tensorrt_layers(name: str, expected: list[str], tmp_path: Path) -> None:
    source = SourceGraph(load_source(make("silu", tmp_path)))
    assert [source[each].name for each in layer_members(source, name)] == expected


def test_inductor(tmp_path: Path) -> None:
    trace, mappings = inductor_files.write(tmp_path)
    assert detect(trace) == "inductor"
    found = import_trace(trace, make("residual", tmp_path), graph=mappings)
    assert closes(found)
    assert found.runs == 2
    assert found.wall_ns == 200_000
    assert found.residual_ns == {"dispatch": 77_000}
    names = {row.id: row.name for row in found.sources}
    told = {
        kernel.name: (kernel.time_ns, {names[part.id] for part in kernel.origin})
        for kernel in found.kernels
    }
    # The same kernel twice in a run, in the order of its handles.
    assert told["extern_kernels.convolution:1"] == (41_000, {"stem"})
    assert told["cpp_fused_native_batch_norm_relu_0:2"] == (8_000, {"stem_bn", "stem_relu"})
    assert told["extern_kernels.convolution:3"] == (60_000, {"a_conv1"})
    assert told["cpp_fused_native_batch_norm_relu_0:4"][0] == 10_000


def test_names_after_aotautograd_are_not_those_of_the_program(tmp_path: Path) -> None:
    """Decomposing a normalisation makes nodes such as add_1, which may be the name of another
    operator of the program. A generated kernel that lists an operator of a library call lays out
    operands for it.
    """
    trace, mappings = inductor_files.write(tmp_path)
    content = json.loads(mappings.read_text())
    renamed = {"add": "a_add", "mul": "b_add"}
    for node, name in renamed.items():
        content["postToPre"][name] = content["postToPre"].pop(node)
    lowered = content["cppCodeToPost"]
    fused, layout = "cpp_fused_native_batch_norm_relu_0:2", "cpp_fused_mean_1:5"
    lowered[fused] = [*(renamed.get(each, each) for each in lowered[fused]), "convolution_1"]
    lowered[layout] = ["convolution_1"]
    mappings.write_text(json.dumps(content))
    found = import_trace(trace, make("residual", tmp_path), graph=mappings)
    assert closes(found)
    names = {row.id: row.name for row in found.sources}
    by_kernel = {kernel.name: kernel for kernel in found.kernels}
    assert {names[part.id] for part in by_kernel[fused].origin} == {"stem_bn", "stem_relu"}
    assert by_kernel[layout].inserted
    assert [names[part.id] for part in by_kernel[layout].origin] == ["a_conv1"]


def test_inductors_files_are_checked(tmp_path: Path) -> None:
    trace, mappings = inductor_files.write(tmp_path)
    model = make("residual", tmp_path)
    mappings.write_text("{}")
    with pytest.raises(ModelError, match="no mappings of Inductor"):
        import_trace(trace, model, graph=mappings)
    inductor_files.write(tmp_path)
    trace.write_text('{"traceEvents": []}')
    with pytest.raises(ModelError, match="no call of compiled code"):
        import_trace(trace, model, graph=mappings)


def test_executorch(tmp_path: Path) -> None:
    dump, record = executorch_files.write(tmp_path)
    assert detect(dump) == "executorch"
    found = import_trace(dump, make("residual", tmp_path), graph=record)
    assert closes(found)
    assert found.wall_ns == 100_000
    # What is in no event, and what a delegate does besides its operators.
    assert found.residual_ns == {"dispatch": 5_000, "uncertain: DELEGATE_CALL": 5_000}
    names = {row.id: row.name for row in found.sources}
    told = {
        kernel.name: ([names[part.id] for part in kernel.origin], kernel.time_ns)
        for kernel in found.kernels
    }
    assert told["0 convolution.out"] == (["stem", "stem_bn", "stem_relu"], 20_000)
    assert told["1.0 Convolution (NHWC, F32) IGEMM"] == (["a_conv1", "a_bn1", "a_relu1"], 30_000)
    assert told["1.1 Convolution (NHWC, F32) IGEMM"][0] == ["a_conv2", "a_bn2", "a_add", "a_relu2"]
    assert told["1 DELEGATE_CALL"] == ([], 5_000)


def test_recorded_dumps_are_read() -> None:
    """What ExecuTorch 1.5.1 wrote on x86-64, see `record_executorch.py`."""
    dump, record = (FOLDER / "executorch" / f"portable.{kind}" for kind in ("etdp", "etrecord"))
    assert detect(dump) == "executorch"
    loading, *runs = read_etdump(dump)
    assert "Method::init" in {event.name for event in loading}
    assert len(runs) == 3
    for events in runs:
        calls = [event.instruction for event in events if event.name == "OPERATOR_CALL"]
        assert calls == list(range(11))
    handles = read_handles(record)
    assert [handles[number, ""] for number in (0, 1, 3)] == [
        ("conv2d",),
        ("batch_norm",),
        ("conv2d_1",),
    ]
    # A product of a matrix that is transposed first: both are the one operator of the program.
    assert handles[8, ""] == handles[9, ""] == ("linear",)
    whole = read_handles(record.with_name("xnnpack.etrecord"))
    assert whole[0, ""] == ("conv2d", "batch_norm", "relu", "conv2d_1", "add", "relu_1")


@pytest.mark.parametrize("name", ["portable", "xnnpack"])
def test_recorded_dumps_are_profiles(name: str, tmp_path: Path) -> None:
    torch = require_torch()
    model = tmp_path / "net.pt2"
    torch.export.save(exported(), model)
    dump, record = (FOLDER / "executorch" / f"{name}.{kind}" for kind in ("etdp", "etrecord"))
    found = import_trace(dump, model, graph=record)
    assert closes(found)
    assert found.runs == 3
    assert found.residual_ns.keys() == {"dispatch"}
    assert len(times_of(found)) == len(found.sources) == 10
    assert not any("uncertain" in note for note in found.notes)
    kernels = {kernel.name for kernel in found.kernels}
    assert ("0 DELEGATE_CALL" if name == "xnnpack" else "0 convolution.out") in kernels


def test_damaged_dumps_are_refused(tmp_path: Path) -> None:
    dump, record = executorch_files.write(tmp_path)
    model, whole = make("residual", tmp_path), dump.read_bytes()
    bad_root = whole[:4] + b"\xff\xff\xff\x7f" + whole[8:]
    for content in (whole[:20], whole[:12] + bytes(40), bad_root, whole[8:]):
        dump.write_bytes(content)
        with pytest.raises(ModelError, match=r"ETDump|no profiled operators"):
            import_trace(dump, model, graph=record, format_name="executorch")
    dump.write_bytes(whole)
    record.write_bytes(b"no zip")
    with pytest.raises(ModelError, match="is no ETRecord"):
        import_trace(dump, model, graph=record)


def test_what_a_tool_does_not_write_is_one_line(tmp_path: Path) -> None:
    model = make("residual", tmp_path)

    def complaint(trace: Path, graph: Path | None, kind: str) -> str:
        with pytest.raises(ModelError) as caught:
            import_trace(trace, model, graph=graph, format_name=kind)
        return str(caught.value)

    trace, mappings = inductor_files.write(tmp_path)
    trace.write_text('{"traceEvents": [{"ph": "X", "name": "a", "dur": 1}]}')
    assert "is no trace of torch.profiler: KeyError 'ts'" in complaint(trace, mappings, "inductor")
    never = {"ph": "X", "name": "Torch-Compiled Region: 0/0", "ts": 0, "dur": float("inf")}
    trace.write_text(json.dumps({"traceEvents": [never]}))
    assert "has times that are none in a trace" in complaint(trace, mappings, "inductor")
    mappings.write_text('{"postToPre": {}, "cppCodeToPost": {"a:b": []}}')
    assert "no mappings of Inductor: ValueError" in complaint(trace, mappings, "inductor")
    profile, layers = tensorrt_files.write(tmp_path)
    layers.write_text('{"Layers": [{"Name": "a", "Outputs": 5}]}')
    assert "layers that trtexec does not write" in complaint(profile, layers, "tensorrt")
    profile.write_text('[{"name": "a", "averageMs": 1e999}]')
    assert "OverflowError" in complaint(profile, layers, "tensorrt")
    (profile, layers), years = tensorrt_files.write(tmp_path), '[{"name": "a", "averageMs": 1e30}]'
    profile.write_text(years)
    assert "has times that are none in a trace" in complaint(profile, layers, "tensorrt")
    recorded, graph = FOLDER / "onnxruntime" / "residual", tmp_path / "optimised.onnx"
    graph.write_bytes((recorded / "optimised.onnx").read_bytes().replace(b"stem", b"ste\xff"))
    assert "not UTF-8" in complaint(recorded / "trace.json", graph, "onnxruntime")
    report = tmp_path / "counters.csv"
    report.write_text("layerName;execStatus;realTime (ms)\npool;EXECUTED;soon\n")
    assert "no detailed counters report: ValueError" in complaint(EXECUTED, report, "openvino")
    other = tmp_path / "net.xml"
    other.write_text('<?xml version="1.0" encoding="klingon"?><net></net>')
    assert "is not XML: " in complaint(other, None, "openvino")
    events = tmp_path / "events.json"
    events.write_text('[{"name": "model_run", "ts": 1}]')
    graph = FOLDER / "onnxruntime" / "residual" / "optimised.onnx"
    assert "KeyError 'dur'" in complaint(events, graph, "onnxruntime")
    dump, record = executorch_files.write(tmp_path)
    content = bytearray(record.read_bytes())
    content[len(content) // 2] ^= 0xFF
    record.write_bytes(content)
    assert "is no ETRecord" in complaint(dump, record, "executorch")


@pytest.mark.parametrize("name", ["regor_u55.xml", "regor_u85.xml"])
def test_vela(name: str) -> None:
    assert detect(DATA / name) == "vela"
    found = import_trace(DATA / name, DATA / "tinycnn.tflite")
    assert closes(found)
    assert found.engine == "Ethos-U by Vela"
    assert len(times_of(found)) > 5


def test_a_layer_that_is_not_what_it_says_is_uncertain(tmp_path: Path) -> None:
    trace, layers = tensorrt_files.write(tmp_path)
    layers.write_text(layers.read_text().replace('"Kernel": [3, 3]', '"Kernel": [5, 5]'))
    found = import_trace(trace, make("residual", tmp_path), graph=layers)
    assert closes(found)
    assert found.residual_ns == {"uncertain: CaskConvolution": 142_000}


def test_profiles_are_like_any_other(whence_command: Whence, tmp_path: Path) -> None:
    trace, layers = tensorrt_files.write(tmp_path)
    model, folder = make("residual", tmp_path), tmp_path / "out"
    done = whence_command("import", trace, "--model", model, "--graph", layers, "-o", folder)
    assert done.code == 0, done.err
    # Who made it, on what and with how many threads, is not known.
    assert "residual.onnx · tensorrt · 1 run" in done.out
    assert "profiling cost not known" in done.out
    assert not read_profile(folder).environment.keys() & {"cpu", "cores", "python"}
    assert (folder / "profile.duckdb").exists()
    assert (folder / "report.html").exists()
    assert closes(read_profile(folder))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    trace, layers = tensorrt_files.write(tmp_path)
    model = make("residual", tmp_path)
    with pytest.raises(InputError, match="--graph what trtexec --exportLayerInfo wrote"):
        import_trace(trace, model)
    with pytest.raises(InputError, match="there is no format 'tvm'"):
        import_trace(trace, model, format_name="tvm")
    layers.write_text('{"Layers": ["stem + stem_relu"]}')
    with pytest.raises(ModelError, match="--profilingVerbosity=detailed"):
        import_trace(trace, model, graph=layers)
    other = tmp_path / "other.json"
    shutil.copy(model, other)
    with pytest.raises(ModelError, match="no trace that is known"):
        detect(other)
    with pytest.raises(ModelError, match="cannot read"):
        detect(tmp_path / "none")
