"""Catch-up: how a member that lags gets what others have.

    member that lags               the others
       |--ASK-VALUES---------------->|   from instance i on
       |<--VALUES--------------------|   all tell digests, and one the values: f+1 equal digests decide
       |--ASK-STATE----------------->|   if they have forgotten i: the state at a checkpoint that f+1 members said
       |<--HANDED-STATE--------------|

Nobody is believed alone: a value and a state are taken by their digests, whoever sends them. A member whose own state
went astray takes one over in the same way.
"""

from __future__ import annotations

import msgspec

from ...core import Outbox, ProcessId, Wire
from ..base import Decision, SnapshotDue, StateReceived
from ..multipaxos.config import PaxosConfig
from .checkpoints import Checkpoints
from .ledger import Ledger
from .members import Members
from .messages import (
    NO_DIGEST,
    AskState,
    AskValue,
    AskValues,
    CheckpointState,
    HandedState,
    Value,
    Values,
    digest_of,
)
from .rejoin import Rejoin

_ASKED_MAX = 8  # values that are decided and lack, asked for in one tick

_state_decoder = msgspec.msgpack.Decoder(CheckpointState)


def decode_state(packed: bytes) -> CheckpointState:
    return _state_decoder.decode(packed)


class Questions:
    """An answer costs more than its question: a member is answered once a tick to each question."""

    def __init__(self) -> None:
        self._ticks = 0
        self._asked: set[tuple[ProcessId, type[Wire], int]] = set()  # in this tick

    def may_ask(self, sender: ProcessId, kind: type[Wire], number: int, ticks: int) -> bool:
        if self._ticks != ticks:
            self._ticks, self._asked = ticks, set()
        question = (sender, kind, number)
        is_first = question not in self._asked
        self._asked.add(question)
        return is_first


class CatchUp:
    def __init__(
        self, members: Members, config: PaxosConfig, ledger: Ledger, checkpoints: Checkpoints, rejoin: Rejoin
    ) -> None:
        self._members = members
        self._config = config
        self._ledger = ledger
        self._checkpoints = checkpoints
        self._rejoin = rejoin
        # Values that a member told, until f+1 members have said the same digests: the last answer of each.
        self._offered: dict[ProcessId, Values] = {}
        self._next_of: dict[ProcessId, int] = {}  # how far the others said that they are
        self._last_next = 0  # how far this member was at the last tick
        self._repairing: int | None = None  # a checkpoint at which this member is astray

    def on_next(self, sender: ProcessId, next_: int) -> None:
        """A member says how far it is."""
        self._next_of[sender] = next_

    def repair_if_astray(self) -> None:
        strayed = self._checkpoints.strayed()
        if strayed is not None:
            self._checkpoints.repair(strayed.next)
            self._repairing = strayed.next

    # -- asking

    def on_tick(self, ticks: int, out: Outbox) -> None:
        """Asks for what others have and this member lacks, if nothing came since the last tick."""
        ledger, members = self._ledger, self._members
        offered = self._offered.items()
        self._offered = {p: told for p, told in offered if told.first + len(told.values) > ledger.next}
        ahead = [process for process, next_ in self._next_of.items() if next_ > ledger.next]
        is_stuck, self._last_next = ledger.next == self._last_next, ledger.next
        if self._repairing is not None:
            self._ask_for_state(ticks, out)
        elif ahead and is_stuck and not ledger.at_checkpoint:
            giver = ahead[ticks % len(ahead)]
            out.send_all(members.others, AskValues(members.group, ledger.next, giver))
        for instance in ledger.unfinished()[:_ASKED_MAX]:
            slot = ledger.slots[instance]
            if slot.decided and ticks - slot.told >= self._config.retransmit_ticks:
                slot.told = ticks
                out.send_all(members.others, AskValue(members.group, instance, slot.decided))

    def _ask_for_state(self, ticks: int, out: Outbox) -> None:
        wanted = self._checkpoints.vouched()
        if wanted is None or (wanted.next <= self._ledger.next and self._repairing is None):
            return
        givers = self._checkpoints.givers(wanted.next)
        out.send(givers[ticks % len(givers)], AskState(self._members.group, wanted.next))

    # -- answers

    def on_ask_values(self, sender: ProcessId, message: AskValues, out: Outbox) -> None:
        ledger, config, first = self._ledger, self._config, message.first
        is_giver = message.giver == self._members.process
        digests: list[bytes] = []
        values: list[bytes] = []
        size = 0
        for instance in range(first, min(ledger.next, first + min(config.learn_chunk, ledger.ahead))):
            slot = ledger.slots.get(instance)
            if slot is None or not slot.is_known or size >= config.learn_bytes:
                break
            digests.append(slot.decided)
            if is_giver:
                values.append(slot.values[slot.decided])
                size += len(values[-1])
        if digests or (first < ledger.next and is_giver):
            out.send(sender, Values(self._members.group, first, tuple(digests), tuple(values)))

    def has_value(self, message: AskValue) -> bool:
        slot = self._ledger.slots.get(message.instance)
        return slot is not None and message.digest in slot.values

    def send_value(self, peer: ProcessId, message: AskValue, out: Outbox) -> None:
        value = self._ledger.slots[message.instance].values[message.digest]
        out.send(peer, Value(self._members.group, message.instance, value))

    def has_state(self, message: AskState) -> bool:
        return message.next == self._checkpoints.state_next and message.next > 0

    def send_state(self, peer: ProcessId, out: Outbox) -> None:
        checkpoints = self._checkpoints
        out.send(peer, HandedState(self._members.group, checkpoints.state_next, checkpoints.state))

    # -- taking

    def on_values(self, sender: ProcessId, message: Values, ticks: int, out: Outbox) -> None:
        ledger = self._ledger
        if not message.digests:
            self._ask_for_state(ticks, out)
        before = ledger.next
        for instance, digest in enumerate(message.digests, message.first):
            if ledger.next <= instance < ledger.next + ledger.ahead:
                ledger.say(sender, instance, digest)
        if message.values:
            self._offered[sender] = message
        for offered in self._offered.values():
            for instance, value in enumerate(offered.values, offered.first):
                ledger.hold(instance, value)
        slot = ledger.slots.get(before)
        if slot is not None and slot.is_known:
            self._last_next = -1  # there is more where this came from: no need to wait for two ticks

    def on_state(self, message: HandedState) -> list[Decision]:
        ledger = self._ledger
        is_wanted = message.next > ledger.next if self._repairing is None else message.next >= self._repairing
        vouched = self._checkpoints.vouched_at(message.next)
        if not is_wanted or vouched == NO_DIGEST or digest_of(message.state) != vouched:
            return []
        state = decode_state(message.state)
        self._repairing = None
        ledger.begin_at(message.next, message.next, 0, state.incarnations)
        ledger.at_checkpoint = True  # the state is written down as this member's own
        if not self._rejoin.is_member:
            ledger.forget(message.next)
        return [StateReceived(state.state, message.next), SnapshotDue()]
