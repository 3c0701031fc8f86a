"""gTPC-C: its shares, its localities, and that every protocol gets the same transactions."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from amcast.core import Latency, Topology, UsageError, grid, latency_preset
from amcast.sim import scenario, simulate
from amcast.workload import Gtpcc, Seat, stream_random
from amcast.workload.gtpcc import SHARES, GtpccStream, non_uniform, rank_shares, spread_bits
from amcast.workload.transactions import UNUSED_ITEM, NewOrder, Payment, Transaction, decode_transaction

# Three regions in a row: b is nearest to a, then c.
ROW = Latency("row", 50, ("a", "b", "c"), {"a b": 1_000, "b c": 2_000, "a c": 5_000}, spread=False)


def stream_of(workload: Gtpcc, topology: Topology | None = None, number: int = 0, seed: int = 1) -> GtpccStream:
    topology = topology or grid(3, 1, 3, ROW.regions, spread=False, homes=3)
    workload.check(topology)
    geography = workload.geography(topology, ROW)
    seat = Seat(number, 3, topology.region(topology.clients[number]))
    return workload.stream(geography, seat, stream_random(seed, number))


def drawn(workload: Gtpcc, count: int = 4_000) -> list[Transaction]:
    stream = stream_of(workload)
    return [stream.next() for _ in range(count)]


def test_the_full_mix_has_the_shares_of_tpcc() -> None:
    found = Counter(type(each).__name__ for each in drawn(Gtpcc()))
    wanted = dict(zip(("NewOrder", "Payment", "OrderStatus", "Delivery", "StockLevel"), SHARES.values(), strict=True))
    for name, share in wanted.items():
        assert found[name] / 40 == pytest.approx(share, abs=3)  # more than three standard deviations


def test_new_orders_take_2_percent_of_5_to_15_items_from_elsewhere() -> None:
    orders = [each for each in drawn(Gtpcc(), 8_000) if isinstance(each, NewOrder)]
    assert {len(each.lines) for each in orders} == set(range(5, 16))
    lines = [line for each in orders for line in each.lines]
    assert sum(line.supplier != 1 for line in lines) / len(lines) == pytest.approx(0.02, abs=0.004)
    assert sum(each.lines[-1].item == UNUSED_ITEM for each in orders) / len(orders) == pytest.approx(0.01, abs=0.008)
    assert all(1 <= line.quantity <= 10 and 0 <= line.item <= 100_000 for line in lines)


def test_the_global_mix_goes_to_two_or_three_warehouses() -> None:
    found = drawn(Gtpcc(mix="global", locality=0.5))
    assert all(isinstance(each, NewOrder | Payment) for each in found)
    assert {len(each.warehouses()) for each in found} == {2, 3}
    orders = sum(isinstance(each, NewOrder) for each in found)
    assert orders / len(found) == pytest.approx(45 / 88, abs=0.03)


@pytest.mark.parametrize("locality", [0.5, 0.9, 1.0])
def test_the_other_warehouse_is_the_nearest_one_by_locality(locality: float) -> None:
    payments = [each for each in drawn(Gtpcc(mix="global", locality=locality)) if isinstance(each, Payment)]
    found = Counter(each.customer_warehouse for each in payments)
    assert found[2] / len(payments) == pytest.approx(locality, abs=0.04)
    assert found[2] + found[3] == len(payments)


def test_ranks_share_what_is_left() -> None:
    assert rank_shares(0.9, 3) == pytest.approx([0.9, 0.09, 0.01])
    assert rank_shares(0.0, 2) == [0.0, 1.0]
    assert rank_shares(0.5, 0) == []


def test_distances_are_those_between_the_regions_of_groups() -> None:
    aws = latency_preset("aws")
    topology = grid(12, 1, 12, aws.regions, spread=False, homes=12)
    geography = Gtpcc().geography(topology, aws)
    for group in topology.groups:
        delays = [
            aws.mean_us(geography.region(group), geography.region(other)) for other in geography.by_distance(group)
        ]
        assert delays == sorted(delays)
        assert len(delays) == 11


def test_clients_live_at_their_warehouses() -> None:
    made = scenario("skeen", "sites", groups=3, clients=7, messages=1, workload=Gtpcc())
    topology = made.topology()
    geography = made.workload.geography(topology, made.network)
    for number, client in enumerate(topology.clients):
        home = geography.home(Seat(number, 7, topology.region(client)))
        assert home == number % 3 + 1
        assert geography.region(home) == topology.region(client)


def test_a_client_elsewhere_uses_the_nearest_warehouse() -> None:
    topology = grid(2, 1, 1, ROW.regions, spread=False)  # no warehouse in c
    geography = Gtpcc().geography(topology, ROW)
    assert geography.home(Seat(0, 1, "c")) == 2
    assert geography.home(Seat(5, 9, None)) == 2  # nobody knows where: warehouses in turn


def test_every_protocol_gets_the_same_transactions() -> None:
    """With groups of one and of three: what clients multicast is the same, in the same order."""
    found = []
    for name in ("skeen", "fastcast"):
        made = scenario(name, "lan", groups=3, clients=2, messages=40, workload=Gtpcc(), seed=3)
        run = simulate(made).run()
        first = run.multicasts.sender.min()
        rows = [
            (int(run.multicasts.sender[at] - first), int(run.multicasts.bytes[at]), *run.multicasts.dst[start:end])
            for at, (start, end) in enumerate(zip(run.multicasts.dst_start, run.multicasts.dst_start[1:], strict=False))
        ]
        found.append([[row for row in rows if row[0] == client] for client in (0, 1)])
    assert found[0] == found[1]


def test_users_key_in_and_think() -> None:
    waits, hurries = stream_of(Gtpcc(waits=True)), stream_of(Gtpcc())
    assert hurries.pause_us() == 0
    pauses = [waits.pause_us() for _ in range(2_000)]
    assert pauses[0] in (2_000_000, 3_000_000, 18_000_000)  # nothing to think about yet
    assert sum(pauses) / 2_000 / 1e6 == pytest.approx(9.63 + 11.36, rel=0.06)
    # Pauses change when, not what.
    assert [waits.next() for _ in range(50)] == [hurries.next() for _ in range(50)]


def test_a_closed_loop_waits_for_its_users() -> None:
    made = scenario("skeen", "lan", groups=2, clients=2, messages=8, workload=Gtpcc(waits=True), seed=1)
    result = simulate(made)
    assert result.complete
    assert result.messages == 8
    assert result.end_us > 10_000_000


def test_payloads_can_be_read_again() -> None:
    stream, same = stream_of(Gtpcc()), stream_of(Gtpcc())
    for dst, payload in stream.draw(200):
        read = decode_transaction(payload)
        assert read == same.next()
        assert read.warehouses() == dst


def test_some_values_are_drawn_far_more_often() -> None:
    assert (spread_bits(100_000), spread_bits(3_000)) == (8_191, 1_023)
    rng = Random(1)
    found = Counter(non_uniform(rng, 100) for _ in range(20_000))
    assert set(found) <= set(range(1, 101))
    assert max(found.values()) > 3 * 200


@pytest.mark.parametrize(
    ("workload", "groups", "problem"),
    [
        (Gtpcc(locality=1.5), 3, "locality of 1.5 is no probability"),
        (Gtpcc(mix="global"), 1, "use two groups or more"),
        (Gtpcc(mix="global", remote_items=0), 3, "use mix=full"),
        (Gtpcc(customers=0), 3, "0 customers are out of range"),
        (Gtpcc(targets=4), 3, "the first 4 groups: there are 3"),
    ],
)
def test_what_makes_no_sense_is_refused(workload: Gtpcc, groups: int, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        workload.check(grid(groups, 1, 1))
