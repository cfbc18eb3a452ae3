"""An ETDump and an ETRecord of the small residual network, with a delegate that maps its operators.

Made by hand, in the form of recorded ones (`record_executorch.py`): XNNPACK, the delegate at hand
when those were recorded, publishes no map.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import NamedTuple

import flatbuffers


class Made(NamedTuple):
    name: str
    instruction: int
    begin: int
    end: int
    delegate_id: int = -1


EVENTS = (
    Made("Method::execute", 0, 0, 100_000),
    Made("OPERATOR_CALL", 0, 1_000, 21_000),
    Made("native_call_convolution.out", 0, 2_000, 20_000),
    Made("DELEGATE_CALL", 1, 22_000, 92_000),
    Made("Convolution (NHWC, F32) IGEMM", 1, 23_000, 53_000, delegate_id=0),
    Made("Convolution (NHWC, F32) IGEMM", 1, 53_000, 88_000, delegate_id=1),
    Made("OPERATOR_CALL", 2, 93_000, 98_000),
    Made("native_call_mean.out", 2, 93_500, 97_500),
)
HANDLES = {
    1: ("aten_convolution_default", "stem"),
    2: ("aten_relu_default", "stem_relu"),
    3: ("aten_convolution_default_1", "a_conv1"),
    4: ("aten_relu_default_1", "a_relu1"),
    5: ("aten_convolution_default_2", "a_conv2"),
    6: ("aten_relu_default_2", "a_relu2"),
    7: ("aten_mean_dim", "pool"),
}


def etdump() -> bytes:
    build = flatbuffers.Builder(1024)
    events = []
    for each in EVENTS:
        name = build.CreateString(each.name)
        build.StartObject(8)
        build.PrependUOffsetTRelativeSlot(0, name, 0)
        build.PrependInt32Slot(2, each.instruction, -1)
        build.PrependInt32Slot(3, each.delegate_id, -1)
        build.PrependUint64Slot(6, each.begin, 0)
        build.PrependUint64Slot(7, each.end, 0)
        profile = build.EndObject()
        build.StartObject(3)
        build.PrependUOffsetTRelativeSlot(0, profile, 0)
        events.append(build.EndObject())
    build.StartVector(4, len(events), 4)
    for event in reversed(events):
        build.PrependUOffsetTRelative(event)
    listed = build.EndVector()
    name = build.CreateString("Execute")
    build.StartObject(4)
    build.PrependUOffsetTRelativeSlot(0, name, 0)
    build.PrependUOffsetTRelativeSlot(3, listed, 0)
    run = build.EndObject()
    build.StartVector(4, 1, 4)
    build.PrependUOffsetTRelative(run)
    runs = build.EndVector()
    build.StartObject(2)
    build.PrependUint32Slot(0, 0, 1)
    build.PrependUOffsetTRelativeSlot(1, runs, 0)
    build.FinishSizePrefixed(build.EndObject(), file_identifier=b"ED00")
    return bytes(build.Output())


def write(folder: Path) -> tuple[Path, Path]:
    dump, record = folder / "run.etdp", folder / "etrecord.bin"
    dump.write_bytes(etdump())
    nodes = [
        {
            "target": "executorch.exir.dialects.edge",
            "outputs": [{"as_tensor": {"name": edge}}],
            "metadata": {
                "debug_handle": str(handle),
                "from_node": json.dumps(
                    [{"name": edge, "target": "", "from_node": [{"name": name, "target": ""}]}]
                ),
            },
        }
        for handle, (edge, name) in HANDLES.items()
    ]
    with zipfile.ZipFile(record, "w") as file:
        file.writestr("ETRECORD_V0", "")
        program = {"graph_module": {"graph": {"nodes": nodes}}}
        file.writestr("edge_dialect_exported_program/forward", json.dumps(program))
        file.writestr("debug_handle_map", json.dumps({"forward": {"0": [1, 2], "2": 7}}))
        delegated = {"0": [3, 4], "1": [5, 6]}
        delegates = {"forward": {"1": {"name": "XnnpackBackend", "delegate_map": delegated}}}
        file.writestr("delegate_map", json.dumps(delegates))
    return dump, record
