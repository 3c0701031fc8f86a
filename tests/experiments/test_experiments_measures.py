"""What is measured of a run, on runs whose figures are known."""

from __future__ import annotations

import pytest

from amcast.experiments.measures import MEASURES
from amcast.sim import scenario, simulate
from amcast.workload import Micro


def test_latency_and_throughput_of_one_client_follow_from_each_other() -> None:
    made = scenario("skeen", "unit", groups=2, clients=1, messages=40, workload=Micro(2, 2, own_stream=True), seed=1)
    figures = MEASURES["load"](simulate(made).run(), made)
    assert figures["client_p50_ms"] == figures["client_to_2_p99_ms"] == 3000  # two delays, and the reply
    assert figures["per_s"] == pytest.approx(1 / 3, rel=0.01)
    assert figures["undelivered"] == 0


def test_replies_come_from_the_nearest_destination_first() -> None:
    made = scenario("skeen", "sites", groups=3, clients=3, messages=60, workload=Micro(2, 2, own_stream=True), seed=1)
    figures = MEASURES["replies"](simulate(made).run(), made)
    assert 0 < figures["reply_1_p50_ms"] < figures["reply_2_p50_ms"]
    assert "reply_3_p50_ms" not in figures


def test_an_order_without_surprises_is_guessed_right() -> None:
    made = scenario(
        "sequencer",
        "lan",
        groups=3,
        clients=1,
        messages=0,
        member_messages=40,
        interval_us=50_000,
        workload=Micro(3, 3, own_stream=True),
        seed=1,
    )
    figures = MEASURES["optimistic"](simulate(made).run(), made)
    assert figures["right_k1"] > 0.95
    assert figures["mistakes"] < 0.05
    assert 0 < figures["opt_p50_ms"] <= figures["final_p50_ms"]


def test_the_root_of_a_tree_has_the_overhead() -> None:
    made = scenario(
        "tree",
        "lan",
        groups=3,
        clients=2,
        messages=60,
        workload=Micro(2, 2, own_stream=True),
        options={"parents": [2, 0, 2]},
        seed=1,
    )
    figures = MEASURES["overhead"](simulate(made).run(), made)
    assert (figures["overhead_g1"], figures["overhead_g3"]) == (0, 0)
    assert figures["overhead_max"] == figures["overhead_g2"] > 10
