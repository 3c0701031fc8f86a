"""The order of conflicts: which traces have one, and which have none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amcast.check import Report, check_run
from amcast.trace import FINAL, GroupInfo, Recorder, Run, RunInfo, read_run, write_run

A, B = 101, 102  # objects


def made(
    orders: dict[int, list[int]], objects: dict[int, tuple[int, ...]], restored: dict[int, int] | None = None
) -> Run:
    """Two groups of two processes: 0 and 1, 2 and 3. Each executes messages in its order; some begin with a state."""
    recorder = Recorder()
    for msg, touched in objects.items():
        recorder.multicast(msg, 9, msg, (1, 2), msg, 8)
        recorder.touches(msg, touched)
    for process, order in orders.items():
        first = (restored or {}).get(process, 0)
        if first:
            recorder.fault(process, 1, "restored", json.dumps({"position": first}))
        for position, msg in enumerate(order, first):
            recorder.delivery(process, 1 + process // 2, position, msg, FINAL, None, 10 + position)
    return recorder.run(info())


def info() -> RunInfo:
    groups = (GroupInfo(1, (0, 1)), GroupInfo(2, (2, 3)))
    return RunInfo(
        run_id="test",
        protocol="none",
        seed=0,
        complete=True,
        groups=groups,
        correct=(0, 1, 2, 3),
        claims=("conflict-order",),
    )


def same(one: list[int], other: list[int]) -> dict[int, list[int]]:
    """The orders of two groups."""
    return {0: one, 1: one, 2: other, 3: other}


def failed(report: Report) -> set[str]:
    return {name for name, verdict in report.properties.items() if verdict == "fail"}


def test_messages_that_share_no_object_may_come_in_any_order() -> None:
    report = check_run(made(same([0, 1, 2], [1, 0, 2]), {0: (A,), 1: (B,), 2: (A, B)}))
    assert report.verdict == "pass", report.violations
    assert not {"prefix", "acyclic"} & set(report.properties), "only conflicts are ordered"


@pytest.mark.parametrize("other", [[1, 0, 2], [0, 2, 1], [2, 1, 0]])
def test_messages_that_share_an_object_must_not(other: list[int]) -> None:
    report = check_run(made(same([0, 1, 2], other), {0: (A,), 1: (A, B), 2: (B, A)}))
    assert failed(report) == {"conflict-order"}
    found = report.violations[0]
    assert set(found.processes) <= {0, 1, 2, 3}
    assert "touch object 101" in found.explanation or "touch object 102" in found.explanation


def test_one_replica_that_differs_is_found() -> None:
    orders = {0: [0, 1], 1: [1, 0], 2: [0, 1], 3: [0, 1]}
    assert failed(check_run(made(orders, {0: (A,), 1: (A,)}))) == {"conflict-order", "replicas"}
    commuting = check_run(made(orders, {0: (A,), 1: (B,)}))
    assert failed(commuting) == {"replicas"}


def test_an_operation_that_was_left_out_is_a_wrong_order_too() -> None:
    report = check_run(made(same([0, 1], [1]), {0: (A,), 1: (A,)}))
    assert {"conflict-order", "agreement"} <= failed(report)


def test_a_state_stands_for_what_its_group_executed() -> None:
    orders = {0: [0, 1, 2], 1: [2], 2: [0, 1, 2], 3: [0, 1, 2]}
    report = check_run(made(orders, {0: (A,), 1: (A,), 2: (A,)}, {1: 2}))
    assert report.verdict == "pass", report.violations


def test_without_objects_nobody_can_say() -> None:
    recorder = Recorder()
    recorder.multicast(0, 9, 0, (1, 2), 0, 8)
    for process in range(4):
        recorder.delivery(process, 1 + process // 2, 0, 0, FINAL, None, 5)
    report = check_run(recorder.run(info()))
    assert report.properties["conflict-order"] == "unknown"
    assert "objects" in report.reasons["conflict-order"]


def test_objects_survive_files(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.multicast(0, 9, 0, (1, 2), 0, 8)
    recorder.touches(0, (A, B))
    for process in range(4):
        recorder.delivery(process, 1 + process // 2, 0, 0, FINAL, None, 5)
    write_run(tmp_path / "run", info(), recorder)
    assert read_run(tmp_path / "run").objects.object.tolist() == [A, B]
    assert check_run(read_run(tmp_path / "run")).verdict == "pass"
