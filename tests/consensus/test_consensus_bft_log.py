"""One member of a Byzantine log, and what others say to it: each test moves the messages by hand."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from msgspec.msgpack import decode

from amcast.consensus import Bft, PaxosConfig, Proposed
from amcast.consensus.bft.messages import (
    COMMAND,
    Accept,
    AskRejoin,
    AskValue,
    Checkpoint,
    CheckpointState,
    HandedState,
    Outrun,
    Propose,
    Readd,
    Status,
    Value,
    Values,
    ViewChange,
    Voted,
    Write,
    digest_of,
    encode_readd,
)
from amcast.core import ProcessId, Record, Topology, Wire, encode
from amcast.sim.keys import Keys
from tests.consensus.paxos_harness import Box

GROUP = 1
LEADER, MEMBER, OTHER, LAST = range(4)
FAR = 1 << 63
LONG = bytes(10_000)


class SignedBox(Box):
    def __init__(self, process: ProcessId) -> None:
        super().__init__()
        self._process = process

    def sign(self, data: bytes) -> bytes:
        return Keys().sign(self._process, data)

    def verify(self, process: ProcessId, data: bytes, proof: bytes) -> bool:
        return Keys().verify(process, data, proof)


class Member:
    """A log whose layer above approves of everything."""

    def __init__(self, process: ProcessId = MEMBER, records: Sequence[Record] | None = None) -> None:
        self.log = Bft(GROUP, process, Topology({GROUP: range(4)}), PaxosConfig(), Random(1))
        self.box = SignedBox(process)
        if records is not None:
            self.log.recover(records)
        self.log.on_boot(self.box)

    def hear(self, sender: ProcessId, message: Wire) -> None:
        for decision in self.log.on_message(sender, message, self.box):
            if isinstance(decision, Proposed):
                self.log.approve(decision.view, decision.instance, self.box)

    def tick(self) -> None:
        self.log.on_timer("log.1.tick", self.box)

    @property
    def slots(self) -> dict[int, Any]:
        return self.log._ledger.slots


def decided(member: Member, instance: int, value: bytes) -> None:
    """The others accept a value that this member has not seen."""
    for other in (LEADER, OTHER, LAST):
        member.hear(other, Accept(GROUP, 0, instance, digest_of(value)))


def test_a_leader_that_proposes_something_else_to_a_restarted_member_is_left() -> None:
    """The member wrote the first proposal before it was restarted, in the same view: it must not write the second."""
    before = Member()
    before.hear(LEADER, Propose(GROUP, 0, 0, encode(["one"])))
    assert before.box.sent(Write)
    after = Member(records=before.box.persisted(Record))
    after.hear(LEADER, Propose(GROUP, 0, 0, encode(["other"])))
    assert not after.box.sent(Write)
    assert [change.view for change in after.box.sent(ViewChange)] == [1] * 3


@pytest.mark.parametrize(
    "message",
    [
        Write(GROUP, 0, 0, LONG),
        Accept(GROUP, 0, 0, LONG),
        Write(GROUP, 0, 0, b""),
        Write(GROUP, -1, 0, digest_of(b"")),
        Write(GROUP, FAR, 0, digest_of(b"")),
        Values(GROUP, 0, (LONG,)),
        Values(GROUP, 0, (digest_of(b""),) * 5_000),
    ],
    ids=lambda message: type(message).__name__,
)
def test_votes_that_no_member_gives_are_not_kept(message: Wire) -> None:
    member = Member()
    member.hear(OTHER, message)
    assert not member.slots


def test_digests_of_checkpoints_have_the_length_of_one() -> None:
    member = Member()
    member.hear(OTHER, Status(GROUP, 0, True, 0, (Checkpoint(5, LONG),)))
    assert not member.log._checkpoints.givers(5)


@pytest.mark.parametrize(
    "votes",
    [
        (Voted(0, 0, LONG, ()),),
        (Voted(0, -1, b"", ((0, LONG),)),),
        (Voted(0, -1, b"", ((0, digest_of(b"")),) * 100_000),),
        (Voted(-1, -1, b"", ()),),
        (Voted(FAR, -1, b"", ()),),
    ],
    ids=["prepared", "written", "many", "negative", "far"],
)
def test_a_view_change_that_no_member_makes_is_not_kept(votes: tuple[Voted, ...]) -> None:
    member = Member()
    change = ViewChange(GROUP, 1, OTHER, 0, 0, (), votes)
    proof = SignedBox(OTHER).sign(change.signed())
    member.hear(OTHER, ViewChange(GROUP, 1, OTHER, 0, 0, (), votes, proof))
    assert not member.log._views.changes


def test_values_of_one_member_do_not_pile_up() -> None:
    """A member that lags is told values before it knows which is the right one. It keeps one answer of each member."""
    member = Member()
    for number in range(50):
        value = b"%d" % number
        member.hear(OTHER, Values(GROUP, 0, (digest_of(value),), (value,)))
        member.hear(OTHER, Value(GROUP, 0, value))
    assert not member.slots[0].values
    assert len(member.log._catch_up._offered) == 1


def test_a_value_is_taken_whether_it_comes_before_the_digests_or_after_them() -> None:
    for order in ((OTHER, LAST), (LAST, OTHER)):
        member, value = Member(), encode(["value"])
        for sender in order:
            values = (value,) if sender == OTHER else ()
            member.hear(sender, Values(GROUP, 0, (digest_of(value),), values))
        assert member.log._ledger.next == 1


def test_an_answer_is_forgotten_when_its_instances_are_handed_up() -> None:
    member, value = Member(), encode(["value"])
    for sender in (OTHER, LAST):
        member.hear(sender, Values(GROUP, 0, (digest_of(value),), (value,)))
    member.tick()
    assert not member.log._catch_up._offered


def test_a_value_is_sent_once_a_tick_to_whoever_asks() -> None:
    member = Member()
    values = [encode(["one"]), encode(["two"])]
    for instance, value in enumerate(values):
        member.hear(LEADER, Propose(GROUP, 0, instance, value))
    for _ in range(20):
        for instance, value in enumerate(values):
            member.hear(OTHER, AskValue(GROUP, instance, digest_of(value)))
    assert [answer.value for answer in member.box.sent(Value)] == values
    member.tick()
    member.hear(OTHER, AskValue(GROUP, 0, digest_of(values[0])))
    assert len(member.box.sent(Value)) == 3


@pytest.mark.parametrize("more", [b"\x91" * 100_000 + b"\x00", b"\x01"], ids=["deep", "short"])
def test_a_command_with_more_in_it_is_no_command(more: bytes) -> None:
    """What is nested too deeply does not decode, and what does at one member may not do so at another."""
    member = Member()
    incarnation = 1 << 40
    member.hear(OTHER, AskRejoin(GROUP, incarnation))
    plain = encode_readd(Readd(OTHER, incarnation))
    longer = COMMAND + b"\x93" + plain[2:] + more
    member.hear(LEADER, Propose(GROUP, 0, 0, longer))
    assert not member.box.sent(Write)
    member.hear(LEADER, Propose(GROUP, 0, 1, plain))
    assert [write.instance for write in member.box.sent(Write)] == [1] * 3


def test_an_incarnation_that_could_not_be_sent_is_not_asked_for() -> None:
    """The next higher number would be too large to encode."""
    member = Member(records=[])
    for other in (LEADER, OTHER, LAST):
        member.hear(other, Outrun(GROUP, (1 << 64) - 1))
    for _ in range(PaxosConfig().retransmit_ticks):
        member.tick()
    assert all(encode(ask) for ask in member.box.sent(AskRejoin))


def test_a_member_without_its_disk_forgets_what_a_state_covers() -> None:
    member = Member(records=[])
    for instance in range(20):
        member.hear(OTHER, Accept(GROUP, 0, instance, digest_of(b"")))
    state = encode(CheckpointState(15, {}, b""))
    for other in (LEADER, OTHER):
        member.hear(other, Status(GROUP, 0, True, 15, (Checkpoint(15, digest_of(state)),)))
    member.hear(OTHER, HandedState(GROUP, 15, state))
    assert sorted(member.slots) == [15, 16, 17, 18, 19]


def test_a_value_that_was_decided_is_taken_from_anybody() -> None:
    member, value = Member(), encode(["value"])
    decided(member, 0, value)
    assert member.log._ledger.next == 0
    member.hear(LAST, Value(GROUP, 0, value))
    assert member.log._ledger.next == 1


def test_entries_wait_for_each_other_while_every_phase_has_an_instance() -> None:
    leader = Member(LEADER)
    for number in range(8):
        leader.log.propose(number, leader.box)
        leader.log.on_timer("log.1.propose", leader.box)
    proposed = leader.box.sent(Propose)[::3]
    assert [decode(each.value) for each in proposed] == [[0], [1], [2]]
    for message in (Write, Accept):
        for other in (MEMBER, OTHER):
            leader.hear(other, message(GROUP, 0, 0, digest_of(proposed[0].value)))
    leader.log.on_timer("log.1.propose", leader.box)
    last = leader.box.sent(Propose)[-1]
    assert decode(last.value) == [3, 4, 5, 6, 7]
