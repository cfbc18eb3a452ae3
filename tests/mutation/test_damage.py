"""A few hundred damaged files of each format; `python -m tests.mutate_bytes` reads any number."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.mutate_bytes import GOOD, Run, candidate, outcome, sources
from tests.mutation import damage
from tests.mutation.damage import Stuck, limited

COUNT = 600


def test_whole_files_are_read():
    for name, data, read in sources():
        assert outcome(data, read) == ("read", ""), name


@pytest.mark.filterwarnings("ignore")
def test_damaged_files_are_read_or_refused():
    seen: Counter[str] = Counter()
    for index in range(COUNT):
        name, data, read = candidate(13, index)
        kind, text = outcome(data, read)
        assert kind in GOOD, f"{index} {name}: {text}"
        seen[kind] += 1
    assert min(seen.values()) > COUNT / 10


def endless():
    while True:
        pass


def test_waiting_for_a_busy_machine_is_not_being_stuck():
    with limited(0.1):
        time.sleep(0.3)
    with pytest.raises(Stuck), limited(0.1):
        endless()
    with pytest.raises(Stuck), limited(0.01):
        time.sleep(60)


def test_a_process_that_hardly_gets_a_processor_is_not_stuck(monkeypatch):
    monkeypatch.setattr(damage, "_WAITING", 2)
    began = time.monotonic()
    with limited(0.3):
        while time.monotonic() - began < 1:
            time.sleep(0.1)
            spin = time.process_time()
            while time.process_time() - spin < 1e-3:
                pass


def test_every_range_is_read_once_in_processes_of_its_own():
    run = Run(13)
    run.range(0, 130)
    assert run.counts.total() == 130
    assert not run.defects
