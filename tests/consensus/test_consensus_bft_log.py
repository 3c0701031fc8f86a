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
    PreparedRecord,
    Propose,
    Readd,
    Status,
    Value,
    Values,
    ViewChange,
    Voted,
    Write,
    WrittenRecord,
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
    def __init__(self, process: ProcessId, at_once: bool = False) -> None:
        super().__init__(at_once)
        self._process = process

    def sign(self, data: bytes) -> bytes:
        return Keys().sign(self._process, data)

    def verify(self, process: ProcessId, data: bytes, proof: bytes) -> bool:
        return Keys().verify(process, data, proof)


class Member:
    """A log whose layer above approves of everything, at the end of each turn, or of nothing."""

    def __init__(
        self,
        process: ProcessId = MEMBER,
        records: Sequence[Record] | None = None,
        at_once: bool = False,
        approves: bool = True,
        size: int = 4,
    ) -> None:
        self.log = Bft(GROUP, process, Topology({GROUP: range(size)}), PaxosConfig(), Random(1))
        self.box = SignedBox(process, at_once)
        self.approves = approves
        self.judged: list[Proposed] = []  # what the layer above was asked about
        if records is not None:
            self.log.recover(records)
        self.log.on_boot(self.box)

    def hear(self, sender: ProcessId, *messages: Wire) -> None:
        """In one turn."""
        for message in messages:
            self.log.on_message(sender, message, self.box)
        self.end_turn()

    def end_turn(self) -> None:
        for decision in self.log.on_timer("log.1.judge", self.box):
            assert isinstance(decision, Proposed)
            self.judged.append(decision)
            if self.approves:
                self.log.approve(decision.view, decision.instance, self.box)

    def tick(self) -> None:
        self.log.on_timer("log.1.tick", self.box)

    def lose_hope(self) -> None:
        """The writes of all did not come in time."""
        for _ in range(2):
            self.log.on_timer("log.1.hope", self.box)

    @property
    def slots(self) -> dict[int, Any]:
        return self.log._ledger.slots


def decided(member: Member, instance: int, value: bytes) -> None:
    """The others accept a value that this member has not seen."""
    for other in (LEADER, OTHER, LAST):
        member.hear(other, Accept(GROUP, 0, instance, digest_of(value)))


VALUE = encode(["value"])
DIGEST = digest_of(VALUE)


def propose(leader: Member, entry: Any) -> None:
    leader.log.propose(entry, leader.box)
    leader.log.on_timer("log.1.propose", leader.box)


def test_a_proposal_that_is_on_its_leaders_disk_is_the_leaders_write() -> None:
    leader = Member(LEADER, at_once=True)
    propose(leader, "value")
    assert [proposal.is_written for proposal in leader.box.sent(Propose)] == [True] * 3
    assert not leader.box.sent(Write)
    assert leader.box.index(WrittenRecord) < leader.box.index(Propose)


def test_a_proposal_does_not_wait_for_its_leaders_disk() -> None:
    """Its WRITE does, and so comes apart from it."""
    leader = Member(LEADER)
    propose(leader, "value")
    assert [proposal.is_written for proposal in leader.box.sent(Propose)] == [False] * 3
    assert leader.box.index(Propose) < leader.box.index(WrittenRecord) < leader.box.index(Write)


def test_a_proposal_that_is_a_write_as_well_counts_once() -> None:
    member = Member()
    member.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True), Write(GROUP, 0, 0, DIGEST))
    assert not member.box.sent(Accept)
    member.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    member.lose_hope()
    assert len(member.box.sent(Accept)) == 3


def test_what_one_more_than_may_lie_wrote_is_written_without_a_look_at_it() -> None:
    member = Member(approves=False)
    member.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    member.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True))
    assert not member.judged
    assert [record.value for record in member.box.persisted(WrittenRecord)] == [VALUE]
    member = Member(approves=False)
    member.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True))
    assert len(member.judged) == 1
    assert not member.box.persisted(WrittenRecord)
    member.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    assert len(member.box.persisted(WrittenRecord)) == 1


def test_what_as_many_as_may_lie_wrote_is_not_written_without_a_look_at_it() -> None:
    member = Member(approves=False, size=7)
    member.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True), Write(GROUP, 0, 0, DIGEST))
    member.hear(OTHER, Write(GROUP, 0, 0, DIGEST), Accept(GROUP, 0, 0, DIGEST))
    for other in (3, 4, 5):
        member.hear(other, Write(GROUP, 0, 0, digest_of(b"another")), Accept(GROUP, 0, 0, DIGEST))
    assert len(member.judged) == 1
    assert not member.box.persisted(WrittenRecord)


