"""A peer's valid but false frame stops no member of a Byzantine group.

Liars say whatever decodes: every wire message of the protocol, with any values in it, in their own name. No handler
raises, what members hold stays bounded, and the groups order what honest clients send.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from functools import cache
from random import Random
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from msgspec import structs

from amcast.consensus import LogWire, PaxosConfig, PaxosMessage
from amcast.consensus.bft.messages import COMMAND, NewView, Propose, Readd, ViewChange, digest_of, encode_readd
from amcast.core import AppMessage, ProcessId, Wire, encode, grid, message_id, pack, signed_part
from amcast.core.batch import problem_with_batch
from amcast.core.message import PAYLOAD_LIMIT
from amcast.protocols import Reply, Start, protocol
from amcast.protocols._adapter import Frame, Submit
from amcast.protocols._byzantine import _HEARD_BYTES, ByzantineReplica, Heard, Judgement
from amcast.protocols.tree import Relay
from amcast.sim import FaultPlan, Simulation, scenario
from amcast.sim.byzantine import Lying
from amcast.sim.faults import Traitor

BYZANTINE = ["byzcast", "bft"]
ROUNDS = 3
FRAMES = 200  # in each round
LARGE = bytes(1 << 20)
HELD_BYTES = 3 << 20  # by a member, of what liars said to it
DEEP = b"\x93" + b"\x01\x02" + b"\x91" * 5_000 + b"\x00"
FAR_NUMBERS = [*range(-1, 9), 64, 1_000, 1 << 31, 1 << 40, 1 << 59, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63)]
ODD_BLOBS = [b"", b"\x00", bytes(31), bytes(32), bytes(33), digest_of(b""), encode([]), b"\x90" * 2, COMMAND, DEEP]
ODD_BLOBS += [COMMAND + DEEP, encode_readd(Readd(3, 1 << 40))]


fields_of = cache(structs.fields)  # it evaluates annotations each time


class Nonsense:
    """Draws values of any type that wire messages are made of. Half are the receiver's own numbers and digests."""

    def __init__(self, rng: Random, numbers: list[int], blobs: list[bytes]) -> None:
        self._rng = rng
        self._left = 500  # elements of tuples, of all in a message
        self._numbers, self._blobs = (numbers, FAR_NUMBERS), (blobs or ODD_BLOBS, ODD_BLOBS)

    def draw(self, type_: Any, depth: int = 0) -> Any:
        origin, args, rng = get_origin(type_), get_args(type_), self._rng
        if type_ is bool:
            return rng.random() < 0.5
        if type_ is int:
            return rng.choice(rng.choice(self._numbers))
        if type_ is bytes:
            return LARGE if depth < 2 and rng.random() < 0.1 else rng.choice(rng.choice(self._blobs))
        if type_ is NoneType:
            return None
        if origin in (Union, UnionType):
            return self.draw(rng.choice(args), depth)
        if origin is dict:
            return {self.draw(args[0]): self.draw(args[1]) for _ in range(rng.randrange(3))}
        if origin is tuple and args[1:] == (Ellipsis,):
            return tuple([self.draw(args[0], depth + 1) for _ in range(self._length())])
        if origin is tuple:
            return tuple([self.draw(each, depth) for each in args])
        assert issubclass(type_, msgspec.Struct), type_
        return type_(*[self.draw(field.type, depth + 1) for field in fields_of(type_)])

    def _length(self) -> int:
        length = min(self._left, self._rng.choice((0, 1, 1, 2, 3, 5, 500)))
        self._left -= length
        return length


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
        own = get_args(Start | Reply | self.spec.messages)
        self.kinds = [*own * 10, *get_args(PaxosMessage)]  # those of another log decode as well
        self.simulation.start()

    @property
    def members(self) -> list[ProcessId]:
        return [process for process in self.topology.processes if process not in self.liars]

    def lie_to(self, member: ProcessId) -> Wire:
        replica: Any = self.simulation.process(member)
        sender = self.rng.choice((*self.liars, self.lying_client))
        message = self.signed(sender, self.aimed(sender, member, self.drawn(replica)))
        message = self.codec.decode_message(encode(message))
        replica.on_message(sender, message, self.simulation._nodes[member])
        return message

    def drawn(self, replica: Any) -> Any:
        log = replica._log
        numbers = [log.view, log.view + 1, log._ledger.next, log._ledger.next + 1, log._ledger.floor]
        numbers += [log._ledger.next + self.rng.randrange(60) for _ in range(5)]
        numbers += [heard.applied for heard in replica._heard.values()]
        numbers += [message_id(self.lying_client, self.rng.randrange(9))]
        slots = list(log._ledger.slots.values())[-3:]
        blobs = [digest for slot in slots for digest in slot.values]
        blobs += [value for slot in slots for value in slot.values.values()]
        return Nonsense(self.rng, numbers, blobs).draw(self.rng.choice(self.kinds))

    def aimed(self, sender: ProcessId, member: ProcessId, message: Any) -> Any:
        """Mostly under its own name, and to the group that it concerns: otherwise nobody would look at it."""
        if self.rng.random() < 0.1:
            return message
        if isinstance(message, LogWire):
            message = structs.replace(message, group=self.topology.group_of(member))
        if isinstance(message, Frame) and self.topology.group_of(sender) is not None:
            message = structs.replace(message, source=self.topology.group_of(sender))
        if isinstance(message, ViewChange):
            message = structs.replace(message, process=sender)
        if isinstance(message, Propose):
            log: Any = self.simulation.process(member)._log  # type: ignore[attr-defined]
            message = structs.replace(message, view=log.view, instance=log._ledger.next + self.rng.randrange(3))
        return message

    def signed(self, sender: ProcessId, message: Any) -> Any:
        """A liar signs for itself alone."""
        sign = self.simulation._nodes[sender].sign
        if isinstance(message, NewView):
            changes = [structs.replace(each, group=message.group, process=sender) for each in message.changes]
            message = structs.replace(message, changes=tuple([self.signed(sender, each) for each in changes]))
        if isinstance(message, ViewChange | NewView):
            return structs.replace(message, proof=sign(message.signed()))
        if isinstance(message, Start):
            signed = [structs.replace(each, proof=sign(signed_part(each))) for each in message.messages]
            return Start(tuple(signed))
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
    node.send_all(frames.topology.members(1), frames.signed(frames.lying_client, Start((batch,))))
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
