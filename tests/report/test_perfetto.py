"""trace.pftrace, decoded field by field."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

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


def _unknown(message: Any) -> list[tuple[str, int]]:
    """The fields, at any depth, that the format does not have."""
    found = [
        (message.DESCRIPTOR.full_name, field.field_number) for field in UnknownFieldSet(message)
    ]
    for field, value in message.ListFields():
        if field.message_type is not None:
            found += [
                each
                for part in (value if field.is_repeated else [value])
                for each in _unknown(part)
            ]
    return found


def test_perfettos_own_description_of_the_format_knows_every_field(profile: Profile) -> None:
    trace = perfetto_trace_pb2.Trace()
    data = perfetto(dataclasses.replace(profile, notes=("one", "two")))
    assert trace.ParseFromString(data) == len(data)
    assert _unknown(trace) == []
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    assert {packet.track_event.type for packet in events} == {
        perfetto_trace_pb2.TrackEvent.TYPE_SLICE_BEGIN,
        perfetto_trace_pb2.TrackEvent.TYPE_SLICE_END,
    }
    notes = {note.name: note.string_value for note in events[0].track_event.debug_annotations}
    assert notes == {"policy": profile.policy, "note 1": "one", "note 2": "two"}
    tracks = {
        packet.track_descriptor.uuid: packet.track_descriptor
        for packet in trace.packet
        if packet.HasField("track_descriptor")
    }
    assert [tracks[uuid].parent_uuid for uuid in sorted(tracks)] == [0, 1, 1]
    begun: dict[int, list[str]] = {uuid: [] for uuid in tracks}
    length = dict.fromkeys((kernel.name for kernel in profile.kernels), 0)
    # As the trace processor does it: by time, and packets of one time as they stand in the file.
    for packet in sorted(events, key=lambda packet: int(packet.timestamp)):
        event = packet.track_event
        if event.type == perfetto_trace_pb2.TrackEvent.TYPE_SLICE_BEGIN:
            begun[event.track_uuid].append(event.name)
            if list(event.categories) == ["kernel"]:
                length[event.name.partition(" ")[2]] -= packet.timestamp
        else:
            ended = begun[event.track_uuid].pop()
            if event.track_uuid == 2 and ended != "run":
                length[ended.partition(" ")[2]] += packet.timestamp
    assert not any(begun.values())
    shown: dict[str, int] = defaultdict(int)
    for slot in profile.timeline:
        shown[profile.kernels[slot.kernel].name] += slot.end_ns - slot.begin_ns
    assert length == shown


def test_waiting_for_threads_is_a_slice_within_its_kernel(profile: Profile) -> None:
    first, *others = profile.timeline
    waiting = first._replace(waited_ns=(first.end_ns - first.begin_ns) // 2)
    found = dataclasses.replace(profile, timeline=(waiting, *others))
    slices = []
    for packet in messages(perfetto(found), 1):
        for content in packet.get(11, []):
            assert isinstance(content, bytes)
            event = fields(content)
            if number(event, 9) == BEGIN and text(event, 23) == "waiting for other threads":
                slices.append(number(packet, 8))
    assert slices == [waiting.end_ns - waiting.waited_ns]
