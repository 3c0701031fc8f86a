"""Optimistic Atomic Multicast broken on purpose, in small ways: as published, and one that skips a sender.

Each flaw says what is published, which property it breaks, and how the protocol mends it. Seeds of the fuzzer show it;
two flaws cost time only, and are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec

from amcast.core import AppMessage, GroupId, MessageId, Outbox, ProcessId, Timestamp, Topology, timestamp
from amcast.core.ids import sender_of, seq_of
from amcast.protocols import ProtocolSpec, protocol
from amcast.protocols.optimistic import Baseline, BaselineEntry, Optimistic, OptimisticEntry
from amcast.protocols.optimistic.merge import END_OF_TIME, Merger
from amcast.protocols.optimistic.messages import BarrierRequest, FrMcast, Stamp, Time
from amcast.protocols.optimistic.source import Source
from amcast.sim import Scenario
from amcast.sim.fuzz import fuzz_scenario

# -- 1. a lone message is never delivered


class StrictMerger(Merger):
    def barrier(self, group: GroupId) -> Timestamp:
        """Line 34: the barrier is the last timestamp that came, and must be above the message's own."""
        source = self.sources[group]
        return timestamp(source.clock, group) if source.reaches(self._group) else super().barrier(group)


class StrictBarrier(Baseline):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._merger.__class__ = StrictMerger


# -- 2. timestamps that are not unique


class RaisedWhole(Source):
    def stamp(self, id_: MessageId, dst: tuple[GroupId, ...], time: Time) -> Timestamp | None:
        """Lines 25 and 26: the last timestamp as a whole, plus one, if it is greater."""
        last = timestamp(self.clock, self.group)
        if super().stamp(id_, dst, time) is None:
            return None
        given = timestamp(time, self.group)
        ts = last + 1 if last > given else given
        self.clock = ts >> 16
        return ts


class UnlikeTimestamps(Optimistic):
    def _new_source(self, group: GroupId) -> Source:
        return RaisedWhole(group, super()._new_source(group).links)

    def _propose_stamp(self, copy: FrMcast, out: Outbox) -> None:
        self._log.propose(Stamp(copy.message, copy.time), out)
        self._request_barriers(copy.message, copy.time, copy.asked, out)


# -- 3. messages to other groups alone


class OnlyOwnMessages(Baseline):
    def _on_stamp(self, source: Source, instance: int, entry: Stamp, out: Outbox) -> None:
        """Lines 27 to 31: what this group does not deliver itself, it neither remembers nor sends."""
        if source.group in entry.message.dst:
            super()._on_stamp(source, instance, entry, out)
        else:
            source.stamp(entry.message.id, entry.message.dst, entry.time)


# -- 4. instances in parallel


class AnyOrder(Source):
    def stamp(self, id_: MessageId, dst: tuple[GroupId, ...], time: Time) -> Timestamp | None:
        """One instance for each message, as they come: seen at most once, but in no order."""
        seen = self.next_seq
        if seen.get(-id_):
            return None
        seen[-id_] = 1
        seen[sender_of(id_)] = seq_of(id_)
        return super().stamp(id_, dst, time)

    def is_known(self, id_: MessageId) -> bool:
        return -id_ in self.next_seq


class ParallelInstances(Baseline):
    def _new_source(self, group: GroupId) -> Source:
        return AnyOrder(group, super()._new_source(group).links)

    def _propose_ready(self, sender: ProcessId, out: Outbox) -> None:
        for copy in list(self._ready.get(sender, {}).values()):
            self._propose_stamp(copy, out)
        self._ready[sender] = {}


# -- 5. barriers that raise the message they serve


class EagerBarriers(Optimistic):
    def _on_barrier_request(self, request: BarrierRequest, out: Outbox) -> None:
        """Proposed at once, wherever it comes from."""
        Baseline._on_barrier_request(self, request, out)


class EagerEntry(OptimisticEntry):
    def send(self, message: AppMessage, out: Outbox) -> FrMcast:
        """ "Such requests are also sent ... before the sender fr-mcasts m", to all groups of sendersTo."""
        request = BarrierRequest(message.id, max(out.now_us, self._last + 1), self._home)
        out.send_all(self._topology.members(self._home), request)
        return super().send(message, out)


# -- 6. the initial copy taken for the final one


class InitialIsFinal(Optimistic):
    def _on_fr_mcast(self, sender: ProcessId, copy: FrMcast, out: Outbox) -> None:
        """Lines 14 to 16, for whatever copy comes first."""
        source = self._merger.sources.get(copy.source)
        super()._on_fr_mcast(sender, copy, out)
        message = copy.message
        if copy.source != self._group and self._group in message.dst and source is not None:
            ts = timestamp(copy.time, copy.source)
            if not source.is_known(message.id) and message.id not in self._merger and ts > self._merger.delivered_ts:
                self._merger.add(ts, message)
                source.next_seq[message.sender] = message.seq + 1
                source.raise_clock(copy.time)


# -- 7. null messages of a clock that lags


class NullsOfOwnClock(Baseline):
    """Null messages carry the time of the process that sends them, whatever it has heard."""

    def _null_time(self, out: Outbox) -> Time:
        return out.now_us


# -- 8. joining