def test_what_all_members_wrote_is_decided_without_accepts() -> None:
    member = Member()
    member.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True))
    member.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    assert member.log._ledger.next == 0, "one has not written"
    member.hear(LAST, Write(GROUP, 0, 0, DIGEST))
    assert member.log._ledger.next == 1
    member.lose_hope()
    assert not member.box.sent(Accept)


def test_a_member_that_knows_the_decision_accepts_for_one_that_does_not() -> None:
    """A liar wrote to some members alone: those who have not heard all accept, and need the others to do so too."""
    member = Member()
    member.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True))
    member.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    member.hear(LAST, Write(GROUP, 0, 0, DIGEST))
    member.hear(OTHER, Accept(GROUP, 0, 0, DIGEST))
    assert len(member.box.sent(Accept)) == 3
    assert member.box.index(PreparedRecord) < member.box.index(Accept)


def test_writes_of_different_views_and_values_decide_nothing() -> None:
    member = Member()
    member.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True))
    member.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    member.hear(LAST, Write(GROUP, 1, 0, DIGEST))
    assert member.log._ledger.next == 0
    member = Member()
    member.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True))
    member.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    member.hear(LAST, Write(GROUP, 0, 0, digest_of(b"another")))
    assert member.log._ledger.next == 0


def test_a_member_that_hoped_in_vain_accepts_at_once_for_a_while() -> None:
    member = Member()

    def order(instance: int, *writers: int) -> int:
        """How many accepts it sends."""
        member.box.effects.clear()
        member.hear(LEADER, Propose(GROUP, 0, instance, VALUE, is_written=True))
        for writer in writers:
            member.hear(writer, Write(GROUP, 0, instance, DIGEST))
        return len(member.box.sent(Accept))

    assert order(0, OTHER) == 0
    member.lose_hope()
    assert len(member.box.sent(Accept)) == 3
    member.hear(LEADER, Accept(GROUP, 0, 0, DIGEST))
    member.hear(OTHER, Accept(GROUP, 0, 0, DIGEST))
    for instance in range(1, 8):
        assert order(instance, OTHER) == 3, "it does not wait"
        for other in (LEADER, OTHER):
            member.hear(other, Accept(GROUP, 0, instance, DIGEST))
    assert order(8, OTHER) == 0
    member.lose_hope()
    assert member.log._votes._resting == 16, "and longer if it happens again"


def test_a_member_that_writes_last_sends_its_accept_alone() -> None:
    """And others take it for both. That is so where it does not hope for the writes of all."""
    last = Member(LAST)
    last.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True))
    assert len(last.box.sent(Write)) == 3
    last = Member(LAST)
    last.log._votes._resting = 1
    last.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    last.hear(LEADER, Propose(GROUP, 0, 0, VALUE, is_written=True))
    assert not last.box.sent(Write)
    assert len(last.box.sent(Accept)) == 3
    assert last.box.index(WrittenRecord) < last.box.index(PreparedRecord) < last.box.index(Accept)
    leader = Member(LEADER, at_once=True)
    propose(leader, "value")
    leader.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    assert not leader.box.sent(Accept)
    leader.hear(LAST, Accept(GROUP, 0, 0, DIGEST))
    assert len(leader.box.sent(Accept)) == 3


def test_what_was_not_decided_is_not_written_any_more() -> None:
    """The leader told this member another value than the others, and these have decided theirs."""
    member = Member(approves=False)
    member.hear(LEADER, Propose(GROUP, 0, 0, encode(["another"])))
    decided(member, 0, VALUE)
    member.hear(OTHER, Value(GROUP, 0, VALUE))
    assert member.log._ledger.next == 1
    assert member.log.approve(0, 0, member.box) == []
    assert not member.box.persisted(WrittenRecord)


def test_a_proposal_is_sent_again_to_those_who_have_not_accepted_and_not_at_once() -> None:
    leader = Member(LEADER, at_once=True)
    propose(leader, "value")
    leader.hear(MEMBER, Accept(GROUP, 0, 0, DIGEST))
    leader.hear(OTHER, Write(GROUP, 0, 0, DIGEST))
    leader.box.effects.clear()
    wait = PaxosConfig().retransmit_ticks
    for _ in range(wait):
        leader.tick()
    assert leader.box.sent(Write)
    assert not leader.box.sent(Propose)
    for _ in range(2 * wait):
        leader.tick()
    again = [effect.to for effect in leader.box.effects if isinstance(getattr(effect, "message", None), Propose)]
    assert again == [OTHER, LAST]


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
