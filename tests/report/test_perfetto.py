"""trace.pftrace, decoded field by field."""

from __future__ import annotations

from collections import defaultdict

from tests.report.wire_reader import fields, messages, number, text
from whence.attribution.profile import Profile
from whence.report.perfetto import perfetto

BEGIN, END = 1, 2


def test_it_is_a_valid_trace(profile: Profile, hostile: str) -> None:
    packets = messages(perfetto(profile), 1)
    assert all(number(packet, 10) == 1 for packet in packets), "every packet needs a sequence"
    assert number(packets[0], 13) == 1, "the first packet starts the sequence anew"
    tracks = {}
    for packet in packets:
        for content in packet.get(60, []):
            assert isinstance(content, bytes)
            track = fields(content)
            tracks[number(track, 1)] = track
    assert all(number(track, 5) in {0, *tracks} for track in tracks.values())
    process = tracks[1][3][0]
    assert isinstance(process, bytes)
    assert text(fields(process), 6) == "whence cpu: made/up.onnx"

    last: dict[int, int] = defaultdict(int)
    depth: dict[int, int] = defaultdict(int)
    flows: dict[int, set[int]] = defaultdict(set)
    names: dict[int, list[str]] = defaultdict(list)
    for packet in packets:
        if 11 not in packet:
            continue
        content = packet[11][0]
        assert isinstance(content, bytes)
        event, at = fields(content), number(packet, 8)
        lane = number(event, 11)
        assert lane in tracks
        assert at >= last[lane]
        last[lane] = at
        if number(event, 9) == BEGIN:
            depth[lane] += 1
            names[lane].append(text(event, 23))
            for flow in event.get(47, []):
                assert isinstance(flow, int)
                flows[flow].add(lane)
        else:
            assert number(event, 9) == END
            depth[lane] -= 1
            assert depth[lane] >= 0
    assert set(depth.values()) == {0}, "every slice that begins ends"
    assert all(len(ends) == 2 for ends in flows.values()), "a flow ties an operator to its kernel"
    assert names[2] == ["run", *(f"{kernel.id} {kernel.name}" for kernel in profile.kernels)]
    assert hostile.replace("\udc80", "\\udc80") in names[3]


def test_an_operator_carries_its_number_and_its_line(profile: Profile) -> None:
    found = []
    for packet in messages(perfetto(profile), 1):
        for content in packet.get(11, []):
            assert isinstance(content, bytes)
            event = fields(content)
            if number(event, 52) == 1:
                stack = event[55][0]
                assert isinstance(stack, bytes)
                (frame,) = messages(stack, 1)
                found.append((text(frame, 1), text(frame, 2), number(frame, 3)))
    assert set(found) == {("net.layer1", "net/model.py", 12)}