class NotItselfMerger(Merger):
    """sendersTo(h) without h itself, as in the paper's example."""

    def horizon(self) -> Timestamp:
        return min([self.barrier(group) for group in self.sources if group != self._group], default=END_OF_TIME)

    def behind(self, ts: Timestamp) -> list[GroupId]:
        return [group for group in super().behind(ts) if group != self._group]

    def senders(self) -> tuple[GroupId, ...]:
        return tuple(group for group in super().senders() if group != self._group)


class NotItself(Baseline):
    """Group g3 is only sent to."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self._group == 3:
            self._merger.__class__ = NotItselfMerger

    def _request_barriers(self, message: AppMessage, time: Time, asked: tuple[GroupId, ...], out: Outbox) -> None:
        request = BarrierRequest(message.id, time, self._group)
        for group in dict.fromkeys(x for h in message.dst for x in self._senders_of(h)):
            if group != self._group:
                out.send_all(self._topology.members(group), request)


class AskedByLeaders(BaselineEntry):
    def __init__(self, process: ProcessId, topology: Topology, config: Any) -> None:
        super().__init__(process, topology, msgspec.structs.replace(config, requests=False))


class StrangersJoin(Baseline):
    """Only the joiner and the group that it joins know: nobody tells the other senders, nor the joiner of them."""

    def _tell_senders(self, out: Outbox) -> None:
        pass

    def _ask_for_barriers(self, ts: Timestamp, message: AppMessage, out: Outbox) -> None:
        """A destination asks nobody: barriers are its senders' business."""
        for group in self._merger.behind(ts):
            if self._log.is_leader and not self._merger.sources[group].reaches(self._group):
                self._respond_to_join(group, out)


# -- not published: a sender is forgotten


class SkippingMerger(Merger):
    def horizon(self) -> Timestamp:
        groups = sorted(self.sources)
        return min(map(self.barrier, groups[:-1] or groups))


class SkippedSender(Optimistic):
    """Waits for the barriers of all of sendersTo but one."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._merger.__class__ = SkippingMerger


@dataclass(frozen=True)
class Flaw:
    name: str
    base: str
    build: Callable[[ProcessId, Topology, Any, Random], Any]
    published: str
    mend: str
    caught_by: frozenset[str]  # properties of which at least one must fail
    options: dict[str, Any] = field(default_factory=dict)
    entry: Callable[[ProcessId, Topology, Any], Any] | None = None
    groups: int | None = None
    seeds: int = 100

    def scenario(self, seed: int) -> Scenario:
        made = fuzz_scenario(self.base, seed, (), replicas=1, groups=self.groups)
        return msgspec.structs.replace(made, options=self.options)

    def spec(self) -> ProtocolSpec:
        sound = protocol(self.base)
        return replace(sound, build=self.build, entry=self.entry or sound.entry)


ORDER = frozenset({"prefix", "acyclic", "replicas", "timestamps", "invariant"})
LOST = frozenset({"liveness", "validity"})
FLAWS = (
    Flaw(
        "strict-barrier",
        "oam-baseline",
        StrictBarrier,
        "Line 34: a message is delivered when its timestamp is below the barrier of every sender, its source included.",
        "Nothing that the source group sends later can come before the message: its own timestamp is enough.",
        LOST,
    ),
    Flaw(
        "raised-whole",
        "oam",
        UnlikeTimestamps,
        "Lines 25, 26: a message that is late gets the last timestamp plus one, if that one is greater.",
        "A timestamp is (time, group): a raise changes the time alone, also for equal times.",
        ORDER | LOST,
    ),
    Flaw(
        "only-own-messages",
        "oam-baseline",
        OnlyOwnMessages,
        "Lines 29 to 31 stand inside the condition of line 27: that the group itself is a destination.",
        "Every decided message is remembered, raises the barrier, and is sent to its destinations.",
        LOST | {"fifo"},
    ),
    Flaw(
        "parallel-instances",
        "oam-baseline",
        ParallelInstances,
        "Section VI: consensus instances run in parallel, one for each message.",
        "A log takes each sender's messages in the order of their numbers, whatever instance they are in.",
        frozenset({"fifo"}),
    ),
    Flaw(
        "initial-is-final",
        "oam",
        InitialIsFinal,
        "Lines 14 to 16: a destination stamps the first copy that comes. In section IV that is the initial one.",
        "Initial copies are messages of another kind; final timestamps come through the log alone.",
        ORDER | LOST | {"fifo"},
    ),
    Flaw(
        "not-itself",
        "oam-baseline",
        NotItself,
        "Section III: sendersTo(g3) = {g1, g2}; g3 waits for their barriers only. Section V: a join counts from the "
        "moment that is decided in g3.",
        "A group always waits for its own barrier: so each replica knows of a join before it delivers what follows it.",
        ORDER,
        {"senders_to": {"g3": ["g1"], "g2": ["g2", "g1"], "g1": ["g1", "g2"]}},
        AskedByLeaders,
        groups=3,
    ),
    Flaw(
        "strangers-join",
        "oam-baseline",
        StrangersJoin,
        "Section V: the joiner notifies the senders that it knows of. Two that join at once do not know each other.",
        "The response carries sendersTo, the group that was joined tells all its senders, and asks for what it misses.",
        LOST,
        {"senders_to": {"g1": [], "g2": [], "g3": []}},
        groups=3,
    ),
    Flaw(
        "skipped-sender",
        "oam",
        SkippedSender,
        "",
        "All of sendersTo are waited for.",
        ORDER,
        groups=3,
    ),
)
