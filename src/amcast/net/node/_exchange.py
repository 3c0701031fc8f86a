"""What the applications of several groups tell each other before they execute a message together.

A message to g1 and g2 is next to be executed in both. Each group's application reads what the other must know, such as
a balance, at the message's own place in the order. One member, the leader, sends what was read to the members of the
other groups of the message, and nobody executes the message before it has heard all of them:

    g1.p0   read ----.  .---> execute
                      \\/
                      /\\
    g2.p0   read ----'  '---> execute

So it takes one message delay more than execution alone. There is no coordinator, and no deadlock: a group waits for
another one to reach the same message, and the order of messages over all groups has no cycle.

Two groups deliver their common messages in the same order. So both number the messages for which they have exchanged
something alike: 0, 1, 2... A replica asks for values by number, and says by number how far it is. Values may be lost
with connections; whoever waits asks the members of the other group in turn.

A replica that restarts executes again what came after its last snapshot, and needs the values once more. A group keeps
what it told another group, also in its own snapshots, until every member of that group holds the effects in a durable
snapshot; if the values take too much room, until a majority does. A member that asks for a value that is gone takes
over the state of a member that needs it no longer.

Where f members of a group may lie, all members tell, and a value is believed when f+1 of them told the same. So is that
a value is gone. Values may go when so many members hold their effects that f+1 of them tell the truth.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from ...core import GroupId, ProcessId
from ..wire.control import DECODE_ERRORS, EXCHANGE_HEAD, MARK, ReadValue, Tell, Told, exchange_decoder
from ..wire.framing import Frame

_ASK_FIRST_S, _ASK_MAX_S = 0.05, 1.0  # between two questions for the same value
_PATIENCE = 5  # questions, before people are told
_ANNOUNCE_S = 1.0
_ANNOUNCE_TIMES = 5  # links may lose what they carry
_ANSWER_BYTES = 256 << 10  # in one answer, about
_OVERHEAD = 50  # bytes that an empty value takes, about
_HEAD = bytes((MARK, ord("x")))
assert len(_HEAD) == EXCHANGE_HEAD

Send = Callable[[Sequence[ProcessId], bytes], None]
DumpedPair = tuple[int, int, tuple[ReadValue, ...]]


class _Version(NamedTuple):
    """What some members told of one exchange, before enough of them did."""

    value: ReadValue
    tellers: set[ProcessId]


class _Pair:
    """This group and another one."""

    __slots__ = (
        "announcements",
        "bytes",
        "durable",
        "executed",
        "first",
        "gone",
        "heard",
        "heard_bytes",
        "members",
        "needed",
        "told",
        "told_bytes",
        "values",
    )

    def __init__(self, members: Sequence[ProcessId], needed: int) -> None:
        self.members = members
        self.needed = needed  # how many of them must tell the same
        self.executed = 0  # exchanges with this group; also the number of the next one
        self.values: deque[ReadValue] = deque()  # what it was told, from the number `first` on
        self.first = 0
        self.bytes = 0
        self.heard: dict[int, ReadValue] = {}  # by number, for exchanges that are not executed yet
        self.heard_bytes = 0
        self.told: dict[int, list[_Version]] = {}  # by number, what too few have told yet
        self.told_bytes = dict.fromkeys(members, 0)  # of these, by each member
        self.gone: set[ProcessId] = set()  # who said that the value of the next exchange is gone
        self.durable = dict.fromkeys(members, 0)  # as each member said last: exchanges in its durable snapshot
        self.announcements = 0  # that are still to be made

    def forget_below(self, number: int) -> None:
        while self.values and self.first < min(number, self.executed):
            self.bytes -= size_of(self.values.popleft())
            self.first += 1

    # -- what is heard

    def hear(self, teller: ProcessId, number: int, value: ReadValue, bytes_max: int) -> bool:
        """Whether it is known by this, what the other group read for this exchange."""
        if number < self.executed or number in self.heard:
            return False
        # The one that is next is never dropped: others that came too early could leave no room for it.
        is_next = number == self.executed
        if self.needed > 1 and not self._is_backed(teller, number, value, bytes_max, is_next):
            return False
        if self.heard_bytes >= bytes_max and not is_next:
            return False
        self.heard[number] = value
        self.heard_bytes += size_of(value)
        return True

    def _is_backed(self, teller: ProcessId, number: int, value: ReadValue, bytes_max: int, is_next: bool) -> bool:
        """Whether enough have told this by now. Of each exchange a member can tell one version, and of all together
        only so much: a liar fills its own room."""
        versions = self.told.get(number, [])
        if any(teller in version.tellers for version in versions):
            return False
        if self.told_bytes[teller] >= bytes_max // len(self.members) and not is_next:
            return False
        self.told_bytes[teller] += size_of(value)
        version = next((each for each in versions if each.value == value), None)
        if version is None:
            version = _Version(value, set())
            self.told[number] = [*versions, version]
        version.tellers.add(teller)
        if len(version.tellers) < self.needed:
            return False
        self._forget_told(number)
        return True

    def _forget_told(self, number: int) -> None:
        for version in self.told.pop(number, ()):
            for teller in version.tellers:
                self.told_bytes[teller] -= size_of(version.value)

    def drop_heard_below(self, number: int) -> None:
        self.heard = {at: value for at, value in self.heard.items() if at >= number}
        self.heard_bytes = sum(map(size_of, self.heard.values()))
        for at in [each for each in self.told if each < number]:
            self._forget_told(at)
        self.gone.clear()


class Exchange:
    def __init__(
        self,
        members: Mapping[GroupId, Sequence[ProcessId]],
        send: Send,
        speaks: Callable[[], bool],
        bytes_max: int,
        has_snapshots: bool,
        needed: Mapping[GroupId, int] | None = None,
    ) -> None:
        """`members` are those of the other groups; `speaks` says whether this node tells them by itself; `needed` is
        how many members of a group must tell the same, if not one.

        Without snapshots, a replica that restarts takes over the state of another one: what is executed is held.
        """
        self._pairs = {group: _Pair(each, (needed or {}).get(group, 1)) for group, each in members.items()}
        self._group_of = {process: group for group, each in members.items() for process in each}
        self._send = send
        self._speaks = speaks
        self._bytes_max = bytes_max
        self._has_snapshots = has_snapshots
        self._saved: Mapping[GroupId, int] = {}  # exchanges in this node's durable snapshot
        self._loop = asyncio.get_running_loop()
        self._missing: list[GroupId] = []  # whose value the next message waits for
        self._asking: asyncio.TimerHandle | None = None
        self._attempt = 0
        self._announcing: asyncio.TimerHandle | None = None
        self.is_gone = False  # nobody keeps the value that the next message waits for
        self.unsaved_bytes = 0  # heard and executed since the last durable snapshot
        self.on_heard: Callable[[], None] = lambda: None

    # -- one message after the other

    def tell(self, groups: Sequence[GroupId], value: ReadValue) -> None:
        """What this group's application read for the next message. After a restart, it may be told already."""
        for group in groups:
            pair = self._pairs[group]
            if pair.executed - pair.first == len(pair.values):
                pair.values.append(value)
                pair.bytes += size_of(value)
            if self._speaks():
                self._say(pair.members, Told(pair.executed, (value,), pair.first))

    def hear(self, groups: Sequence[GroupId]) -> dict[GroupId, ReadValue] | None:
        """What the other groups read for the next message; none if it is not known yet. Then they will be asked."""
        self._missing = [group for group in groups if self._pairs[group].executed not in self._pairs[group].heard]
        if self._missing:
            if self._asking is None:
                self._asking = self._loop.call_later(_ASK_FIRST_S, self._ask)
            return None
        return {group: self._pairs[group].heard[self._pairs[group].executed] for group in groups}

    def executed(self, groups: Sequence[GroupId]) -> None:
        """The next message is executed, with these groups."""
        self._stop_asking()
        for group in groups:
            pair = self._pairs[group]
            size = size_of(pair.heard.pop(pair.executed))
            pair.heard_bytes -= size
            self.unsaved_bytes += size
            pair.executed += 1
            pair.gone.clear()
            if not self._has_snapshots:
                pair.announcements = 1
        if not self._has_snapshots and self._announcing is None:
            self._announcing = self._loop.call_later(_ANNOUNCE_S, self._announce)

    @property
    def has_heard_much(self) -> bool:
        """Others keep what they told until a snapshot holds its effects: one should be made."""
        return self.unsaved_bytes > self._bytes_max // 4

    @property
    def problem(self) -> str | None:
        """For people: whom the application has been waiting for."""
        if self._attempt < _PATIENCE:
            return None
        return f"the application waits for what {', '.join(f'g{group}' for group in self._missing)} must tell it"

    # -- asking

    def _ask(self) -> None:
        for group in self._missing:
            pair = self._pairs[group]
            first = self._attempt * pair.needed
            asked = [pair.members[at % len(pair.members)] for at in range(first, first + pair.needed)]
            self._say(asked, self._report(pair, wants=True))
        self._asking = self._loop.call_later(min(_ASK_FIRST_S * 2**self._attempt, _ASK_MAX_S), self._ask)
        self._attempt = min(self._attempt + 1, 1_000)

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        self._asking, self._attempt, self._missing = None, 0, []
        self.is_gone = False

    # -- frames of other groups

    def on_frame(self, sender: ProcessId, data: Frame) -> str | None:
        """Returns what is wrong with it, if anything."""
        group = self._group_of.get(sender)
        if group is None:
            return "it is no member of another group"
        try:
            message = exchange_decoder.decode(data)
        except DECODE_ERRORS as error:
            return f"not a word between applications: {error}"
        if isinstance(message, Told):
            self._on_told(sender, group, message)
        else:
            self._on_tell(sender, self._pairs[group], message)
        return None

    def _on_told(self, sender: ProcessId, group: GroupId, told: Told) -> None:
        pair = self._pairs[group]
        is_news = False
        for number, value in enumerate(told.values, told.first):
            if pair.hear(sender, number, value, self._bytes_max):
                is_news = is_news or number == pair.executed
        if is_news:
            self.on_heard()
        elif told.kept_from > pair.executed and group in self._missing:
            pair.gone.add(sender)
            self.is_gone = self.is_gone or len(pair.gone) >= pair.needed

    def _on_tell(self, sender: ProcessId, pair: _Pair, tell: Tell) -> None:
        pair.durable[sender] = tell.durable
        self._forget(pair)
        if not tell.wants:
            return
        start = min(max(0, tell.executed - pair.first), len(pair.values))
        values: list[ReadValue] = []
        size = 0
        for value in islice(pair.values, start, None):
            values.append(value)
            size += size_of(value)
            if size > _ANSWER_BYTES:
                break
        if values or pair.first > tell.executed:
            self._say((sender,), Told(pair.first + start, tuple(values), pair.first))

    def _forget(self, pair: _Pair) -> None:
        held = sorted(pair.durable.values())
        pair.forget_below(held[0])
        if pair.bytes > self._bytes_max:
            # A majority holds so many, or more; among liars, all but those who may lie.
            pair.forget_below(held[(len(held) - 1) // 2 if pair.needed == 1 else pair.needed - 1])

    # -- how far this node is

    def counts(self) -> dict[GroupId, int]:
        return {group: pair.executed for group, pair in self._pairs.items() if pair.executed}

    def saved(self, counts: Mapping[GroupId, int]) -> None:
        """A snapshot with so many exchanges is durable."""
        self.unsaved_bytes = 0
        self._saved = dict(counts)
        self.announce()

    def announce(self) -> None:
        """Tells the others how far this node is, a few times: after a snapshot, and when a link is there again."""
        for pair in self._pairs.values():
            pair.announcements = _ANNOUNCE_TIMES if pair.executed else 0
        if self._announcing is None:
            self._announce()

    def _announce(self) -> None:
        self._announcing = None
        is_more = False
        for pair in self._pairs.values():
            if pair.announcements:
                pair.announcements -= 1
                self._say(pair.members, self._report(pair))
                is_more = is_more or pair.announcements > 0
        if is_more:
            self._announcing = self._loop.call_later(_ANNOUNCE_S, self._announce)

    def _report(self, pair: _Pair, wants: bool = False) -> Tell:
        held = self._saved.get(self._group_of[pair.members[0]], 0) if self._has_snapshots else pair.executed
        return Tell(pair.executed, held, wants)

    def _say(self, to: Sequence[ProcessId], message: Told | Tell) -> None:
        self._send(to, _HEAD + msgspec.msgpack.encode(message))

    def close(self) -> None:
        self._stop_asking()
        if self._announcing is not None:
            self._announcing.cancel()

    # -- snapshots

    def dump(self) -> dict[GroupId, DumpedPair]:
        """Without what was told for the next message: it will be read again."""
        return {
            group: (pair.executed, pair.first, tuple(islice(pair.values, pair.executed - pair.first)))
            for group, pair in self._pairs.items()
            if pair.executed
        }

    def dump_counts(self) -> dict[GroupId, DumpedPair]:
        """Without any values."""
        return {group: (pair.executed, pair.executed, ()) for group, pair in self._pairs.items() if pair.executed}

    def load(self, dumped: Mapping[GroupId, DumpedPair]) -> None:
        self._stop_asking()
        for group, pair in self._pairs.items():
            executed, first, values = dumped.get(group, (0, 0, ()))
            pair.executed, pair.first, pair.values = executed, first, deque(values)
            pair.bytes = sum(map(size_of, values))
            pair.drop_heard_below(executed)


def size_of(value: ReadValue) -> int:
    return _OVERHEAD + (len(value) if isinstance(value, bytes) else 0)
