"""The parts of a simulated machine: event loop, disk, network, node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from amcast.core import AppMessage, Codec, Outbox, Process, Record, UsageError, Wire, app_message, grid
from amcast.sim import PRESETS, CpuCost, Latency, latency_preset
from amcast.sim.disk import Disk
from amcast.sim.engine import EventLoop
from amcast.sim.machine import Machine
from amcast.sim.network import Network

# -- event loop


def test_ties_are_handled_in_the_order_in_which_they_were_scheduled() -> None:
    loop, seen = EventLoop(), []
    rng = Random(1)
    times = [rng.randrange(5) for _ in range(200)]
    for number, time in enumerate(times):
        loop.at(time, seen.append, (time, number))
    loop.run(until=10)
    assert seen == sorted((time, number) for number, time in enumerate(times))
    assert loop.events == 200


def test_what_is_scheduled_for_now_comes_after_what_waits_for_now() -> None:
    loop, seen = EventLoop(), []

    def first() -> None:
        seen.append("first")
        loop.at(loop.now, seen.append, "third")

    loop.at(5, first)
    loop.at(5, seen.append, "second")
    loop.run(until=5)
    assert seen == ["first", "second", "third"]
    assert loop.now == 5


def test_a_loop_stops_at_its_time_and_goes_on() -> None:
    loop, seen = EventLoop(), []
    for time in (1, 2, 3):
        loop.at(time, seen.append, time)
    assert loop.run(until=2) is False
    assert seen == [1, 2]
    assert loop.pending() == [(seen.append, (3,))]
    loop.at(3, loop.stop)
    loop.at(4, seen.append, 4)
    assert loop.run(until=9) is True
    assert seen == [1, 2, 3]


# -- disk


def written(disk: Disk, *records: bytes) -> int:
    for record in records:
        disk.write(record, is_snapshot=False)
    return disk.written


def test_one_sync_covers_all_that_was_written() -> None:
    disk = Disk()
    upto = written(disk, b"a", b"b")
    later = written(disk, b"c")
    disk.sync(upto)
    assert disk.is_durable(upto)
    assert not disk.is_durable(later)


def test_a_crash_keeps_what_is_durable_and_a_prefix_of_the_rest() -> None:
    seen = Counter()
    for seed in range(200):
        disk = Disk()
        disk.sync(written(disk, b"a", b"b"))
        written(disk, b"c", b"d")
        disk.crash(Random(seed))
        seen[b"".join(disk.records())] += 1
        assert disk.is_durable(disk.written)
        written(disk, b"e")
        assert disk.records()[-1] == b"e"
        assert not disk.is_durable(disk.written)
    assert set(seen) == {b"ab", b"abc", b"abcd"}
    assert min(seen.values()) > 30


def test_a_snapshot_replaces_what_is_before_it_once_it_is_durable() -> None:
    disk = Disk()
    written(disk, b"a", b"b")
    disk.write(b"S", is_snapshot=True)
    upto = written(disk, b"c")
    assert disk.records() == [b"a", b"b", b"S", b"c"]
    disk.sync(upto)
    assert disk.records() == [b"S", b"c"]
    assert disk.written == upto


def test_a_snapshot_that_a_crash_caught_is_there_or_everything_before_it_is() -> None:
    seen = set()
    for seed in range(100):
        disk = Disk()
        disk.sync(written(disk, b"a", b"b"))
        disk.write(b"S", is_snapshot=True)
        disk.crash(Random(seed))
        seen.add(b"".join(disk.records()))
    assert seen == {b"ab", b"S"}


def test_a_wiped_disk_is_a_new_one() -> None:
    disk = Disk()
    disk.sync(written(disk, b"a"))
    disk.wipe()
    assert disk.records() == []
    assert disk.written == 0
    assert not disk.is_durable(written(disk, b"b"))


# -- network

CONSTANT = Latency("constant", 100)
JITTERY = Latency("jittery", 100, sigma=0.5)


def network(latency: Latency = CONSTANT, fifo: bool = True) -> Network:
    return Network(latency, grid(1, 3), fifo, Random(1))


def test_a_good_day() -> None:
    net = network()
    assert [net.arrivals(0, 1, t) for t in (0, 7)] == [(100,), (107,)]
    assert net.arrivals(0, 0, 7) == (7,)


@pytest.mark.parametrize("probability", [0.05, 0.5])
def test_links_lose_as_many_as_they_should(probability: float) -> None:
    net = network()
    net.loss = probability
    lost = sum(net.arrivals(0, 1, t) == () for t in range(4_000))
    assert lost / 4_000 == pytest.approx(probability, rel=0.2)
    assert net.arrivals(2, 2, 0) == (0,)  # a process always hears itself


@pytest.mark.parametrize("probability", [0.05, 0.5])
def test_links_duplicate_as_many_as_they_should(probability: float) -> None:
    net = network()
    net.duplication = probability
    copies = [net.arrivals(0, 1, t) for t in range(4_000)]
    assert sum(len(c) == 2 for c in copies) / 4_000 == pytest.approx(probability, rel=0.2)
    assert all(copy >= c[0] for c in copies for copy in c)


@pytest.mark.parametrize("fifo", [True, False])
def test_fifo_links_keep_the_order_and_others_do_not(fifo: bool) -> None:
    net = network(JITTERY, fifo)
    arrivals = [net.arrivals(0, 1, 5 * t)[0] for t in range(300)]
    assert (arrivals == sorted(arrivals)) == fifo


def test_reordering_lets_later_messages_pass_on_fifo_links_too() -> None:
    net = network()
    net.reordering, net.reorder_us = 0.3, 1_000
    arrivals = [net.arrivals(0, 1, 5 * t)[0] for t in range(300)]
    assert arrivals != sorted(arrivals)
    late = [a - 5 * t - 100 for t, a in enumerate(arrivals)]
    assert max(late) <= 1_000
    assert sum(each > 0 for each in late) / 300 == pytest.approx(0.3, rel=0.3)


def test_a_cut_is_one_way_and_cuts_add_up() -> None:
    net = network()
    net.cut(0, 1)
    assert net.arrivals(0, 1, 0) == ()
    assert net.arrivals(1, 0, 0) == (100,)
    assert net.arrivals(0, 2, 0) == (100,)
    net.cut(0, 1)
    net.mend(0, 1)
    assert net.arrivals(0, 1, 0) == ()
    net.mend(0, 1)
    assert net.arrivals(0, 1, 0) == (100,)


def test_no_message_is_faster_than_a_quarter_of_the_mean() -> None:
    net = network(Latency("wild", 100, sigma=3.0), fifo=False)
    assert min(net.arrivals(0, 1, 0)[0] for _ in range(1_000)) == 25


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_loads_and_is_symmetric(name: str) -> None:
    latency = latency_preset(name)
    assert latency.name == name
    for a in latency.regions:
        for b in latency.regions:
            assert latency.mean_us(a, b) == latency.mean_us(b, a) > 0
    assert latency.rtt_max_us() >= 2 * latency.default_us


def test_presets_are_what_they_are_said_to_be() -> None:
    """RTT 0.1 ms; 70, 70 and 144 ms; 19 cloud regions."""
    assert latency_preset("lan").rtt_max_us() == 100
    wan = latency_preset("wan")
    assert [wan.mean_us(*pair) for pair in (("R1", "R2"), ("R2", "R3"), ("R1", "R3"))] == [35_000, 35_000, 72_000]
    aws = latency_preset("aws")
    assert len(aws.regions) == 19
    assert len(aws.one_way_us) >= 19 * 18 // 2


def test_an_unknown_network_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="no network 'mars': choose one of unit, lan"):
        latency_preset("mars")


# -- node


class Note(Wire, frozen=True, tag="note"):
    text: str


class Other(Wire, frozen=True, tag="other"):
    text: str


class Kept(Record, frozen=True, tag="kept"):
    text: str


Script = Callable[[Any, Outbox], None]


class Actor(Process):
    """Does what a script says on its first start, and writes down what it hears and when."""

    def __init__(self, loop: EventLoop, script: Script | None, heard: list[tuple[int, str]]) -> None:
        self.loop = loop
        self.script = script
        self.heard = heard
        self.recovered: list[Any] | None = None
        self.clock: int | None = None  # what its own clock read at the last timer

    def recover(self, records: Any) -> None:
        self.recovered = list(records)

    def on_boot(self, out: Outbox) -> None:
        if self.script is not None and self.recovered is None:
            self.script(self, out)

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        raise AssertionError

    def on_message(self, sender: int, message: Wire, out: Outbox) -> None:
        self.heard.append((self.loop.now, message.text))

    def on_timer(self, key: str, out: Outbox) -> None:
        self.clock = out.now_us
        self.heard.append((self.loop.now, f"timer {key}"))
        if key.startswith("persist"):
            out.persist(Kept(key))
            out.send(1, Note(key))


class Witness:
    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.deliveries: list[tuple[int, int]] = []
        self.multicasts: list[int] = []
        self.wire: list[tuple[str, int, int | None]] = []

    def saw_multicast(self, process: int, message: AppMessage) -> None:
        self.multicasts.append(message.seq)

    def saw_delivery(self, process: int, position: int, message: AppMessage, ts: int | None, optimistic: bool) -> None:
        self.deliveries.append((self.loop.now, position))

    def saw_restored(self, process: int, position: int) -> None:
        pass

    def saw_restart(self, process: int) -> None:
        pass

    def saw_wire(
        self, src: int, dst: int, kind: str, about: tuple[int, ...], size: int, sent: int, received: int | None
    ) -> None:
        self.wire.append((kind, sent, received))

    def record_wire(
        self, src: int, dst: int, kind: str, msg: int | None, size: int, sent: int, received: int | None
    ) -> None:
        self.wire.append((kind, sent, received))


class Pair:
    """Machine 0 plays a script; machine 1, 100 us away, listens."""

    def __init__(self, script: Script, sync_us: int = 0, cpu: CpuCost | None = None) -> None:
        self.loop = EventLoop()
        self.witness = Witness(self.loop)
        self.heard: list[tuple[int, str]] = []  # by machine 1
        self.own: list[tuple[int, str]] = []  # by machine 0
        net = Network(CONSTANT, grid(1, 2), True, Random(1))
        codec = Codec(Note | Other, Kept)
        nodes = {}
        for id_, play, heard in ((0, script, self.own), (1, None, self.heard)):
            nodes[id_] = Machine(
                id_,
                self.loop,
                net,
                codec,
                self.witness,
                lambda starts, play=play, heard=heard: Actor(self.loop, play, heard),
                Random(id_),
                (cpu if id_ == 1 else None) or CpuCost(),
                sync_us,
            )
        for node in nodes.values():
            node.peers = nodes
        self.node, self.listener = nodes[0], nodes[1]
        for node in nodes.values():
            self.loop.at(0, node.start)

    def run(self, until: int = 1_000_000) -> Pair:
        self.loop.run(until)
        return self


def test_nothing_issued_after_a_persist_happens_before_the_sync_ends() -> None:
    def script(actor: Actor, out: Outbox) -> None:
        out.send(1, Note("before"))
        out.persist(Kept("a"))
        out.send(1, Note("after"))
        out.deliver(0, app_message(9, 0, (1,), b""), 5)

    pair = Pair(script, sync_us=300).run()
    assert pair.heard == [(100, "before"), (400, "after")]
    assert pair.witness.deliveries == [(300, 0)]


def test_effects_keep_their_order_across_syncs() -> None:
    """Group commit: what is written while a sync is under way waits for the next one, which covers all of it."""

    def script(actor: Actor, out: Outbox) -> None:
        out.persist(Kept("a"))
        out.send(1, Note("1"))
        out.persist(Kept("b"))
        out.send(1, Note("2"))
        out.persist(Kept("c"))
        out.send(1, Note("3"))

    assert Pair(script, sync_us=300).run().heard == [(400, "1"), (700, "2"), (700, "3")]


def test_a_later_handler_waits_for_the_disk_too() -> None:
    def script(actor: Actor, out: Outbox) -> None:
        out.persist(Kept("a"))
        out.set_timer("persist b", 50)

    pair = Pair(script, sync_us=300).run()
    assert pair.own == [(50, "timer persist b")]
    assert pair.heard == [(700, "persist b")]


def test_a_disk_that_takes_no_time_holds_nothing_up() -> None:
    def script(actor: Actor, out: Outbox) -> None:
        out.persist(Kept("a"))
        out.send(1, Note("after"))

    assert Pair(script).run().heard == [(100, "after")]


def test_a_crash_before_the_sync_ends_silences_what_followed() -> None:
    def script(actor: Actor, out: Outbox) -> None:
        out.persist(Kept("a"))
        out.send(1, Note("after"))
        out.set_timer("never", 500)

    pair = Pair(script, sync_us=300)
    pair.loop.at(200, pair.node.crash)
    pair.loop.at(250, pair.node.restart, True)
    pair.run()
    assert pair.heard == []
    assert pair.own == []
    assert pair.node.process.recovered in ([], [Kept("a")])


def test_a_crash_after_the_sync_keeps_the_record() -> None:
    def script(actor: Actor, out: Outbox) -> None:
        out.persist(Kept("a"))

    for with_disk in (True, False):
        pair = Pair(script, sync_us=300)
        pair.loop.at(301, pair.node.crash)
        pair.loop.at(400, pair.node.restart, with_disk)
        pair.run()
        assert pair.node.process.recovered == ([Kept("a")] if with_disk else [])


@pytest.mark.parametrize(("of_kind", "heard"), [(None, "ab"), ("note", "abcd")])
def test_a_process_crashes_in_the_middle_of_sending(of_kind: str | None, heard: str) -> None:
    def script(actor: Actor, out: Outbox) -> None:
        out.persist(Kept("early"))
        pair.node.crash_after_sends(2, of_kind, pair.node.crash)
        for text in "abcdef":
            out.send(1, (Note if text in "bdf" else Other)(text))
        out.deliver(0, app_message(9, 0, (1,), b""), 5)
        out.persist(Kept("late"))

    pair = Pair(script)
    pair.run()
    assert "".join(text for _, text in pair.heard) == heard
    assert pair.witness.deliveries == []
    assert not pair.node.is_up
    pair.node.restart(with_disk=True)
    assert pair.node.process.recovered == [Kept("early")]


def test_a_start_that_left_nothing_on_disk_did_not_happen() -> None:
    pair = Pair(lambda actor, out: out.persist(Kept("a")), sync_us=300)
    pair.loop.at(1, pair.node.crash)
    pair.run()
    pair.node._disk.wipe()  # whatever the crash left of it
    pair.node.restart(with_disk=True)
    assert pair.node.process.recovered is None
    pair.node.crash()
    pair.node.restart(with_disk=False)
    assert pair.node.process.recovered == []


def test_setting_a_timer_again_replaces_it_and_cancelling_drops_it() -> None:
    def script(actor: Actor, out: Outbox) -> None:
        out.set_timer("a", 10)
        out.set_timer("a", 20)
        out.set_timer("b", 10)
        out.cancel_timer("b")
        out.set_timer("c", 0)

    assert Pair(script).run().own == [(0, "timer c"), (20, "timer a")]


def test_a_paused_process_does_everything_later() -> None:
    def script(actor: Actor, out: Outbox) -> None:
        out.send(1, Note("a"))
        out.send(1, Note("b"))

    pair = Pair(script)
    pair.listener.pause(500)
    assert pair.run().heard == [(500, "a"), (500, "b")]


def test_a_machine_that_costs_time_queues() -> None:
    def script(actor: Actor, out: Outbox) -> None:
        for text in "abc":
            out.send(1, Note(text))

    pair = Pair(script, cpu=CpuCost(receive_ns=40_000)).run()
    assert pair.heard == [(100, "a"), (140, "b"), (180, "c")]


def test_a_skewed_clock_reads_wrong_and_its_timers_drift() -> None:
    pair = Pair(lambda actor, out: out.set_timer("late", 1_000))
    pair.node.skew_clock(5_000, 0.25)
    pair.run()
    assert pair.own == [(800, "timer late")]  # a fast clock: 1000 of its microseconds are 800 true ones
    assert pair.node.process.clock == 5_000 + 1_000


def test_a_message_to_a_machine_that_is_down_is_recorded_as_lost() -> None:
    pair = Pair(lambda actor, out: out.send(1, Note("a")))
    pair.loop.at(50, pair.listener.crash)
    pair.run()
    assert pair.witness.wire == [("note", 0, None)]
