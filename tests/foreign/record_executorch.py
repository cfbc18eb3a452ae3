"""Record an ETDump and an ETRecord of a small network, for tests that run without ExecuTorch.

    pip install executorch==1.5.1 && python -m tests.foreign.record_executorch

From that version on the runtime in the wheel has the event tracer. `portable` runs every operator
by its own kernel, `xnnpack` all that the XNNPACK delegate takes. Of the ETRecord, what is read is
kept: no weights, no stack traces.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("recorded") / "executorch"
_RUNS = 3
_PROGRAM = "edge_dialect_exported_program/forward"
_KEPT = ("debug_handle", "from_node")


def exported() -> Any:
    """The program that was recorded, as `torch.export` gives it."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(8)
            self.conv = torch.nn.Conv2d(8, 8, 3, padding=1)
            self.last = torch.nn.Linear(8, 4)

        def forward(self, x):
            x = torch.relu(self.norm(self.stem(x)))
            x = torch.relu(self.conv(x) + x)
            # No delegate takes it: the network is in two parts.
            x = torch.cumsum(x, 1)
            return torch.softmax(self.last(x.mean((2, 3))), -1)

    torch.manual_seed(0)
    return torch.export.export(Net().eval(), (torch.randn(1, 3, 16, 16),))


def main() -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    FOLDER.mkdir(parents=True, exist_ok=True)
    program = exported()
    for name, partitioners in (("portable", []), ("xnnpack", [XnnpackPartitioner()])):
        lowered = to_edge_transform_and_lower(
            program, partitioner=partitioners, generate_etrecord=True
        ).to_executorch()
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            (folder / "net.pte").write_bytes(lowered.buffer)
            loaded = Runtime.get().load_program(folder / "net.pte", enable_etdump=True)
            method = loaded.load_method("forward")
            for _ in range(_RUNS):
                method.execute(list(program.example_inputs[0]))
            loaded.write_etdump_result_to_file(
                str(FOLDER / f"{name}.etdp"), str(folder / "debug.bin")
            )
            lowered.get_etrecord().save(str(folder / "record"))
            _trim(folder / "record", FOLDER / f"{name}.etrecord")


def _trim(record: Path, target: Path) -> None:
    with zipfile.ZipFile(record) as whole, zipfile.ZipFile(target, "w") as file:
        for name in ("ETRECORD_V0", "debug_handle_map", "delegate_map"):
            file.writestr(name, whole.read(name))
        program = json.loads(whole.read(_PROGRAM))
        nodes = [
            {
                "target": node["target"],
                "outputs": node["outputs"],
                "metadata": {key: value for key, value in node["metadata"].items() if key in _KEPT},
            }
            for node in program["graph_module"]["graph"]["nodes"]
        ]
        content = json.dumps({"graph_module": {"graph": {"nodes": nodes}}})
        file.writestr(_PROGRAM, content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
