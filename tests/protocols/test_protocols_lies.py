"""Clients are not believed: a lie harms the messages of the client that told it, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from amcast.core import AppMessage, GroupId, MessageId, ProcessId, Topology, Wire, grid, message_id, pack, signed_part
from amcast.core.ids import SEQ_LIMIT, UNSETTLED_MAX
from amcast.protocols import MULTICAST_PROTOCOLS, PROTOCOLS, ProtocolSpec, Start
from amcast.protocols._in_flight import ALL_BYTES, SENDER_BYTES, SENDER_MESSAGES, InFlight
from amcast.protocols.fastcast import FastCast, FastCastConfig
from amcast.protocols.optimistic.messages import BarrierRequest, FrMcast
from amcast.protocols.sequencer import Data
from amcast.sim import Scenario, Simulation, scenario
from amcast.sim.faults import Liar
from amcast.sim.fuzz import fuzz_scenario, violations_of
from amcast.sim.run import simulate
from tests.consensus.paxos_harness import Box

GENUINE = ["skeen", "basecast", "fastcast"]
BATCHING = [name for name, spec in PROTOCOLS.items() if spec.takes_batches]
STAMPED = ["oam-baseline", "oam"]


class Stand:
    """A simulated cluster of two groups with an honest client, and one whose messages the test makes."""

    def __init__(self, name: str, made: Scenario | None = None) -> None:
        self.made = made or scenario(name, groups=2, clients=2, messages=0, resend_us=5_000, seed=1)
        self.simulation = Simulation(self.made)
        self.topology = self.made.topology()
        self.honest, self.liar = self.topology.clients
        self.delivered: dict[ProcessId, list[AppMessage]] = {process: [] for process in self.topology.processes}
        self.simulation.watch.listener = self._listen
        self.simulation.start()
        self.simulation.settle()

    def _listen(self, process: ProcessId, message: AppMessage, is_optimistic: bool) -> None:
        if not is_optimistic:
            self.delivered[process].append(message)

    def message(self, seq: int, dst: tuple[GroupId, ...], payload: bytes = b"", settled: int = 0) -> AppMessage:
        return AppMessage(message_id(self.liar, seq), dst, payload, settled)

    def batch(self, seqs: Sequence[int], dst: tuple[GroupId, ...]) -> AppMessage:
        """Each number is the same message, in whatever batch it comes."""
        return pack([self.message(seq, dst, b"%d" % seq) for seq in seqs])

    def tell(self, group: GroupId, message: AppMessage) -> None:
        """As the liar, to all of a group, in the protocol's own words."""
        if self.made.spec().survives_liars:
            proof = self.simulation._nodes[self.liar].sign(signed_part(message))
            message = replace(message, proof=proof)
        for wire in in_words_of(self.made.spec(), message, self.topology):
            self.say(group, wire)

    def say(self, group: GroupId, wire: Wire) -> None:
        self.simulation._nodes[self.liar].send_all(self.topology.members(group), wire)

    def settle(self) -> None:
        for _ in range(2):
            for dst in ((1,), (2,), (1, 2)):
                self.simulation.multicast(self.honest, dst, b"true")
            assert self.simulation.settle(), "what the honest client sends is delivered"

    def lies(self, process: ProcessId) -> list[tuple[int, bytes]]:
        return [(m.seq, m.payload) for m in self.delivered[process] if m.sender == self.liar]


def in_words_of(spec: ProtocolSpec, message: AppMessage, topology: Topology, time: int = 5) -> tuple[Wire, ...]:
    if spec.client_messages == (Start,):
        return (Start((message,)),)
    if spec.client_messages == (Data,):
        return (Data(message, 0),)
    home = spec.ingress_groups(message, topology)[0]
    return FrMcast(message, home, time, ()), BarrierRequest(message.id, time, home)


@pytest.mark.parametrize("name", MULTICAST_PROTOCOLS)
def test_a_message_that_one_group_counts_as_settled_does_not_freeze_another(name: str) -> None:
    stand = Stand(name)
    stand.tell(2, stand.message(10, (2,), settled=10))
    stand.settle()
    stand.tell(1, stand.message(5, (1, 2)))
    stand.settle()
    if name in GENUINE:
        assert not any((5, b"") in stand.lies(process) for process in stand.topology.processes)


