"""A stage for Multi-Paxos: a group p0, p1, ... whose every step a script decides, and which tells what it does.

    start 3 window=2        a group of three starts, with these fields of its PaxosConfig
    p0 proposes a b         two entries for the log; p0's turn ends
    p1 ticks 4 times        p1's timer fires; without a number, once
    p1 ticks until it campaigns
    p0 -> p1                all that waits on the way from p0 to p1 arrives
    rest                    all that waits arrives, and what follows from it
    cut off p0              from now on all messages from and to p0 are lost
    heal                    nobody is cut off any more
    crash p0, restart p0, restart p0 without its disk
    quietly rest            any step, without a word of what happened

Ballot 1.p2 is the one of round 1 that p2 owns. Incarnation 2b has the number 2, and the second nonce that was drawn.
Acknowledgements of heartbeats are not told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from amcast.consensus import Decided, Elected, PaxosConfig, StateReceived
from amcast.consensus.multipaxos.messages import (
    NOTHING,
    Accept,
    Accepted,
    CatchUp,
    Heartbeat,
    HeartbeatAck,
    Learn,
    MemberRecord,
    Nack,
    Outdated,
    Prepare,
    Promise,
    PromiseRecord,
    Readmission,
    Rejoin,
    SnapshotRecord,
    State,
    Vote,
    VoteRecord,
    decode_readd,
    nonce_of,
    number_of,
    owner_of,
    round_of,
)
from amcast.core import ProcessId, Record, Wire
from tests.consensus.paxos_harness import Box, Cluster, Member, Persist, Send, SetTimer

CONFIG = PaxosConfig(tick_us=1, election_ticks=3, retransmit_ticks=2)


class PaxosStage(Cluster):
    def __init__(self) -> None:
        self.said: list[str] = []  # what happened in this step
        self._handed_up: list[str] = []  # told after the effects of the same input
        self._cut_off: set[ProcessId] = set()
        self._nonces: dict[int, str] = {}  # letters for those that are drawn, by their order

    # -- steps

    def play(self, step: str) -> list[str]:
        self.said = []
        for pattern, perform in _STEPS:
            if match := re.fullmatch(pattern, step.removeprefix("quietly ")):
                perform(self, *match.groups())
                return [] if step.startswith("quietly ") else self.said
        raise AssertionError(f"'{step}' is no step of a script")

    def begin(self, size: str, fields: str) -> None:
        settings = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", fields)}
        super().__init__(int(size), replace(CONFIG, **settings))

    def propose_all(self, process: str, entries: str) -> None:
        self.propose(int(process), *entries.split())
        self.turn(int(process))

    def tick_until_campaign(self, process: str) -> None:
        for _ in range(2 * CONFIG.election_ticks + 1):
            if self.tick(int(process)).sent(Prepare):
                return
        raise AssertionError(f"p{process} does not campaign")

    def hand_over(self, src: str, dst: str) -> None:
        ends = int(src), int(dst)
        packets = [packet for packet in self.wire if (packet.src, packet.dst) == ends]
        assert packets, f"nothing waits to go from p{src} to p{dst}"
        self.wire = [packet for packet in self.wire if (packet.src, packet.dst) != ends]
        for packet in packets:
            self.deliver(packet)
        self.turn(int(dst))

    def cut_off(self, process: str) -> None:
        self._cut_off.add(int(process))
        self._lose()

    def heal(self) -> None:
        self._cut_off.clear()

    def _lose(self) -> None:
        self.wire = [packet for packet in self.wire if not self._cut_off & {packet.src, packet.dst}]

    # -- what happens

    def _perform(self, member: Member, effects: Sequence[Send | Persist | SetTimer]) -> None:
        name = f"p{member.process}"
        for effect, same in groupby(effects, key=lambda e: e.message if isinstance(e, Send) else e):
            if isinstance(effect, Persist):
                if effect.is_snapshot:
                    self._tell_handed_up()
                record = effect.record
                self.said.append(f"{name} persists {_kind(record)}: {self._details(record)}")
            elif not isinstance(effect, SetTimer | HeartbeatAck):
                receivers = " ".join(f"p{send.to}" for send in same if isinstance(send, Send))
                self.said.append(f"{name} sends {_kind(effect)} to {receivers}: {self._details(effect)}")
        self._tell_handed_up()
        super()._perform(member, effects)
        self._lose()

    def _tell_handed_up(self) -> None:
        self.said += self._handed_up
        self._handed_up = []

    def _act_on(self, member: Member, decision: Any, box: Box) -> None:
        name = f"p{member.process}"
        match decision:
            case Elected():
                self.said.append(f"{name} leads with ballot {_ballot(self.log(member.process)._election.ballot)}")
            case Decided():
                self._handed_up.append(f"{name} hands up instance {decision.instance}, value {_value(decision.value)}")
            case StateReceived():
                self.said.append(f"{name} takes over state, values {_state(decision.state)}")
        super()._act_on(member, decision, box)

    # -- words for messages and records

    def _details(self, said: Wire | Record) -> str:
        match said:
            case Prepare():
                return f"ballot {_ballot(said.ballot)}, from instance {said.first} on"
            case Promise():
                return f"ballot {_ballot(said.ballot)}, {_votes(said.votes)}"
            case Accept():
                return f"ballot {_ballot(said.ballot)}, instance {said.instance}, value {_value(said.value)}"
            case Accepted():
                return f"ballot {_ballot(said.ballot)}, instance {said.instance}"
            case Nack():
                return f"promised {_ballot(said.promised)}"
            case Heartbeat():
                return f"ballot {_ballot(said.ballot)}, decided below {said.decided}"
            case CatchUp():
                return f"from instance {said.first} on"
            case Learn():
                return f"from instance {said.first} on, values {_values(said.values)}"
            case State():
                return f"after all instances below {said.next}, values {_state(said.state)}"
            case Rejoin() | MemberRecord():
                return f"incarnation {self._incarnation(said.incarnation)}"
            case Outdated():
                return f"incarnation {self._incarnation(said.known)} is known"
            case Readmission():
                known = f"ballot {_ballot(said.ballot)}, decided below {said.decided}"
                return f"incarnation {self._incarnation(said.incarnation)}, {known}"
            case PromiseRecord():
                return f"ballot {_ballot(said.ballot)}"
            case VoteRecord():
                return _vote(said.vote)
            case SnapshotRecord():
                word = f"promised {_ballot(said.promised)}, {_votes(said.votes)}"
                word += f", incarnation {self._incarnation(said.incarnation)}"
                return f"after all instances below {said.next}, values {_state(said.state)}; {word}"
            case _:
                raise AssertionError(f"no words for {said}")

    def _incarnation(self, incarnation: int) -> str:
        """Number 2 of the process's second life is 2b."""
        if not incarnation:
            return "0"
        letter = self._nonces.setdefault(nonce_of(incarnation), chr(ord("a") + len(self._nonces)))
        return f"{number_of(incarnation)}{letter}"


