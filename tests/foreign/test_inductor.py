"""Inductor, run for real: its kernels in the operators of the exported program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pytorch import require_torch
from whence.foreign.run import attribute, prepare, record


@pytest.mark.slow
def test_kernels_of_inductor_find_the_operators_of_the_program(tmp_path: Path) -> None:
    torch = require_torch()

    class Net(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(8)
            self.last = torch.nn.Linear(8, 4)

        def forward(self, x):
            return self.last(torch.relu(self.norm(self.conv(x))).mean((2, 3)))

    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.randn(1, 3, 16, 16),)), path)
    subject = prepare(path)
    profile, placement = attribute(
        subject, record(subject, "inductor", threads=1, runs=2, warmup=1)
    )
    assert profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
    assert profile.engine.startswith("inductor 2.")
    assert {row.name for row in profile.sources if row.time_ns} >= {"conv2d", "relu", "linear"}
    assert placement.checks.heavy_elsewhere == {}
    assert profile.coverage.lost == 0
