"""Back-pressure on clients: how many of their messages a node takes before it answers BUSY.

A message that a leader takes is open until the leader replies to its client, or delivers it if the client has left: a
client that sends much, leaves and comes again has no more room for it. Other members pass a message on to their
leader, which replies. What they have passed on they count as well, until they deliver it, or for some seconds if they
never do: otherwise whoever asks the wrong member could fill the leader. There is a limit for all clients, and one for
each, so that a greedy client hears BUSY while others do not. Where messages have to wait, both are lower: `Fairness`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...core import AppMessage, MessageId, ProcessId
from ...core.ids import SEQ_BITS
from ..config import Limits
from ..system import system
from ._accounts import Account
from ._fairness import Fairness

_NOBODY: list[MessageId] = []  # that must wait; never changed
_UNDELIVERED_S = 5.0  # a message that was passed on and is not delivered here is lost, or was for other groups


class Admission:
    """The only place where open messages are counted. A batch counts as the messages in it."""

    def __init__(self, limits: Limits) -> None:
        self.open_messages = 0
        self.open_bytes = 0
        self.turned_away = 0  # how often a client heard BUSY for a message or a batch
        self.fairness = Fairness()
        # To pass messages on helps clients that do not know the leader yet: even one that is alone is limited.
        self._forwarding = Fairness(clients_min=1)
        self.forwarded = Undelivered(limits.forwarded_messages, limits.forwarded_bytes, self._forwarding)
        self._ingress = Undelivered(limits.ingress_messages, limits.ingress_bytes)
        self._left = Undelivered(limits.open_messages, limits.open_bytes)  # what clients had open when they left
        self._undelivered = (self.forwarded, self._ingress, self._left)
        self._limits = limits
        # Connected clients: whose limits count, and what is open, with messages and bytes of each message or batch.
        self._open: dict[ProcessId, tuple[Account, dict[MessageId, tuple[int, int]]]] = {}

    def enter(self, client: ProcessId, account: Account) -> None:
        self._open[client] = (account, {})

    def leave(self, client: ProcessId) -> None:
        """No reply will reach the client: what it has open is closed by delivery."""
        account, opened = self._open[client]
        left = [(id_, count, size) for id_, (count, size) in opened.items()]
        account.probe = None
        self.close(client, list(opened))
        del self._open[client]
        self._left.keep(left, account)

    def admit(
        self, messages: Sequence[AppMessage], count: int, size: int, account: Account, is_leader: bool
    ) -> list[MessageId]:
        """Opens the messages. Returns the ids of those that must wait: BUSY.

        Together they are so many, when those inside batches are counted too, and their payloads have this size.
        """
        now_s = system().monotonic_s()
        fairness = self.fairness if is_leader else self._forwarding
        if now_s >= fairness.next_update_s:
            fairness.update(now_s)
        if not is_leader:
            busy = self.forwarded.admit(messages, account)
        elif self._has_room(count, size, account):
            self._open_all(messages, account)
            busy = _NOBODY
        else:
            self._left.forget_old()
            busy = [m.id for m in messages if not self._is_admitted(m, account)]
        if busy:
            self.turned_away += len(busy)
        if len(busy) < len(messages):
            fairness.admitted(account, _first_of(messages, busy) if busy else messages[0].id, now_s)
        return busy

    def admit_ingress(self, messages: Sequence[AppMessage], account: Account) -> list[MessageId]:
        """The same for protocols with an ingress of their own, where every member that is asked takes part."""
        busy = self._ingress.admit(messages, account)
        self.turned_away += len(busy)
        return busy

    def on_delivered(self, batch: Sequence[tuple[AppMessage, object]]) -> None:
        if self.forwarded.messages or self._ingress.messages or self._left.messages:  # hardly ever
            for undelivered in self._undelivered:
                undelivered.on_delivered(batch)

    def _has_room(self, count: int, size: int, account: Account) -> bool:
        limits, own, left, fairness = self._limits, account.limits, self._left, self.fairness
        return (
            account.open_messages + count <= own.open_messages
            and account.open_bytes + size <= own.open_bytes
            and self.open_messages + left.messages + count <= limits.open_messages
            and self.open_bytes + left.bytes + size <= limits.open_bytes
            and (fairness.share == 1.0 or not fairness.lacks_room(account, count, size))
        )

    def _is_admitted(self, message: AppMessage, account: Account) -> bool:
        connected = self._open.get(message.id >> SEQ_BITS)
        if connected is not None and message.id in connected[1]:
            return True  # the client sends it again
        if message.id in self._left:
            self._open_all((message,), account)  # the client has come back
            return True
        # One message or batch may exceed a limit: otherwise one that is larger than the limit would never be admitted.
        size = len(message.payload)
        open_messages = self.open_messages + self._left.messages
        has_room = open_messages < self._limits.open_messages
        fits = not open_messages or self.open_bytes + self._left.bytes + size <= self._limits.open_bytes
        if has_room and fits and not _lacks_room(message, account, self.fairness):
            self._open_all((message,), account)
            return True
        return False

    def _open_all(self, messages: Sequence[AppMessage], account: Account) -> None:
        connected, left = self._open, self._left
        all_messages = all_bytes = 0
        for message in messages:
            id_, count, size = message.id, message.count, len(message.payload)
            found = connected.get(id_ >> SEQ_BITS)
            if found is None:
                left.keep([(id_, count, size)], account)
                continue
            holder, opened = found
            if id_ not in opened:
                if left.messages:
                    left.drop(id_)
                opened[id_] = (count, size)
                holder.open_messages += count
                holder.open_bytes += size
                all_messages += count
                all_bytes += size
        self.open_messages += all_messages
        self.open_bytes += all_bytes

    def close(self, client: ProcessId, ids: Sequence[MessageId]) -> None:
        """The client is told that these are delivered."""
        account, opened = self._open[client]
        messages = bytes_ = 0
        for id_ in ids:
            if id_ in opened:
                count, size = opened.pop(id_)
                messages += count
                bytes_ += size
                if id_ == account.probe:
                    self.fairness.ended(account, system().monotonic_s())
        account.open_messages -= messages
        account.open_bytes -= bytes_
        self.open_messages -= messages
        self.open_bytes -= bytes_

    def clear(self) -> None:
        """This process no longer leads: the next leader counts the messages, and replies."""
        for client, (account, opened) in self._open.items():
            account.probe = None
            self.close(client, list(opened))
        self._left.clear()


def _lacks_room(message: AppMessage, account: Account, fairness: Fairness) -> bool:
    """If nothing of this client is open, its message may have any size: otherwise it could never be sent."""
    size = len(message.payload)
    return account.open_messages > 0 and (account.lacks_room(size) or fairness.lacks_room(account, message.count, size))


def _first_of(messages: Sequence[AppMessage], busy: Sequence[MessageId]) -> MessageId:
    waiting = set(busy)
    return next(message.id for message in messages if message.id not in waiting)


class Undelivered:
    """What a member has taken though it will reply to nobody, and not seen delivered yet."""

    def __init__(self, messages_max: int, bytes_max: int, fairness: Fairness | None = None) -> None:
        self._fairness = fairness or Fairness()
        self.messages = 0
        self.bytes = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        # Of each message or batch: how many messages, how many bytes, whose, and since when. The oldest comes first.
        self._open: dict[MessageId, tuple[int, int, Account, float]] = {}

    def admit(self, messages: Sequence[AppMessage], account: Account) -> list[MessageId]:
        """Returns the ids of those that must wait."""
        now_s = system().monotonic_s()
        self._forget_before(now_s - _UNDELIVERED_S)
        return [message.id for message in messages if not self._is_admitted(message, account, now_s)]

    def _is_admitted(self, message: AppMessage, account: Account, now_s: float) -> bool:
        if message.id in self._open:
            return True  # the client sends it again
        size = len(message.payload)
        if self.messages and (self.messages >= self._messages_max or self.bytes + size > self._bytes_max):
            return False
        if _lacks_room(message, account, self._fairness):
            return False
        self._add(message.id, message.count, size, account, now_s)
        return True

    def _add(self, id_: MessageId, count: int, size: int, account: Account, now_s: float) -> None:
        self._open[id_] = (count, size, account, now_s)
        self.messages += count
        self.bytes += size
        account.open_messages += count
        account.open_bytes += size

    def keep(self, taken: Iterable[tuple[MessageId, int, int]], account: Account) -> None:
        """Counts what was taken before: of each message or batch its id, how many messages, and how many bytes."""
        now_s = system().monotonic_s()
        self._forget_before(now_s - _UNDELIVERED_S)
        for id_, count, size in taken:
            if id_ not in self._open:
                self._add(id_, count, size, account, now_s)

    def __contains__(self, id_: MessageId) -> bool:
        return id_ in self._open

    def drop(self, id_: MessageId) -> None:
        """It is counted elsewhere from now on, if it was counted here."""
        if id_ in self._open:
            self._close(id_)

    def forget_old(self) -> None:
        self._forget_before(system().monotonic_s() - _UNDELIVERED_S)

    def clear(self) -> None:
        for id_ in list(self._open):
            self._close(id_)

    def _forget_before(self, time_s: float) -> None:
        while self._open:
            id_, (*_, at_s) = next(iter(self._open.items()))
            if at_s >= time_s:
                return
            self._close(id_)

    def on_delivered(self, batch: Iterable[tuple[AppMessage, object]]) -> None:
        for message, _ in batch:
            found = self._open.get(message.id)
            if found is not None:
                if message.id == found[2].probe:
                    self._fairness.ended(found[2], system().monotonic_s())
                self._close(message.id)

    def _close(self, id_: MessageId) -> None:
        count, size, account, _ = self._open.pop(id_)
        self.messages -= count
        self.bytes -= size
        account.open_messages -= count
        account.open_bytes -= size
