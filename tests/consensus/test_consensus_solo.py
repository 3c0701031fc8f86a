"""The log of a group of one."""

from __future__ import annotations

from msgspec.structs import replace

from amcast.consensus import Decided, PaxosConfig, SnapshotDue, Solo, StateReceived
from amcast.consensus.solo import SoloEntry, SoloSnapshot, SoloStart
from amcast.core import encode
from tests.consensus.paxos_harness import Box, Persist, SetTimer

KEY = "log.1.propose"


CONFIG = PaxosConfig(snapshot_every=100)


def started(records: list[object] | None = None, **limits: int) -> tuple[Solo, list[object]]:
    """A log, and what it hands up when it starts."""
    log = Solo(1, 7, replace(CONFIG, **limits))
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
    log, box = Solo(1, 7, CONFIG), Box()
    log.on_boot(box)
    assert box.effects == [Persist(SoloStart(), False)]
    log, box = Solo(1, 7, CONFIG), Box()
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


def test_a_snapshot_is_due_after_so_many_bytes() -> None:
    log, _ = started(snapshot_bytes=10)
    assert order(log, "abcd")[0] == [Decided(0, encode(["abcd"]))]  # 6 bytes
    assert order(log, "efgh")[0] == [Decided(1, encode(["efgh"])), SnapshotDue()]
    log.compact(b"state", Box())
    assert order(log, "ijkl")[0] == [Decided(2, encode(["ijkl"]))]


def test_bytes_from_before_a_restart_count_for_the_next_snapshot() -> None:
    records = [SoloSnapshot(2, b"state"), SoloEntry(2, b"123456")]
    log, handed = started(records, snapshot_bytes=10)
    assert handed == [StateReceived(b"state"), Decided(2, b"123456")]
    assert order(log, "abcd")[0] == [Decided(3, encode(["abcd"])), SnapshotDue()]
    _, handed = started([*records, SoloEntry(3, b"1234")], snapshot_bytes=10)
    assert handed[-1] == SnapshotDue()


def test_without_its_disk_it_stays_silent() -> None:
    """ "It can't know what it promised to other groups." """
    log, handed = started([])
    assert handed == []
    assert not log.is_leader
    assert log.is_silent
    assert log.leader is None
    decisions, box = order(log, "a")
    assert decisions == []
    assert box.effects == []
