"""A lane for each thread: from the run on the timeline into the trace and the report."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from pathlib import Path

from tests.report.wire_reader import fields, messages, number, text
from whence.attribution.profile import Profile
from whence.attribution.read import read_profile
from whence.attribution.rows import Event, WorkerEvent
from whence.report.html.content import content
from whence.report.lanes import LaneSpan, lanes
from whence.report.perfetto import perfetto


def with_workers(profile: Profile) -> Profile:
    """Two threads: the caller does the first half of the kernel, the other comes late and does the
    rest.
    """
    kernel = profile.kernels[0].id
    return dataclasses.replace(
        profile,
        timeline=(Event(kernel, 100, 500, 150), Event(kernel, 600, 700)),
        timeline_ns=800,
        workers=(
            WorkerEvent(0, kernel, 100, 350),
            WorkerEvent(0, kernel, 600, 700),
            WorkerEvent(1, kernel, 150, 500),
        ),
    )


def test_a_thread_works_or_waits_while_a_kernel_runs(profile: Profile) -> None:
    known = with_workers(profile)
    kernel = profile.kernels[0].id
    assert lanes(known) == {
        0: [
            LaneSpan(kernel, 100, 350, False),
            LaneSpan(kernel, 350, 500, True),
            LaneSpan(kernel, 600, 700, False),
        ],
        1: [
            LaneSpan(kernel, 100, 150, True),
            LaneSpan(kernel, 150, 500, False),
            LaneSpan(kernel, 600, 700, True),
        ],
    }
    assert lanes(profile) == {}


def test_they_are_in_the_report_and_in_the_file(profile: Profile, tmp_path: Path) -> None:
    known = with_workers(profile)
    assert content(known)["workers"] == [[[0, 100, 350], [0, 600, 700]], [[0, 150, 500]]]
    known.save(tmp_path)
    assert read_profile(tmp_path).workers == known.workers


def test_each_thread_is_a_track_of_the_trace(profile: Profile) -> None:
    packets = messages(perfetto(with_workers(profile)), 1)
    events: dict[int, list[tuple[int, str]]] = defaultdict(list)
    threads = {}
    for packet in packets:
        for content_of in packet.get(60, []):
            assert isinstance(content_of, bytes)
            track = fields(content_of)
            for thread in track.get(4, []):
                assert isinstance(thread, bytes)
                threads[text(fields(thread), 5)] = number(track, 1)
        for told in packet.get(11, []):
            assert isinstance(told, bytes)
            event = fields(told)
            if number(event, 9) == 1:
                events[number(event, 11)].append((number(packet, 8), text(event, 23)))
    kernel = f"{profile.kernels[0].id} {profile.kernels[0].name}"
    assert events[threads["thread 0 (caller)"]] == [(100, kernel), (350, "waiting"), (600, kernel)]
    assert events[threads["thread 1"]] == [(100, "waiting"), (150, kernel), (600, "waiting")]
