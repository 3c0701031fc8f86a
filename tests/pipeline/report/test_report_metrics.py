"""Every metric against numbers computed by hand from the runs in `report_traces`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from amcast.pipeline import read_runs
from amcast.pipeline.metrics.convoy import convoy
from amcast.pipeline.metrics.frames import frames_of
from amcast.sim import scenario, simulate
from amcast.trace import NULL, read_run, write_run
from amcast.trace.latency import latencies_us
from amcast.workload import Micro
from tests.pipeline.report.report_traces import TINY, HandMade, write_by_hand


def summary(values: list[int], mean: float, p50: int) -> dict[str, Any]:
    """So few values that all percentiles above the median are the largest."""
    high = dict.fromkeys(("p90_us", "p95_us", "p99_us", "max_us"), max(values))
    return {"count": len(values), "mean_us": mean, "p50_us": p50, **high}


def one(value: int) -> dict[str, Any]:
    return summary([value], float(value), value)


def test_summary_of_each_run(handmade: HandMade) -> None:
    assert handmade.rows("summary") == [
        {
            "messages": 5,
            "completed": 4,
            "deliveries": 12,
            "duration_us": 5080,
            "per_second": 787.402,
            "faults": 2,
        }
    ]
    assert handmade.rows("summary", TINY)[0]["per_second"] == 100_000


def test_latency_at_the_client_and_at_the_replicas(handmade: HandMade, tmp_path: Path) -> None:
    assert handmade.rows("latency_at") == [
        {"destinations": 1, "latency": "at the client", **summary([80, 810, 50], 313.3, 80)},
        {"destinations": 1, "latency": "at the first replica", **summary([60, 730, 40], 276.7, 60)},
        {"destinations": 1, "latency": "at the last replica", **summary([250, 740, 80], 356.7, 250)},
        {"destinations": 2, "latency": "at the client", **one(380)},
        {"destinations": 2, "latency": "at the first replica", **one(290)},
        {"destinations": 2, "latency": "at the last replica", **one(300)},
    ]
    kinds = [row["latency"] for row in handmade.rows("latency_at", TINY)]
    assert kinds == ["at the first replica", "at the last replica"], "nobody wrote down when it was answered"
    write_by_hand(tmp_path / "run")
    in_memory = {at: took.tolist() for at, took in latencies_us(read_run(tmp_path / "run")).items()}
    assert in_memory == {
        "client": [80, 380, 810, NULL, 50],
        "first_replica": [60, 290, 730, NULL, 40],
        "last_replica": [250, 300, 740, NULL, 80],
    }


def test_latency_by_destinations_is_that_of_the_last_group(handmade: HandMade) -> None:
    assert handmade.rows("latency_by_destinations", delivery="final") == [
        {"destinations": 1, **summary([60, 730, 40], 276.7, 60)},
        {"destinations": 2, **one(290)},
    ]
    assert handmade.rows("latency_by_destinations", TINY) == [{"delivery": "final", "destinations": 1, **one(10)}]


def test_optimistic_deliveries_have_latencies_of_their_own(handmade: HandMade) -> None:
    # g1 guessed messages 1, 2, 4; of those only message 1 has no other destination.
    assert handmade.rows("latency_by_scope", delivery="optimistic") == [{"scope": "local", **one(160)}]
    assert handmade.rows("latency_by_nth", delivery="optimistic") == [
        {"scope": "global", "nth": 1, **summary([50, 100], 75.0, 50)},
        {"scope": "local", "nth": 1, **one(160)},
    ]


def test_latency_of_local_and_global_messages(handmade: HandMade) -> None:
    assert handmade.rows("latency_by_scope", delivery="final") == [
        {"scope": "global", **one(290)},
        {"scope": "local", **summary([60, 730, 40], 276.7, 60)},
    ]


def test_latency_of_the_nth_destination_counts_messages_on_their_way_too(handmade: HandMade) -> None:
    assert handmade.rows("latency_by_nth", delivery="final") == [
        {"scope": "global", "nth": 1, **summary([200, 300], 250.0, 200)},
        {"scope": "global", "nth": 2, **one(290)},
        {"scope": "local", "nth": 1, **summary([60, 730, 40], 276.7, 60)},
    ]


def test_latency_by_region(handmade: HandMade) -> None:
    assert handmade.rows("latency_by_client_region", delivery="final") == [
        {"scope": "global", "client_region": "US", **one(290)},
        {"scope": "local", "client_region": "EU", **summary([60, 730, 40], 276.7, 60)},
    ]
    # In EU there is p0 alone; in US the first of p1 (of g1) and of p2, p3 (of g2).
    assert handmade.rows("latency_by_group_region", delivery="final") == [
        {"scope": "global", "group_region": "EU", **summary([300, 300], 300.0, 300)},
        {"scope": "global", "group_region": "US", **summary([290, 200, 400], 296.7, 290)},
        {"scope": "local", "group_region": "EU", **summary([250, 40], 145.0, 40)},
        {"scope": "local", "group_region": "US", **summary([60, 80, 730], 290.0, 80)},
    ]
    assert [row["client_region"] for row in handmade.rows("latency_by_client_region", TINY)] == ["local"]


def test_cdf_rises_from_the_fastest_to_the_slowest(handmade: HandMade) -> None:
    steps = handmade.rows("latency_cdf", delivery="final", destinations=1)
    assert [step["share"] for step in steps] == sorted(step["share"] for step in steps)
    at = {step["share"]: step["latency_us"] for step in steps}
    assert (at[0.0], at[0.33], at[0.34], at[0.66], at[0.67], at[1.0]) == (40, 40, 60, 60, 730, 730)


def test_throughput_has_a_row_for_buckets_in_which_nothing_happened(handmade: HandMade) -> None:
    rows = handmade.rows("throughput_over_time")
    assert [row["from_us"] for row in rows] == list(range(0, 5100, 100))
    assert {row["width_us"] for row in rows} == {100}
    busy = {row["from_us"]: row["per_second"] for row in rows if row["messages"]}
    assert busy == dict.fromkeys((0, 300, 1000, 5000), 10_000)
    assert len(handmade.rows("throughput_over_time", TINY)) == 11  # its own width: 1 us


def test_latency_over_time_is_where_messages_were_sent(handmade: HandMade) -> None:
    rows = handmade.rows("latency_over_time", delivery="final")
    assert [(row["scope"], row["from_us"], row["p50_us"]) for row in rows] == [
        ("global", 100, 290),
        ("local", 0, 60),
        ("local", 200, 730),
        ("local", 5000, 40),
    ]


def test_optimistic_order_in_batches(handmade: HandMade) -> None:
    # Final: 1 2 4 5. Guessed: 2 1 4 and nothing.
    found = {
        (row["process"], row["k"]): (row["right"], row["batches"], row["ratio"])
        for row in handmade.rows("optimistic_order")
    }
    assert found == {(0, 1): (1, 4, 0.25), (0, 2): (1, 2, 0.5), (0, 4): (0, 1, 0.0), (0, 8): (0, 1, 0.0)}
    assert handmade.rows("optimistic_order", TINY) == []


def test_optimistic_window(handmade: HandMade) -> None:
    assert handmade.rows("optimistic_window") == [
        {"grp": 1, "process": 0, "own": False, **summary([90, 250, 200], 180.0, 200)}
    ]


def test_overhead_is_what_was_carried_in_vain(handmade: HandMade) -> None:
    assert handmade.rows("group_overhead") == [
        {"grp": 1, "received": 3, "delivered": 3, "overhead": 0.0},
        {"grp": 2, "received": 3, "delivered": 2, "overhead": 0.333333},
    ]


def test_wire_cost_by_kind(handmade: HandMade) -> None:
    found = {row.pop("kind"): tuple(row.values()) for row in handmade.rows("wire_cost")}
    assert found == {
        "START": (6, 600, 1.2, 120.0),
        "SOFT": (1, 20, 0.2, 4.0),
        "HARD": (2, 40, 0.4, 8.0),
        "RELAY": (1, 100, 0.2, 20.0),
        "2b": (1, 7, 0.2, 1.4),
    }
    assert handmade.rows("wire_cost", TINY) == []


def test_convoy(handmade: HandMade) -> None:
    # Message 3 was sent at 290, when message 2 was on its way to g2, until 300.
    assert handmade.rows("convoy") == [
        {"traffic": "alone", **summary([60, 40], 50.0, 40)},
        {"traffic": "global in flight", **one(730)},
    ]


def test_local_messages_of_byzcast_form_no_convoy_behind_global_ones(spark: SparkSession, tmp_path: Path) -> None:
    """One message in ten is global. Those of basecast wait for each other: so the metric can tell."""
    slower = {}
    for name in ("byzcast", "basecast"):
        made = scenario(name, groups=3, clients=6, messages=600, interval_us=2_000, seed=2)
        made = structs.replace(made, workload=Micro(1, 2, global_share=0.1))
        result = simulate(made)
        write_run(tmp_path / name, result.info, result.recorder)
        rows = convoy(frames_of(read_runs(spark, [str(tmp_path / name)]))).collect()
        took = {row["traffic"]: row for row in rows}
        assert took["global in flight"]["count"] > 20
        slower[name] = took["global in flight"]["mean_us"] / took["alone"]["mean_us"]
    assert slower["byzcast"] < 1.02
    assert slower["basecast"] > 1.1


def test_silences_and_the_group_that_never_came_back(handmade: HandMade) -> None:
    g1 = {"silent_from_us": 2300, "silent_to_us": 5040, "silence_us": 2740}
    g2 = {"silent_from_us": 1020, "silent_to_us": 5080, "silence_us": 4060}
    assert handmade.rows("longest_silences") == [{"grp": 1, **g1}, {"grp": 2, **g2}]
    crash = {"fault_us": 1500, "process": 2, "what": "crash"}
    restart = {"fault_us": 3000, "process": 2, "what": "restart"}
    assert handmade.rows("failover_gaps") == [
        {**fault, "grp": grp, **silence} for fault in (crash, restart) for grp, silence in ((1, g1), (2, g2))
    ]
    assert [(row["at_us"], row["what"]) for row in handmade.rows("faults")] == [(1500, "crash"), (3000, "restart")]


def test_where_the_time_went(handmade: HandMade) -> None:
    parts = ("queue", "consensus", "other_groups")
    local, several = handmade.rows("time_split")
    # Message 1: 20, 10, 30 (it was relayed at 30). Message 3: 10, 720, 0. Message 5 came without a wire row.
    assert [local[f"{part}_mean_us"] for part in parts] == [15.0, 365.0, 15.0]
    assert [local[f"{part}_p95_us"] for part in parts] == [20, 720, 30]
    # Message 2 at g1: 40, 110, 140; at g2: 50, 50, 100. Message 4 at g1: 50, 250, 0.
    assert [several[f"{part}_mean_us"] for part in parts] == [46.7, 136.7, 80.0]
    assert (local["count"], several["count"]) == (3, 3)


@pytest.mark.parametrize("part", ["queue", "consensus", "other_groups"])
def test_without_wire_nobody_knows_where_the_time_went(handmade: HandMade, part: str) -> None:
    assert handmade.rows("time_split", TINY)[0][f"{part}_mean_us"] is None