@pytest.mark.parametrize("name", MULTICAST_PROTOCOLS)
def test_two_messages_with_one_id_are_not_taken_for_one(name: str) -> None:
    """One message for each group, under one id. Whatever is delivered is delivered by both."""
    stand = Stand(name)
    for seq in range(3):
        stand.tell(1, stand.message(seq, (1, 2), b"one"))
        stand.tell(2, stand.message(seq, (1, 2), b"other"))
    stand.settle()
    told = [stand.lies(process) for process in stand.topology.processes]
    assert all(each == told[0] for each in told)


@pytest.mark.parametrize("name", GENUINE)
def test_one_id_with_different_destinations_is_dropped_where_it_can_not_be_final(name: str) -> None:
    stand = Stand(name)
    stand.tell(1, stand.message(0, (1, 2), b"one"))
    stand.tell(2, stand.message(0, (2,), b"other"))
    stand.settle()
    assert not stand.lies(stand.topology.members(1)[0])
    assert stand.lies(stand.topology.members(2)[0]) == [(0, b"other")]


@pytest.mark.parametrize("other_dst", [(2,), (1, 2)])
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("seq", [5, 13])
def test_no_id_enters_at_two_groups_with_liars(seq: int, batch: bool, other_dst: tuple[GroupId, ...]) -> None:
    """g2 is told of a message of its own, and g1 hands another one down to it, under the same id."""
    stand = batching("byzcast", resend_us=5_000)
    one, other = stand.message(seq, (1, 2), b"one"), stand.message(seq, other_dst, b"other")
    if batch:
        one, other = (pack([each, replace(each, id=each.id + 1)]) for each in (one, other))
    stand.tell(2, other)
    stand.tell(1, one)
    stand.settle()
    told = {(seq, payload) for process in stand.topology.processes for seq, payload in stand.lies(process)}
    assert len(told) == len({seq for seq, _ in told})
    assert all(payload == (b"one" if seq < 8 else b"other") for seq, payload in told)
    assert bool(told) == (seq < 8 or other_dst == (2,)), "the numbers below 8 are of g1, and the next ones of g2"


@pytest.mark.parametrize("name", MULTICAST_PROTOCOLS)
def test_a_message_that_half_of_its_destinations_were_told_of_is_delivered_by_all(name: str) -> None:
    stand = Stand(name)
    entry = stand.made.spec().ingress_groups(stand.message(0, (1, 2)), stand.topology)[0]
    stand.tell(entry, stand.message(0, (1, 2), b"half"))
    stand.settle()
    assert all(stand.lies(process) == [(0, b"half")] for process in stand.topology.processes)


# -- batches that overlap

OVERLAPS = [((5, 6, 7), (6,)), ((6,), (5, 6, 7)), ((5, 6), (6, 7)), ((6, 7), (5, 6)), ((4, 7), (5, 6, 7))]


def batching(name: str, **options: Any) -> Stand:
    return Stand(name, scenario(name, groups=2, clients=2, messages=0, batch=16, seed=1, **options))


@pytest.mark.parametrize("dst", [(1,), (1, 2)])
@pytest.mark.parametrize(("first", "second"), OVERLAPS)
@pytest.mark.parametrize("name", BATCHING)
def test_no_message_in_two_batches_is_delivered_twice(
    name: str, first: tuple[int, ...], second: tuple[int, ...], dst: tuple[GroupId, ...]
) -> None:
    stand = batching(name, resend_us=5_000)
    for seqs in (first, second):
        for group in stand.made.spec().ingress_groups(stand.batch(seqs, dst), stand.topology):
            stand.tell(group, stand.batch(seqs, dst))
        stand.settle()
    for process in (process for group in dst for process in stand.topology.members(group)):
        assert [seq for seq, _ in stand.lies(process)] == list(first)


@pytest.mark.parametrize("later_us", range(0, 500, 50))
@pytest.mark.parametrize(("first", "second"), OVERLAPS)
@pytest.mark.parametrize("name", GENUINE)
def test_batches_that_overlap_keep_nobody_waiting(
    name: str, first: tuple[int, ...], second: tuple[int, ...], later_us: int
) -> None:
    """Each group hears of one of them, and refuses the other, which its other destination has ordered. It says so at
    once: nobody waits until something is sent again."""
    stand = batching(name, resend_us=60_000_000)
    loop = stand.simulation.loop
    stand.tell(1, stand.batch(first, (1, 2)))
    loop.at(loop.now + later_us, stand.tell, 2, stand.batch(second, (1, 2)))
    stand.settle()
    assert loop.now < 1_000_000
    told = [stand.lies(process) for process in stand.topology.processes]
    assert all(each == told[0] for each in told)
    assert len(told[0]) == len(set(told[0]))


