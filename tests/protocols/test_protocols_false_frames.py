"""A peer's valid but false frame stops no member of a Byzantine group.

Liars say whatever decodes: every wire message of the protocol, with any values in it, in their own name. No handler
raises, what members hold stays bounded, and the groups order what honest clients send.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from msgspec import structs

from amcast.consensus import PaxosConfig
from amcast.consensus.bft.messages import Propose
from amcast.core import AppMessage, ProcessId, Wire, encode, grid, message_id, pack, signed_part
from amcast.core.batch import problem_with_batch
from amcast.core.message import PAYLOAD_LIMIT
from amcast.protocols import Start, protocol
from amcast.protocols._adapter import Submit
from amcast.protocols._byzantine import _HEARD_BYTES, ByzantineReplica, Heard, Judgement
from amcast.protocols.tree import Relay
from amcast.sim import FaultPlan, Simulation, scenario
from amcast.sim.byzantine import Lying
from amcast.sim.faults import Traitor
from tests.nonsense import DEEP, Falsehoods

BYZANTINE = ["byzcast", "bft"]
ROUNDS = 3
FRAMES = 200  # in each round
HELD_BYTES = 3 << 20  # by a member, of what liars said to it


class FalseFrames:
    """A simulated cluster of two groups of four, one of each lies, and so does a client."""

    def __init__(self, name: str, seed: int) -> None:
        self.rng = Random(seed)
        self.liars = (seed % 4, 4 + seed // 4 % 4)
        traitors = [Traitor(0, liar, Lying(("slow",), 0.0, seed)) for liar in self.liars]  # by name: the test lies
        paxos = PaxosConfig(tick_us=1_000, election_ticks=4, snapshot_every=20, lag_max=20)
        made = scenario(name, groups=2, clients=2, messages=0, seed=seed, paxos=paxos, resend_us=5_000, retry_us=20_000)
        made = structs.replace(made, plan=FaultPlan(tuple(traitors)), records_wire=False, patience_us=2_000_000)
        self.simulation = Simulation(made)
        self.topology = made.topology()
        self.honest, self.lying_client = self.topology.clients
        self.spec = made.spec()
        self.codec = self.spec.codec()
        self.falsehoods = Falsehoods(self.rng, self.spec, self.topology, self.lying_client)
        self.simulation.start()

    @property
    def members(self) -> list[ProcessId]:
        return [process for process in self.topology.processes if process not in self.liars]

    def lie_to(self, member: ProcessId) -> Wire:
        replica: Any = self.simulation.process(member)
        sender = self.rng.choice((*self.liars, self.lying_client))
        sign = self.simulation._nodes[sender].sign
        message = self.falsehoods.draw(sender, member, replica, sign)
        message = self.codec.decode_message(encode(message))
        replica.on_message(sender, message, self.simulation._nodes[member])
        return message

    def restart(self, member: ProcessId) -> None:
        """It has its disk: whatever liars made it write is there."""
        node = self.simulation._nodes[member]
        node.crash()
        node.restart(with_disk=True)

    def orders(self) -> None:
        """The groups still order what an honest client sends."""
        for dst in ((1,), (2,), (1, 2)):
            self.simulation.multicast(self.honest, dst, b"true")
        assert self.simulation.settle(), self.simulation._broken or "what the honest client sends is delivered"


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("name", BYZANTINE)
@pytest.mark.parametrize("seed", range(4))
def test_false_frames_stop_no_member(name: str, seed: int) -> None:
    frames = FalseFrames(name, seed)
    frames.orders()
    for _ in range(ROUNDS):
        for _ in range(FRAMES):
            frames.lie_to(frames.rng.choice(frames.members))
        frames.restart(frames.rng.choice(frames.members))
        frames.orders()


@pytest.mark.parametrize("name", BYZANTINE)
def test_what_liars_say_does_not_pile_up(name: str, traced: None) -> None:
    frames = FalseFrames(name, 1)
    said = 0
    for _ in range(4 * FRAMES):
        said += len(encode(frames.lie_to(frames.members[0])))
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    assert said > 4 * HELD_BYTES
    assert held < HELD_BYTES
    frames.orders()


# -- values


def replica_of(name: str = "byzcast", process: ProcessId = 1) -> tuple[ByzantineReplica, FalseFrames]:
    frames = FalseFrames(name, 0)
    frames.orders()
    replica = frames.simulation.process(process)
    assert isinstance(replica, ByzantineReplica)
    return replica, frames


def test_a_value_with_more_in_it_than_its_entries_is_bad() -> None:
    """It would decode where the stack is shallow, and not where it is deep: when it is handed up, or at a restart."""
    replica, frames = replica_of()
    node = frames.simulation._nodes[1]
    message = AppMessage(message_id(frames.honest, 50), (1,), b"")
    message = structs.replace(message, proof=frames.simulation._nodes[frames.honest].sign(signed_part(message)))
    good = encode([Submit(message)])
    assert replica._judge(good, node) is Judgement.GOOD
    array = bytearray(good)
    assert array[1] == 0x92, "one entry: its tag and its message"
    array[1] = 0x93
    longer = bytes(array) + b"\x91" * 50 + b"\x00"
    assert replica._entries.decode(longer) == replica._entries.decode(good)
    assert replica._judge(longer, node) is Judgement.BAD


def test_a_batch_that_makes_too_large_a_value_is_refused_and_no_leader_replaced() -> None:
    replica, frames = replica_of()
    parts = [AppMessage(message_id(frames.lying_client, seq), (1,), bytes(PAYLOAD_LIMIT)) for seq in range(6)]
    batch = pack(parts)
    node = frames.simulation._nodes[frames.lying_client]
    signed = frames.falsehoods.signed(frames.lying_client, Start((batch,)), node.sign)
    node.send_all(frames.topology.members(1), signed)
    frames.orders()
    assert replica._log.view == 0


def test_a_batch_that_is_nested_too_deeply_is_refused() -> None:
    topology = grid(1, 4, clients=1)
    client = topology.clients[0]
    for payload in (DEEP, b"\x94" + b"\xc4\x00" * 3 + b"\x91" * 100_000 + b"\x00"):
        batch = AppMessage(message_id(client, 0), (1,), payload, 0, 2)
        assert "not a batch" in str(protocol("byzcast").problem_with(client, Start((batch,)), topology))


def test_a_batch_with_more_in_it_than_its_parts_is_refused() -> None:
    parts = [AppMessage(message_id(8, seq), (1,), b"part") for seq in range(2)]
    batch = pack(parts)
    assert problem_with_batch(batch, PAYLOAD_LIMIT) is None
    longer = structs.replace(batch, payload=b"\x94" + batch.payload[1:] + b"\x91\x91\x00")
    assert "more in it" in str(problem_with_batch(longer, PAYLOAD_LIMIT))


# -- streams of other groups


def relay(number: int, size: int, dst: tuple[int, ...] = (1,)) -> Relay:
    return Relay(AppMessage(message_id(8, number), dst, bytes(size)))


def test_whoever_agrees_with_others_may_not_leave_more_of_its_own() -> None:
    heard, size = Heard(), _HEARD_BYTES // 16
    for seq in range(1, 2_000):
        heard.hear(5, seq, relay(seq, size), 2)  # a liar, about what is far away
    held = sum(len(told) for told in heard._told.values())
    for _ in range(100):
        body = relay(0, size)
        heard.hear(4, heard.applied, body, 2)
        heard.hear(5, heard.applied, body, 2)
        heard.apply(0)
        for seq in range(2_000, 2_100):
            heard.hear(5, seq, relay(seq, size), 2)
    assert sum(len(told) for told in heard._told.values()) <= held


def test_destinations_and_proofs_count_as_well() -> None:
    heard = Heard()
    many = tuple(range(100_000))
    for seq in range(1, 100):
        heard.hear(5, seq, relay(seq, 0, many), 2)
        heard.hear(6, seq, Relay(AppMessage(seq, (1,), b"", 0, 1, bytes(1 << 20))), 2)
    assert sum(len(told) for told in heard._told.values()) < 30


def test_a_proposal_of_a_former_leader_is_not_looked_at() -> None:
    replica, frames = replica_of()
    before = replica._log._ledger.next
    replica.on_message(3, Propose(1, 0, before, encode([])), frames.simulation._nodes[1])
    assert before not in replica._log._ledger.slots
