"""The way back of a member that lost its disk: it may have forgotten votes, so it counts as a liar for a while.

    member without a disk          the others
       |--ASK-REJOIN----------------->|   I begin again, under incarnation i
       |                              |--PROPOSE--> the leader proposes an entry that takes i back;
       |                              |             members vote for it if i asked them as well
       |<--OUTRUN---------------------|   or: the log knows a higher number of yours, so ask under a higher one

It learns the log like any member that lags, and keeps silent until all instances are decided that its earlier life may
have voted for: those up to `ahead` beyond the entry that took it back.
"""

from __future__ import annotations

from random import Random

from ...core import Outbox, ProcessId
from ..multipaxos.messages import NONCE_BITS, incarnation_of, nonce_of, number_of
from .ledger import Ledger
from .members import Members
from .messages import NOTHING, AskRejoin, Incarnation, Outrun, Readd, encode_readd


class Rejoin:
    def __init__(self, members: Members, ledger: Ledger) -> None:
        self._members = members
        self._ledger = ledger
        self.is_member = True  # false while it waits to be taken back
        self.incarnation: Incarnation = 0
        self._asked: dict[ProcessId, Incarnation] = {}  # members that ask to be taken back
        self._outrun: dict[ProcessId, int] = {}  # numbers of incarnations that others say the log knows of this one

    # -- the member that lost its disk

    def begin_without_disk(self, rng: Random) -> None:
        self.is_member = False
        self.incarnation = incarnation_of(1, rng.getrandbits(NONCE_BITS))

    def ask(self, out: Outbox) -> None:
        out.send_all(self._members.others, AskRejoin(self._members.group, self.incarnation))

    def on_outrun(self, sender: ProcessId, message: Outrun) -> None:
        """f+1 members say that a number was used: then one was, that is as high as the lowest of these."""
        if self.is_member:
            return
        self._outrun[sender] = number_of(message.known)
        numbers = sorted(self._outrun.values(), reverse=True)
        if len(numbers) >= self._members.some:
            number = numbers[self._members.some - 1]
            if number >= number_of(self.incarnation):
                self.incarnation = incarnation_of(number + 1, nonce_of(self.incarnation))

    def may_return(self) -> bool:
        """Whether it was taken back, and all that its earlier life may have voted for is decided."""
        ledger, process = self._ledger, self._members.process
        if self.is_member or ledger.incarnations.get(process, 0) != self.incarnation:
            return False
        return ledger.next >= ledger.readded_at[process] + ledger.ahead

    # -- the others

    def on_ask(self, sender: ProcessId, message: AskRejoin, out: Outbox) -> bytes | None:
        """The value that a leader is to propose: it takes the member back, or is nothing at all if the member was taken
        back and waits for more instances to be decided."""
        known = self._ledger.incarnations.get(sender, 0)
        self._asked[sender] = message.incarnation
        if message.incarnation == known:
            return NOTHING
        if number_of(message.incarnation) <= number_of(known):
            out.send(sender, Outrun(self._members.group, known))
            return None
        return encode_readd(Readd(sender, message.incarnation))

    def has_asked(self, value: bytes) -> bool:
        """Whether the value takes a member back that asked this one as well."""
        asked = [Readd(process, incarnation) for process, incarnation in self._asked.items()]
        return any(value == encode_readd(readd) for readd in asked)
