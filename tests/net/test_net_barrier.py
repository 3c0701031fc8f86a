"""What waits for the disk, and for how long."""

from __future__ import annotations

from typing import cast

import pytest

from amcast.core import Record, encode
from amcast.net.disk.records import Durability, RecordLog
from amcast.net.node._barrier import DiskBarrier


class Note(Record, frozen=True, tag="note"):
    text: str


class Disk:
    """A record log whose records become durable when the test says so. In memory mode they count as durable at once."""

    def __init__(self, durability: Durability) -> None:
        self.writes = durability is not Durability.MEMORY
        self.records: list[bytes] = []
        self.snapshots: list[int] = []
        self.synced = 0

    @property
    def durable(self) -> int:
        return self.synced if self.writes else len(self.records)

    def append(self, record: bytes) -> int:
        self.records.append(record)
        return len(self.records)

    def append_snapshot(self, record: bytes) -> int:
        self.snapshots.append(len(self.records) + 1)
        return self.append(record)


class Driver:
    """Performs effects as a node does."""

    def __init__(self, durability: Durability) -> None:
        self.disk = Disk(durability)
        self.barrier = DiskBarrier(cast(RecordLog, self.disk))
        self.done: list[str] = []

    def perform(self, effect: str) -> None:
        if self.barrier.is_up:
            self.barrier.hold(0, self.done.append, effect)
        else:
            self.done.append(effect)

    def sync(self, number: int) -> None:
        self.disk.synced = number
        self.barrier.release()


@pytest.mark.parametrize("durability", [Durability.SYNC, Durability.ASYNC])
def test_effects_wait_for_the_record_before_them_and_for_no_other(durability: Durability) -> None:
    driver = Driver(durability)
    driver.perform("before")
    driver.barrier.append(Note("one"))
    driver.perform("a")
    driver.perform("b")
    driver.barrier.append(Note("two"))
    driver.perform("c")
    assert (driver.done, driver.barrier.undurable) == (["before"], 2)
    driver.sync(1)
    assert (driver.done, driver.barrier.undurable) == (["before", "a", "b"], 1)
    driver.perform("d")
    assert driver.done == ["before", "a", "b"], "no effect overtakes one that waits"
    driver.sync(2)
    assert (driver.done, driver.barrier.undurable) == (["before", "a", "b", "c", "d"], 0)
    driver.perform("e")
    assert driver.done[-1] == "e"
    assert driver.disk.records == [encode(Note("one")), encode(Note("two"))]


def test_a_snapshot_is_a_barrier_as_well() -> None:
    driver = Driver(Durability.SYNC)
    driver.barrier.append_snapshot(Note("all"))
    driver.perform("a")
    assert (driver.disk.snapshots, driver.done) == ([1], [])
    driver.sync(1)
    assert driver.done == ["a"]


def test_an_effect_issued_after_a_record_waits_though_nothing_is_held_back() -> None:
    driver = Driver(Durability.SYNC)
    driver.barrier.append(Note("one"))
    driver.barrier.append(Note("two"))
    driver.sync(1)
    driver.perform("a")
    assert driver.done == []
    driver.sync(2)
    assert driver.done == ["a"]


def test_in_memory_mode_nothing_waits_and_nothing_is_encoded() -> None:
    driver = Driver(Durability.MEMORY)
    driver.barrier.append(Note("one"))
    driver.barrier.append_snapshot(Note("all"))
    driver.perform("a")
    assert (driver.done, driver.barrier.undurable) == (["a"], 0)
    assert (driver.disk.records, driver.disk.snapshots) == ([b"", b""], [2])


def test_what_could_not_be_performed_is_tried_again_and_the_rest_waits() -> None:
    driver = Driver(Durability.SYNC)
    answers = [False, False, True]
    driver.barrier.append(Note("1"))
    driver.barrier.hold(10, lambda: answers.pop(0))
    driver.perform("after")
    assert driver.barrier.waiting_bytes > 10
    for _ in range(2):
        driver.sync(1)
        assert driver.barrier.is_up
        assert driver.done == []
    driver.sync(1)
    assert driver.done == ["after"]
    assert not driver.barrier.is_up
    assert driver.barrier.waiting_bytes == 0