@pytest.mark.parametrize("name", BATCHING)
def test_what_is_refused_is_answered(name: str) -> None:
    """A driver counts what a leader has not answered, and a client that lies must not fill it with refused messages."""
    stand = batching(name, resend_us=5_000)
    answered: list[MessageId] = []
    at_liar = stand.simulation.process(stand.liar)
    at_liar.on_message = lambda sender, wire, out: answered.extend(wire.ids)  # type: ignore[method-assign]
    first, second = stand.batch((5, 6), (1,)), stand.batch((4, 6), (1,))
    stand.tell(1, first)
    stand.tell(1, second)
    stand.settle()
    assert {first.id, second.id} <= {*answered}


# -- what clients may say


@pytest.mark.parametrize("name", PROTOCOLS)
def test_what_groups_say_to_each_other_is_not_taken_from_a_client(name: str) -> None:
    spec, topology = PROTOCOLS[name], grid(2, 3, clients=2)
    client = topology.clients[0]
    for sample in spec.samples:
        if not isinstance(sample, spec.client_messages):
            assert f"no client sends {sample.__struct_config__.tag}" in str(spec.problem_with(client, sample, topology))


def refused(name: str, **changed: Any) -> list[str | None]:
    """What is said of a client's messages when a field of the message in them is changed."""
    spec, topology = PROTOCOLS[name], grid(2, 3, clients=2)
    client = topology.clients[0]
    message = replace(AppMessage(message_id(client, 3), (1, 2), b""), **changed)
    words = in_words_of(spec, message, topology)
    return [spec.problem_with(client, wire, topology) for wire in words if getattr(wire, "handed_over", tuple)()]


@pytest.mark.parametrize("name", MULTICAST_PROTOCOLS)
def test_fields_of_a_message_are_checked_before_a_group_takes_it(name: str) -> None:
    other = message_id(grid(2, 3, clients=2).clients[1], 3)
    far = message_id(grid(2, 3, clients=2).clients[0], UNSETTLED_MAX)
    assert refused(name) == [None]
    assert refused(name, id=other) == ["a message carries another sender's id"]
    assert "too far ahead" in str(refused(name, id=far))
    assert refused(name, dst=(2, 1)) == ["the destinations of a message are not a sorted list without repetition"]
    assert refused(name, dst=(1, 7)) == ["there is no group g7 to send to"]
    assert refused(name, dst=()) != [None]
    assert refused(name, count=3) != [None]
    assert refused(name, count=-1) != [None]


def test_the_ids_in_a_batch_are_its_senders_own() -> None:
    topology = grid(2, 3, clients=2)
    client = topology.clients[0]
    last = AppMessage(message_id(client, SEQ_LIMIT - 1), (1,), b"", SEQ_LIMIT - 1)
    batch = pack([last, replace(last, id=last.id + 1)])
    problem = PROTOCOLS["fastcast"].problem_with(client, Start((batch,)), topology)
    assert problem == "the ids in a batch run into another sender's"


@pytest.mark.parametrize("name", STAMPED)
@pytest.mark.parametrize("time", [-1, -(1 << 62), 1 << 62, (1 << 63) - 1])
def test_times_that_no_clock_shows_are_refused(name: str, time: int) -> None:
    stand = Stand(name)
    for wire in in_words_of(stand.made.spec(), stand.message(0, (1, 2)), stand.topology, time):
        assert "not the time of a clock" in str(stand.made.spec().problem_with(stand.liar, wire, stand.topology))
        stand.say(1, wire)
        stand.say(2, wire)
    stand.settle()
    assert not any(map(stand.lies, stand.topology.processes))


@pytest.mark.parametrize("name", STAMPED)
@pytest.mark.parametrize("time", [0, 1, 1 << 50, (1 << 62) - 1])
def test_a_wrong_clock_holds_nobody_up(name: str, time: int) -> None:
    stand = Stand(name)
    for seq in range(3):
        for wire in in_words_of(stand.made.spec(), stand.message(seq, (1, 2)), stand.topology, time):
            stand.say(1, wire)
            stand.say(2, wire)
    before = stand.simulation.loop.now
    stand.settle()
    assert stand.simulation.loop.now - before < 5_000_000


