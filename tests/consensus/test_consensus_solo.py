"""The log of a group of one."""

from __future__ import annotations

from amcast.consensus import Decided, SnapshotDue, Solo, StateReceived
from amcast.consensus.solo import SoloEntry, SoloSnapshot, SoloStart
from amcast.core import encode
from tests.consensus.paxos_harness import Box, Persist, SetTimer

KEY = "log.1.propose"


def started(records: list[object] | None = None, snapshot_every: int = 100) -> tuple[Solo, list[object]]:
    """A log, and what it hands up when it starts."""
    log = Solo(1, 7, snapshot_every)
    if records is not None:
        log.recover(records)
    return log, log.on_boot(Box())


def order(log: Solo, *entries: str) -> tuple[list[object], Box]:
    box = Box()
    for entry in entries:
        log.propose(entry, box)
    return log.on_timer(KEY, box), box


def test_an_entry_is_decided_when_it_is_on_disk() -> None:
    log, _ = started()
    decisions, box = order(log, "a", "b")
    value = encode(["a", "b"])
    assert decisions == [Decided(0, value)]
    assert box.effects == [SetTimer(KEY, 0), Persist(SoloEntry(0, value), False)]
    assert order(log, "c")[0] == [Decided(1, encode(["c"]))]


def test_it_leads_from_the_start() -> None:
    log, _ = started()
    assert log.is_leader
    assert log.leader == 7


def test_the_first_start_formats_the_disk_and_later_ones_do_not() -> None:
    log, box = Solo(1, 7, 100), Box()
    log.on_boot(box)
    assert box.effects == [Persist(SoloStart(), False)]
    log, box = Solo(1, 7, 100), Box()
    log.recover([SoloStart()])
    assert log.on_boot(box) == []
    assert box.effects == []
    assert log.is_leader


def test_a_timer_without_entries_decides_nothing() -> None:
    log, _ = started()
    assert log.on_timer(KEY, Box()) == []
    assert log.on_timer("other", Box()) == []


def test_it_recovers_what_it_decided() -> None:
    entries = [SoloEntry(0, b"a"), SoloEntry(1, b"b")]
    log, handed = started([SoloStart(), *entries])
    assert handed == [Decided(0, b"a"), Decided(1, b"b")]
    assert order(log, "c")[0] == [Decided(2, encode(["c"]))]


def test_it_recovers_from_a_snapshot_and_what_came_after() -> None:
    log, _ = started(snapshot_every=2)
    assert order(log, "a")[0] == [Decided(0, encode(["a"]))]
    assert order(log, "b")[0] == [Decided(1, encode(["b"])), SnapshotDue()]
    box = Box()
    log.compact(b"state", box)
    assert box.effects == [Persist(SoloSnapshot(2, b"state"), True)]
    assert order(log, "c")[0] == [Decided(2, encode(["c"]))]
    _, handed = started([SoloSnapshot(2, b"state"), SoloEntry(2, b"c")])
    assert handed == [StateReceived(b"state"), Decided(2, b"c")]


def test_without_its_disk_it_stays_silent() -> None:
    """ "It can't know what it promised to other groups." """
    log, handed = started([])
    assert handed == []
    assert not log.is_leader
    assert log.leader is None
    decisions, box = order(log, "a")
    assert decisions == []
    assert box.effects == []
