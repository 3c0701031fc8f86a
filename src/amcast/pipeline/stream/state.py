"""All that a watch remembers between two batches, as plain data that is written down with the batch it belongs to.

It is bounded by what is in flight: rows that not every replica has confirmed, messages that not every destination has
delivered, files that came too early. What is settled is forgotten, except that it was there: sequence numbers of a
sender close up to a few ranges.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from ...check import Verdict
from ...core import GroupId, MessageId, ProcessId
from ...core.ids import sender_of, seq_of

VERSION = 1


class LogState(msgspec.Struct):
    """The log of one process, final or optimistic."""

    process: ProcessId
    kind: int
    group: GroupId | None  # None: a stranger delivers
    next: int = 0  # the position that comes next
    early: dict[int, tuple[MessageId, int | None]] = {}  # rows that came before the ones before them
    gap_since: int | None = None  # the trigger at which `early` began to wait
    halted: bool = False  # a row is lost: what follows is not judged
    diverged: bool = False  # it contradicted another replica: it is not compared any more
    misnumbered: bool = False  # reported: the first of a log counts
    last_ts: int | None = None


class GroupState(msgspec.Struct):
    """The log of a group: what the first of its replicas delivered at each position."""

    id: GroupId
    members: tuple[ProcessId, ...]
    base: int = 0  # the position of the first row held; all replicas have confirmed what comes before
    msgs: list[MessageId] = []
    stamps: list[int | None] = []
    lane: list[MessageId] = []  # messages to several groups, and unknown ones, that are not merged yet
    last_ts: int | None = None
    halted: bool = False  # none of its replicas is judged any more

    @property
    def end(self) -> int:
        return self.base + len(self.msgs)


class Open(msgspec.Struct):
    """A message that was multicast and is not settled."""

    sender: ProcessId
    dst: tuple[GroupId, ...]
    left: list[GroupId]  # groups that have not delivered it
    ts: int | None = None
    dropped: bool = False  # part of a cycle that was reported: the merge goes on without it
    guessed: list[ProcessId] = []  # who delivered it optimistically


class Unknown(msgspec.Struct):
    """A message that was delivered and whose multicast has not arrived."""

    since: int
    rows: list[tuple[ProcessId, int, int, int | None]] = []  # process, kind, position, timestamp


class Seen(msgspec.Struct):
    """A set of messages, as ranges of the sequence numbers of each sender."""

    starts: dict[ProcessId, list[int]] = {}
    stops: dict[ProcessId, list[int]] = {}
    count: int = 0

    def add(self, message: MessageId) -> None:
        sender, seq = sender_of(message), seq_of(message)
        starts, stops = self.starts.setdefault(sender, []), self.stops.setdefault(sender, [])
        at = bisect_right(starts, seq)
        assert at == 0 or stops[at - 1] <= seq, "a message is settled once"
        self.count += 1
        joins_left = at > 0 and stops[at - 1] == seq
        joins_right = at < len(starts) and starts[at] == seq + 1
        if joins_left and joins_right:
            stops[at - 1] = stops.pop(at)
            starts.pop(at)
        elif joins_left:
            stops[at - 1] = seq + 1
        elif joins_right:
            starts[at] = seq
        else:
            starts.insert(at, seq)
            stops.insert(at, seq + 1)

    def __contains__(self, message: MessageId) -> bool:
        starts = self.starts.get(sender_of(message))
        if starts is None:
            return False
        seq = seq_of(message)
        at = bisect_right(starts, seq)
        return at > 0 and seq < self.stops[sender_of(message)][at - 1]

    @property
    def ranges(self) -> int:
        return sum(map(len, self.starts.values()))


class WatchState(msgspec.Struct):
    run_id: str
    version: int = VERSION
    batch: int = -1  # the last one that is in here
    tick: int = 0  # triggers seen, with or without rows
    journal_bytes: int = 0  # how much of the verdict log belongs to this state
    logs: dict[int, LogState] = {}  # by process << 1 | kind
    groups: dict[GroupId, GroupState] = {}
    open: dict[MessageId, Open] = {}
    unknown: dict[MessageId, Unknown] = {}
    settled: Seen = msgspec.field(default_factory=Seen)
    restored: dict[ProcessId, list[int]] = {}
    down: dict[ProcessId, tuple[int, bool]] = {}  # when a process last crashed or restarted, and whether it crashed
    stamps: dict[int, MessageId] = {}  # timestamps that another message might still get
    order_off: bool = False  # enough cycles were reported: order is not followed any more
    verdicts: dict[str, Verdict] = {}
    reasons: dict[str, str] = {}
    violations: dict[str, int] = {}  # reported, by property
    unjudged: str | None = None  # why some log is not followed any more
    repeated: list[MessageId] = []  # messages that a group delivered again, the first few
    multicasts: int = 0
    deliveries: int = 0
    finished: bool = False

    @property
    def held(self) -> int:
        """Rows and messages in memory: what must not grow with the length of a run."""
        logs = sum(len(log.early) for log in self.logs.values())
        groups = sum(len(group.msgs) + len(group.lane) for group in self.groups.values())
        return logs + groups + len(self.open) + len(self.unknown) + len(self.stamps) + self.settled.ranges
