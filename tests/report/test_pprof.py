"""profile.pb.gz, decoded field by field."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.report.wire_reader import fields, messages, number, unpacked
from whence.attribution.profile import Profile
from whence.report.pprof import pprof, write_pprof


def test_it_is_a_valid_profile(profile: Profile, hostile: str) -> None:
    data = pprof(profile)
    whole = fields(data)
    strings = [value.decode("utf-8") for value in whole[6] if isinstance(value, bytes)]
    assert strings[0] == ""
    assert len(set(strings)) == len(strings)
    kinds = [(strings[number(kind, 1)], strings[number(kind, 2)]) for kind in messages(data, 1)]
    assert kinds == [("calls", "count"), ("attributed", "nanoseconds")]
    functions = {number(each, 1): strings[number(each, 2)] for each in messages(data, 5)}
    locations = {
        number(each, 1): [
            functions[number(fields(line), 1)] for line in each[4] if isinstance(line, bytes)
        ]
        for each in messages(data, 4)
    }
    assert 0 not in functions
    assert 0 not in locations
    samples = messages(data, 2)
    stacks = [
        [name for place in unpacked(sample, 1) for name in locations[place]] for sample in samples
    ]
    values = [unpacked(sample, 2) for sample in samples]
    assert sum(time for _, time in values) == profile.wall_ns == number(whole, 10)
    assert strings[number(whole, 14)] == "attributed"
    (comment,) = [strings[each] for each in unpacked(whole, 13)]
    assert comment.startswith("shares within kernels: modelled")
    assert len(comment) < 160
    # Leaf first: the operator, the kernel it is inlined into, its modules, the model.
    escaped = hostile.replace("\udc80", "\\udc80")
    conv = next(
        stack for stack in stacks if stack[0] == f"{escaped} (Conv)" and "conv" in stack[1].lower()
    )
    assert conv[1].startswith("kernel ")
    assert conv[2:] == ["net.layer1", "net", "made/up.onnx"]
    assert ["(dispatch)", "made/up.onnx"] in stacks


def test_the_file_is_compressed_and_the_same_every_time(profile: Profile, tmp_path: Path) -> None:
    (file,) = write_pprof(profile, tmp_path)
    first = file.read_bytes()
    assert gzip.decompress(first) == pprof(profile)
    write_pprof(profile, tmp_path)
    assert file.read_bytes() == first
