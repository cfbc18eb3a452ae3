"""speedscope.json: frames in range, events balanced and in order, weights that add up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from whence.attribution.profile import Profile
from whence.report.speedscope import speedscope
from whence.report.stacks import location


def test_it_is_valid(profile: Profile, hostile: str) -> None:
    content = json.loads(json.dumps(speedscope(profile)))
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = content["shared"]["frames"]
    assert all(isinstance(frame["name"], str) for frame in frames)
    assert {"name": f"{hostile} (Conv)", "file": "net/model.py", "line": 12} in frames
    flame, timeline = content["profiles"]
    assert flame["type"] == "sampled"
    assert len(flame["samples"]) == len(flame["weights"])
    assert sum(flame["weights"]) == flame["endValue"] == profile.wall_ns
    assert all(0 <= frame < len(frames) for sample in flame["samples"] for frame in sample)
    assert timeline["type"] == "evented"
    stack: list[int] = []
    at = timeline["startValue"]
    for event in timeline["events"]:
        assert event["at"] >= at
        at = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        else:
            assert stack.pop() == event["frame"]
    assert stack == []
    assert at <= timeline["endValue"]
    assert {flame["unit"], timeline["unit"]} == {"nanoseconds"}


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("net/model.py:12", ("net/model.py", 12)),
        ("model.py", ("model.py", 0)),
        ("model.py:²", ("model.py:²", 0)),
        ("m:" + "9" * 5000, ("m:" + "9" * 5000, 0)),
    ],
)
def test_places_in_programs(profile: Profile, line: str, place: tuple[str, int]) -> None:
    assert location(replace(profile.sources[0], line=line)) == place


def test_stacks_go_from_the_model_over_modules_to_the_kernel(profile: Profile) -> None:
    content = speedscope(profile)
    names = [frame["name"] for frame in content["shared"]["frames"]]
    stacks = [[names[frame] for frame in sample] for sample in content["profiles"][0]["samples"]]
    relu = next(stack for stack in stacks if "/net/layer1/relu (Relu)" in stack)
    assert relu[:4] == ["made/up.onnx", "net", "layer1", "/net/layer1/relu (Relu)"]
    assert relu[4].startswith("kernel ")
    assert ["made/up.onnx", "(idle)"] in stacks
