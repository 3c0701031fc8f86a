"""The microbenchmark: skew, streams of its own, and how often it is drawn; and what all workloads have in common."""

from __future__ import annotations

from collections import Counter

import pytest

from amcast.core import UsageError, grid
from amcast.sim import Scenario, scenario, simulate
from amcast.workload import Gtpcc, Micro, Seat, stream_random, workload_of
from tests.cli.cli_harness import Cli


def destinations(workload: Micro, count: int = 6_000) -> list[tuple[int, ...]]:
    topology = grid(4, 1, 1)
    workload.check(topology)
    stream = workload.stream(workload.geography(topology, None), Seat(0), stream_random(1, 0))
    return [dst for dst, _ in stream.draw(count)]


def test_groups_are_as_popular_as_zipf_says() -> None:
    found = Counter(dst[0] for dst in destinations(Micro(1, 1, skew=1.0)))
    weights = [1, 1 / 2, 1 / 3, 1 / 4]
    for group, weight in enumerate(weights, 1):
        assert found[group] / 6_000 == pytest.approx(weight / sum(weights), abs=0.03)


def test_skewed_destinations_are_different_groups() -> None:
    for dst in destinations(Micro(1, 3, skew=2.0), 500):
        assert list(dst) == sorted(set(dst))
    sizes = Counter(len(dst) for dst in destinations(Micro(1, 3, skew=2.0)))
    assert sizes[3] / 6_000 == pytest.approx(1 / 3, abs=0.03)


def multicasts(made: Scenario) -> list[list[tuple[int, ...]]]:
    """The destinations of each client's messages, in their order."""
    table = simulate(made).run().multicasts
    first = int(table.sender.min())
    found: list[list[tuple[int, ...]]] = [[] for _ in range(made.clients)]
    for at, sender in enumerate(table.sender.tolist()):
        dst = table.dst[table.dst_start[at] : table.dst_start[at + 1]].tolist()
        found[sender - first].append(tuple(dst))
    return found


def test_a_stream_of_its_own_is_the_same_for_every_protocol() -> None:
    """Groups of one and of three, a closed loop and an open one."""
    workload = Micro(1, 3, own_stream=True)
    load = {"groups": 4, "clients": 3, "messages": 45, "workload": workload, "seed": 6}
    wanted = multicasts(scenario("skeen", **load))
    assert multicasts(scenario("fastcast", **load)) == wanted
    assert multicasts(scenario("basecast", outstanding=4, **load)) == wanted
    assert multicasts(scenario("skeen", interval_us=700, **load)) == wanted


def test_a_rate_is_that_of_all_clients_together(cli: Cli) -> None:
    done = cli("sim", "-p", "skeen", "--clients", 5, "--messages", 2_000, "--rate", 1_000, "--json").json
    assert done["simulated_us"] / 1e6 == pytest.approx(2.0, rel=0.15)
    assert done["workload"].startswith("micro")
    assert "give one of the two" in cli.refuses("sim", "--rate", 10, "--interval-us", 5)


def test_titles_tell_what_is_not_as_usual() -> None:
    assert Gtpcc().title() == "gtpcc"
    assert Gtpcc(mix="global", locality=0.95).title() == "gtpcc mix=global locality=0.95"
    assert Micro(1, 2, skew=1.5).title() == "micro skew=1.5"


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("nano", {}, "there is no workload 'nano': choose one of micro, gtpcc, social, or replay:FILE"),
        ("gtpcc", {"locality": "near"}, "not an option of the workload gtpcc: Expected `float`"),
        ("gtpcc", {"mix": "half"}, "Invalid enum value 'half'"),
        ("social", {"skew": 1}, "unknown field `skew`.*it has users, zipf"),
    ],
)
def test_bad_options_are_refused(kind: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        workload_of(kind, options)


def test_bad_skews_are_refused() -> None:
    with pytest.raises(UsageError, match="a skew of -1 is out of range"):
        Micro(skew=-1.0).check(grid(2, 1, 1))