@pytest.mark.parametrize("name", STAMPED)
def test_a_client_stamps_for_its_home_group_alone(name: str) -> None:
    stand = Stand(name)
    spec = stand.made.spec()
    for wire in in_words_of(spec, stand.message(0, (1, 2)), stand.topology):
        field = "source" if isinstance(wire, FrMcast) else "group"
        foreign = replace(wire, **{field: 3 - getattr(wire, field)})
        assert "belong to g" in str(spec.problem_with(stand.liar, foreign, stand.topology))


# -- what is held


def test_what_a_sender_can_have_held_is_bounded() -> None:
    held: InFlight[int] = InFlight()
    for seq in range(SENDER_MESSAGES):
        assert held.add(AppMessage(message_id(8, seq), (1,), b""), seq)
    assert not held.add(AppMessage(message_id(8, SENDER_MESSAGES), (1,), b""), 0)
    assert held.add(AppMessage(message_id(9, 0), (1,), b""), 0), "another sender has room"
    assert held.pop(message_id(8, 5)) == 5
    assert held.add(AppMessage(message_id(8, SENDER_MESSAGES), (1,), b""), 0)
    held.drop(lambda id_, _: True)
    assert len(held) == 0
    large = bytes(SENDER_BYTES)
    for sender in range(ALL_BYTES // SENDER_BYTES):
        assert held.add(AppMessage(message_id(sender, 0), (1,), large), 0)
        assert not held.add(AppMessage(message_id(sender, 1), (1,), b"x"), 0)
    assert not held.add(AppMessage(message_id(99, 0), (1,), b"x"), 0)


# -- at random


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_fuzzer_lies_and_nobody_else_is_harmed(name: str) -> None:
    delivered = 0
    for seed in range(4):
        made = fuzz_scenario(name, seed, ("lying-client",), groups=2)
        assert any(isinstance(fault, Liar) for fault in made.plan.faults)
        result = simulate(made)
        assert violations_of(result) == ()
        delivered += result.deliveries
    assert delivered


def test_what_one_group_alone_was_told_is_told_on_a_little_at_a_time() -> None:
    """g2 is slow or down: all of it, in each period, would only make it slower."""
    topology = Topology({1: (0,), 2: (1,)}, (2,))
    replica = FastCast(0, topology, FastCastConfig(resend_max=100), Random(1))
    replica.on_boot(Box(at_once=True))
    many = tuple([AppMessage(message_id(2, seq), (1, 2), b"") for seq in range(3_000)])
    replica.on_message(2, Start(many), Box(at_once=True))
    replica.on_timer("log.1.propose", Box(at_once=True))
    told: list[int] = []
    for _ in range(100):
        period = Box(at_once=True)
        replica.on_timer("fastcast.resend", period)
        told.append(sum(len(start.messages) for start in period.sent(Start)))
    assert max(told) == 100
    assert sum(told) >= len(many), "the turn of each of them has come"


def test_a_message_that_one_group_alone_was_told_is_asked_for_at_once() -> None:
    """Everybody's messages wait for it. The leaders would say it again by themselves, but much later."""
    made = scenario("fastcast", groups=2, clients=2, messages=0, resend_us=60_000_000, seed=1)
    stand = Stand("fastcast", made)
    stand.tell(1, stand.message(0, (1, 2), b"half"))
    stand.settle()
    assert all(stand.lies(process) == [(0, b"half")] for process in stand.topology.processes)
    assert stand.simulation.loop.now < 1_000_000


@pytest.mark.parametrize("dst", [(1, 2), (2,)])
@pytest.mark.parametrize("later_us", range(0, 500, 25))
def test_one_id_for_two_messages_keeps_nobody_waiting(later_us: int, dst: tuple[GroupId, ...]) -> None:
    """A group may hear of another one's message before it has ordered its own: it then says so by itself."""
    stand = Stand("fastcast", scenario("fastcast", groups=2, clients=2, messages=0, resend_us=60_000_000, seed=1))
    loop = stand.simulation.loop
    stand.tell(1, stand.message(0, (1, 2), b"one"))
    loop.at(loop.now + later_us, stand.tell, 2, stand.message(0, dst, b"other"))
    stand.settle()
    assert loop.now < 1_000_000
