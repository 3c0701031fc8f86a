"""Delivery logs with gaps: a process was given a state, and what it missed is filled in later."""

from __future__ import annotations

from pathlib import Path

import pytest

from amcast.net.disk._segments import FILE_HEADER
from amcast.net.disk.deliveries import PositionGoneError
from tests.net.logs import copy_of

from .test_net_deliveries import deliver, fill, message_at, open_log, read_all


def test_a_state_that_was_received_leaves_a_gap(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=500)
    deliver(log, 0, 100)
    log.skip_to(50)
    assert (log.gaps(), log.next) == ([], 100)
    log.flush()
    deliver(log, 100, 110)
    log.skip_to(1000)
    for _ in range(2):
        assert (log.first, log.next, log.gaps()) == (0, 1000, [(110, 1000)])
        assert log.has(109)
        assert not log.has(110)
        with pytest.raises(PositionGoneError, match="start at 1000"):
            log.read(110, 1)
        with pytest.raises(PositionGoneError, match="start at 1000"):
            log.read(999, 1)
        log.close()
        log = open_log(tmp_path, segment_bytes=500)
    deliver(log, 1000, 1100)
    assert read_all(log, 1000) == [message_at(position) for position in range(1000, 1100)]
    assert log.read(60, 1) == [message_at(60)]
    assert not log.append(500, *message_at(501))  # nothing is known of it
    log.close()
    log = open_log(tmp_path)
    assert (log.first, log.next, log.gaps()) == (0, 1100, [(110, 1000)])
    log.close()


def test_gaps_are_filled_in_pieces(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=500)
    deliver(log, 0, 30)
    log.skip_to(100)
    log.skip_to(200)  # without a delivery in between
    deliver(log, 200, 210)
    log.skip_to(300)
    assert log.gaps() == [(30, 200), (210, 300)]
    fill(log, 30, 60)
    fill(log, 150, 200)
    for _ in range(2):
        assert log.gaps() == [(60, 150), (210, 300)]
        with pytest.raises(PositionGoneError, match="start at 150"):
            read_all(log)
        log.close()
        log = open_log(tmp_path, segment_bytes=500)
    fill(log, 60, 150)
    fill(log, 210, 300)
    for _ in range(2):
        assert log.gaps() == []
        assert read_all(log) == [message_at(position) for position in range(300)]
        log.close()
        log = open_log(tmp_path, segment_bytes=500)
    log.close()


def test_a_log_that_begins_late_is_filled_from_its_front(tmp_path: Path) -> None:
    """That of a process that lost its disk: the group gives it a state, and the others its messages."""
    log = open_log(tmp_path, keep=150)
    log.skip_to(200)
    assert (log.kept_from, log.gaps()) == (50, [(0, 200)])
    fill(log, 40, 200)
    log.close()
    log = open_log(tmp_path, keep=150)
    assert (log.first, log.gaps()) == (40, [])  # nothing below 50 is missed
    assert read_all(log, 40) == [message_at(position) for position in range(40, 200)]
    deliver(log, 200, 500)
    log.flush()
    assert log.first == 200  # what was filled is dropped as everything else
    assert list(tmp_path.glob("filled-*")) == []
    log.close()


def test_nothing_is_dropped_that_the_application_may_need(tmp_path: Path) -> None:
    log = open_log(tmp_path, keep=10, segment_bytes=200)
    log.keep_from = 0
    for position in range(100):
        deliver(log, position, position + 1)
        log.flush()
    assert log.first == 0
    log.keep_from = 60
    deliver(log, 100, 101)
    log.flush()
    assert 50 < log.first <= 60
    log.close()


def test_a_filled_segment_that_is_not_whole_is_filled_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    log.skip_to(100)
    fill(log, 0, 50)
    log.close()
    (path,) = (tmp_path / "log").glob("filled-*")
    content = path.read_bytes()
    for damaged in (b"", content[:10], content[: FILE_HEADER + 20], bytes(len(content))):
        folder = copy_of(tmp_path / "log", tmp_path / "copy")
        (folder / path.name).write_bytes(damaged)
        log = open_log(folder)
        assert log.gaps() == [(0, 100)]
        fill(log, 0, 100)
        assert log.read(99, 1) == [message_at(99)]
        log.close()


def test_a_beginning_is_never_full(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1)
    log.skip_to(1)
    deliver(log, 1, 2)
    log.flush()
    log.skip_to(5)
    deliver(log, 5, 6)
    log.close()
    log = open_log(tmp_path)
    assert read_all(log, 5) == [message_at(5)]
    log.close()