_STEPS: tuple[tuple[str, Callable[..., object]], ...] = (
    (r"start (\d)(.*)", PaxosStage.begin),
    (r"p(\d) proposes (.+)", PaxosStage.propose_all),
    (r"p(\d) ticks", lambda stage, process: stage.tick(int(process))),
    (r"p(\d) ticks (\d+) times", lambda stage, process, times: stage.tick(int(process), int(times))),
    (r"p(\d) ticks until it campaigns", PaxosStage.tick_until_campaign),
    (r"p(\d) -> p(\d)", PaxosStage.hand_over),
    (r"rest", PaxosStage.drain),
    (r"cut off p(\d)", PaxosStage.cut_off),
    (r"heal", PaxosStage.heal),
    (r"crash p(\d)", lambda stage, process: stage.crash(int(process))),
    (r"restart p(\d)", lambda stage, process: stage.restart(int(process))),
    (r"restart p(\d) without its disk", lambda stage, process: stage.restart(int(process), with_disk=False)),
)


def _kind(said: Wire | Record) -> str:
    """Prepare: PREPARE, CatchUp: CATCH-UP, VoteRecord: VOTE."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(said).__name__.removesuffix("Record")).upper()


def _ballot(ballot: int) -> str:
    return f"{round_of(ballot)}.p{owner_of(ballot)}"


def _value(value: bytes) -> str:
    if value == NOTHING:
        return "nothing"
    if (readd := decode_readd(value)) is not None:
        return f"take back p{readd.process}"
    return " ".join(msgspec.msgpack.decode(value))


def _values(values: Sequence[bytes]) -> str:
    return " | ".join(map(_value, values))


def _vote(vote: Vote) -> str:
    return f"ballot {_ballot(vote.ballot)}, instance {vote.instance}, value {_value(vote.value)}"


def _votes(votes: Sequence[Vote]) -> str:
    return f"votes ({'; '.join(map(_vote, votes))})" if votes else "no votes"


def _state(state: bytes) -> str:
    """The state of the harness's application is all values that it was handed."""
    return _values([value for _, value in msgspec.msgpack.decode(state)])
