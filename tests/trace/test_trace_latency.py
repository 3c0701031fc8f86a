"""Latency at the client, at the first and at the last replica, from rows made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from amcast.trace import FINAL, NULL, OPTIMISTIC, GroupInfo, Recorder, Run, RunInfo
from amcast.trace.latency import AT, UNTIL, distribution_us, latencies_us, percentile

INFO = RunInfo(
    run_id="run",
    protocol="none",
    seed=1,
    complete=True,
    groups=(GroupInfo(1, (0, 1)), GroupInfo(2, (2, 3))),
    correct=(0, 1, 2, 3),
)
NOWHERE = {"client": NULL, "first_replica": NULL, "last_replica": NULL}


def run_of(
    multicasts: list[tuple[int, tuple[int, ...], int]],
    deliveries: list[tuple[int, int, int]],
    answers: list[tuple[int, int]],
    kind: int = FINAL,
) -> Run:
    """Message, destinations, time; process, message, time; message, time."""
    recorder = Recorder()
    for seq, (msg, dst, t_us) in enumerate(multicasts):
        recorder.multicast(msg, 9, seq, dst, t_us, 0)
    for pos, (process, msg, t_us) in enumerate(deliveries):
        recorder.delivery(process, 1 + process // 2, pos, msg, kind, None, t_us)
    for msg, t_us in answers:
        recorder.answer(msg, t_us)
    return recorder.run(INFO)


def latency_of(run: Run, row: int = 0) -> dict[str, int]:
    return {at: int(took[row]) for at, took in latencies_us(run).items()}


def test_of_several_groups_the_slowest_counts() -> None:
    delivered = [(0, 5, 130), (1, 5, 150), (2, 5, 180), (3, 5, 170)]
    run = run_of([(5, (1, 2), 100)], delivered, [(5, 190)])
    assert latency_of(run) == {"client": 90, "first_replica": 70, "last_replica": 80}


def test_a_group_that_delivered_nothing_leaves_no_latency() -> None:
    assert latency_of(run_of([(5, (1, 2), 100)], [(0, 5, 130), (1, 5, 150)], [])) == NOWHERE


def test_a_replica_that_delivered_nothing_is_not_waited_for() -> None:
    run = run_of([(5, (1, 2), 100)], [(0, 5, 130), (3, 5, 170)], [])
    assert latency_of(run) == {**NOWHERE, "first_replica": 70, "last_replica": 70}


def test_what_does_not_belong_to_the_message_does_not_count() -> None:
    """Deliveries of a group that is no destination, of messages that nobody multicast, and optimistic ones."""
    stray = [(2, 5, 900), (0, 7, 800), (1, 5, 120)]
    run = run_of([(5, (1,), 100), (6, (2,), 100)], stray, [(7, 130), (5, 160), (5, 140)])
    assert latency_of(run) == {"client": 40, "first_replica": 20, "last_replica": 20}
    assert latency_of(run, row=1) == NOWHERE
    assert latency_of(run_of([(5, (1,), 100)], [(0, 5, 120)], [], kind=OPTIMISTIC)) == NOWHERE


def test_multicasts_in_any_order() -> None:
    run = run_of([(8, (2,), 10), (3, (1,), 20)], [(0, 3, 50), (2, 8, 11)], [])
    assert [latency_of(run, row)["first_replica"] for row in (0, 1)] == [1, 30]


def test_an_empty_run_has_none() -> None:
    assert {at: len(took) for at, took in latencies_us(run_of([], [(0, 5, 1)], [(5, 1)])).items()} == dict.fromkeys(
        AT, 0
    )


def test_a_percentile_is_a_value_that_occurred() -> None:
    values = np.array([10, 20, 30, 41])
    assert [percentile(values, share) for share in (1, 50, 51, 95, 100)] == [10, 20, 30, 41, 41]
    assert distribution_us(values) == {"p50_us": 20, "p95_us": 41, "p99_us": 41, "mean_us": 25.2, "max_us": 41}


@pytest.mark.parametrize("at", AT)
def test_each_has_a_name_and_a_meaning(at: str) -> None:
    assert AT[at] == f"at the {at.replace('_', ' ')}"
    assert UNTIL[at].startswith("from multicast until ")
