"""Workloads on a real cluster: transactions that every group executes, clients at home, and an open loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from amcast.core import AppMessage, Outbox, ProcessId, Record, Timestamp, Topology, UsageError, Wire, grid
from amcast.net.client import load as load_module
from amcast.net.client.load import TimedClient, _placed, run_load
from amcast.net.client.totals import read_totals
from amcast.net.client.trunk import Credentials
from amcast.net.local import plan
from amcast.net.node.tpcc import Tpcc
from amcast.net.wire.control import cluster_layout
from amcast.protocols import Reply
from amcast.workload import Gtpcc, Load, Micro, Seat, stream_random

from .clusters import run, running


def test_warehouses_of_a_cluster_agree(tmp_path: Path) -> None:
    async def test() -> None:
        machines = {f"g{group}.p0": Tpcc(f"g{group}") for group in (1, 2, 3)}
        async with running(tmp_path / "c", "fastcast", groups=3, replicas=1, machines=machines) as cluster:
            workload = Gtpcc(locality=0.5)
            result = await run_load(cluster.config, clients=3, messages=300, outstanding=4, workload=workload, seed=7)
            assert result.messages == 300
            report = await read_totals(cluster.config)
            assert report.problems == ()
            assert sum(each.orders for each in report.totals.values()) > 90
            # The same messages as in the simulator: those of the seed and of the number of each client.
            geography = workload.geography(grid(3, 1), None)
            streams = [workload.stream(geography, Seat(at, 3), stream_random(7, at)) for at in range(3)]
            sent = [type(stream.next()).__name__ for stream in streams for _ in range(100)]
            assert sum(each.payments for each in report.totals.values()) == sent.count("Payment")

    run(test)


class Box(Outbox):
    """Keeps what a client multicasts and the timers that it sets."""

    def __init__(self) -> None:
        self.announced: list[AppMessage] = []
        self.timers: dict[str, int] = {}

    now_us = 0

    def send(self, to: ProcessId, message: Wire) -> None: ...
    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None: ...
    def deliver(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None: ...
    def opt_deliver(self, position: int, message: AppMessage) -> None: ...
    def cancel_timer(self, key: str) -> None: ...
    def persist(self, record: Record) -> None: ...
    def snapshot(self, record: Record) -> None: ...
    def restored(self, position: int) -> None: ...

    def announce(self, message: AppMessage) -> None:
        self.announced.append(message)

    def set_timer(self, key: str, after_us: int) -> None:
        self.timers[key] = after_us


class Clock:
    def __init__(self) -> None:
        self.now_us = 0

    def perf_counter_ns(self) -> int:
        return 1_000 * self.now_us


def test_latency_of_an_open_loop_counts_from_when_a_message_was_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is held up for a second. What it should have sent meanwhile leaves late, and has waited already."""
    clock = Clock()
    monkeypatch.setattr(load_module, "time", clock)
    config = plan(tmp_path / "c", "skeen", groups=1)
    topology = Topology({1: (0,)}, ())
    workload = Micro(1, 1)
    stream = workload.stream(workload.geography(topology, None), Seat(0), stream_random(1, 0))

    async def test() -> None:
        client = TimedClient(9, topology, cluster_layout(config), stream, Load(40, interval_us=50_000))
        out = Box()
        client.on_boot(out)
        due: list[int] = []
        while len(out.announced) < 40:
            wait = out.timers.pop("load.next")
            due.append(clock.now_us + wait)
            clock.now_us += wait
            if len(due) == 5:
                clock.now_us += 1_000_000
            client.on_timer("load.next", out)
            client.on_timer("client.send", out)  # which it set to 0
            client.on_reply(0, Reply((1,), tuple(each.id for each in out.announced)))
        latencies_us = client.latencies_ns() // 1_000
        assert latencies_us[:4].tolist() == [0] * 4
        assert latencies_us[4] == pytest.approx(1_000_000, abs=2)
        late = [each for each in latencies_us.tolist() if each > 10]
        assert 10 < len(late) < 35  # about a second's worth of messages, 50 ms apart
        assert late == sorted(late, reverse=True)
        assert latencies_us[-1] <= 1

    run(test)


def test_clients_are_put_where_their_home_is(tmp_path: Path) -> None:
    config = plan(tmp_path / "c", "skeen", groups=3, network="sites")
    usual, elsewhere = Credentials(), Credentials(region="JP")
    topology = config.topology()
    homes = [topology.region(topology.members(group)[0]) for group in topology.groups]
    assert [_placed(usual, config, Gtpcc(), number).region for number in range(4)] == [*homes, homes[0]]
    assert _placed(elsewhere, config, Gtpcc(), 0) == elsewhere
    assert _placed(usual, config, Micro(), 0) == usual
    near = msgspec.structs.replace(config, network="none")
    assert _placed(usual, near, Gtpcc(), 0) == usual


def test_a_workload_that_does_not_suit_the_groups_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", "skeen", groups=1) as cluster:
            with pytest.raises(UsageError, match="use two groups or more"):
                await run_load(
                    cluster.config, clients=1, messages=1, outstanding=1, workload=Gtpcc(mix="global"), timeout=20
                )

    run(test)
