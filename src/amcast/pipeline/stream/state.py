"""All that a watch remembers between two batches, as plain data that the checkpoint stores with the batch's number.

It is bounded by what is in flight: deliveries that not every replica has made yet, messages that not every destination
group has delivered, rows that came too early. Of settled messages only the ids stay, as ranges: if the messages 0 to
999 of a sender are settled, that is one range.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from ...check import Verdict
from ...core import GroupId, MessageId, ProcessId
from ...core.ids import sender_of, seq_of

VERSION = 2  # since then message ids are divided otherwise into sender and sequence number


class Track(msgspec.Struct):
    """How far the deliveries of one process, final or optimistic, have been followed."""

    process: ProcessId
    kind: int
    group: GroupId | None  # None: the process is in no group of run.json
    next: int = 0  # the first position that is not taken yet
    # By position, message and timestamp of rows that came out of order: 7 and 8 are here, 6 is not. They wait for 6.
    early: dict[int, tuple[MessageId, int | None]] = {}
    gap_since: int | None = None  # the trigger at which `early` began to wait
    halted: bool = False  # a row was lost: later deliveries of this process are not judged
    diverged: bool = False  # it contradicted another replica: they are not compared any more
    misnumbered: bool = False  # a violation of positions was reported: one for each track is enough
    last_ts: int | None = None


class GroupState(msgspec.Struct):
    """What a group delivered: at each position, what the first of its replicas to get there delivered."""

    id: GroupId
    members: tuple[ProcessId, ...]
    base: int = 0  # the position of msgs[0]; earlier ones are forgotten, since all replicas delivered them
    msgs: list[MessageId] = []
    stamps: list[int | None] = []
    lane: list[MessageId] = []  # its deliveries that are not merged yet: messages to several groups, and unknown ones
    last_ts: int | None = None
    halted: bool = False  # none of its replicas is judged any more

    @property
    def end(self) -> int:
        return self.base + len(self.msgs)


class Open(msgspec.Struct):
    """A message that was multicast and is not settled."""

    sender: ProcessId
    dst: tuple[GroupId, ...]
    left: list[GroupId]  # destination groups that have not delivered it
    ts: int | None = None
    dropped: bool = False  # it was in a cycle that was reported: the merge goes on without it
    guessed: list[ProcessId] = []  # processes that delivered it optimistically


class Unknown(msgspec.Struct):
    """A message that was delivered before the row of its multicast arrived."""

    since: int  # the trigger at which it was first delivered
    rows: list[tuple[ProcessId, int, int, int | None]] = []  # process, kind, position, timestamp


class MessageSet(msgspec.Struct):
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
    """The state of a watch. Fields with a `name` are called so in files."""

    run_id: str
    version: int = VERSION
    batch: int = -1  # the last one whose rows were verified
    tick: int = 0  # triggers seen, with or without rows
    violations_bytes: int = msgspec.field(default=0, name="journal_bytes")  # the length of violations.jsonl
    tracks: dict[int, Track] = msgspec.field(default_factory=dict, name="logs")  # by process << 1 | kind
    groups: dict[GroupId, GroupState] = {}
    open: dict[MessageId, Open] = {}
    unknown: dict[MessageId, Unknown] = {}
    settled: MessageSet = msgspec.field(default_factory=MessageSet)
    restored: dict[ProcessId, list[int]] = {}  # positions from which a process delivers on, with state from others
    down: dict[ProcessId, tuple[int, bool]] = {}  # when a process last crashed or restarted, and whether it crashed
    settled_below: dict[ProcessId, int] = {}  # of clients that crashed: lower sequence numbers had been answered
    stamps: dict[int, MessageId] = {}  # timestamp -> its message, while another message could still get the same
    order_off: bool = False  # enough cycles were reported: order is not followed any more
    verdicts: dict[str, Verdict] = {}
    reasons: dict[str, str] = {}
    violations: dict[str, int] = {}  # how many were found, by property
    unjudged: str | None = None  # why the deliveries of some process are not judged any more
    repeated: list[MessageId] = []  # messages that a group delivered twice; only the first hundred
    multicasts: int = 0
    deliveries: int = 0
    finished: bool = False

    @property
    def held(self) -> int:
        """How many rows and messages are in memory: it must not grow with the length of a run."""
        tracks = sum(len(track.early) for track in self.tracks.values())
        groups = sum(len(group.msgs) + len(group.lane) for group in self.groups.values())
        return tracks + groups + len(self.open) + len(self.unknown) + len(self.stamps) + self.settled.ranges
