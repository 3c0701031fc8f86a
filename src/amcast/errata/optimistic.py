"""Optimistic Atomic Multicast as published: Bezerra, Pedone, Garbinato, Geyer, "Optimistic Atomic Multicast" (2013)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..check import Violation
from ..core import AppMessage, GroupId, MessageId, Outbox, ProcessId, Timestamp, Topology, sender_of, seq_of, timestamp
from ..protocols.optimistic import Baseline, BaselineIngress, Optimistic, OptimisticIngress
from ..protocols.optimistic.ingress import SendersConfig
from ..protocols.optimistic.merge import END_OF_TIME, Admission, Merger
from ..protocols.optimistic.messages import BarrierRequest, FrMcast, Stamp, Time
from ..protocols.optimistic.proposals import Proposals
from ..protocols.optimistic.reconfiguration import Reconfiguration
from ..protocols.optimistic.source import Source
from ..sim import FaultPlan, Scenario, SimResult, scenario
from ..sim.faults import Skew
from ..sim.fuzz import fuzz_scenario
from ..trace import FINAL
from ..workload import Micro
from ._erratum import Erratum, Simulated

_PAPER = "Bezerra, Pedone, Garbinato, Geyer 2013"
_LAG_US = 40_000


class StrictMerger(Merger):
    def barrier(self, group: GroupId) -> Timestamp:
        """Line 34: the barrier is the last timestamp that came, and must be above the message's own."""
        source = self.sources[group]
        return timestamp(source.clock, group) if source.reaches(self._group) else super().barrier(group)


class StrictBarrier(Baseline):
    def _new_merger(self, sources: dict[GroupId, Source], admissions: dict[GroupId, Admission]) -> Merger:
        return StrictMerger(self._group, sources, admissions)


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


class ProposedAsSent(Proposals):
    def _propose_stamp(self, copy: FrMcast, out: Outbox) -> None:
        self._log.propose(Stamp(copy.message, copy.time), out)
        self._request_barriers(copy.message, copy.time, copy.asked, out)


class UnlikeTimestamps(Optimistic):
    _proposals_type = ProposedAsSent

    def _new_source(self, group: GroupId) -> Source:
        return RaisedWhole(group, super()._new_source(group).links)


class OnlyOwnMessages(Baseline):
    def _on_stamp(self, source: Source, instance: int, entry: Stamp, out: Outbox) -> None:
        """Lines 27 to 31: what this group does not deliver itself, it neither remembers nor sends."""
        if source.group in entry.message.dst:
            super()._on_stamp(source, instance, entry, out)
        else:
            source.stamp(entry.message.id, entry.message.dst, entry.time)


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


class ProposedAtOnce(Proposals):
    def _propose_ready(self, sender: ProcessId, out: Outbox) -> None:
        for copy in list(self._ready.get(sender, {}).values()):
            self._propose_stamp(copy, out)
        self._ready[sender] = {}


class ParallelInstances(Baseline):
    _proposals_type = ProposedAtOnce

    def _new_source(self, group: GroupId) -> Source:
        return AnyOrder(group, super()._new_source(group).links)


class EagerBarriers(Optimistic):
    def _on_barrier_request(self, request: BarrierRequest, out: Outbox) -> None:
        """Proposed at once, wherever it comes from."""
        Baseline._on_barrier_request(self, request, out)


class EagerIngress(OptimisticIngress):
    def send(self, message: AppMessage, out: Outbox) -> FrMcast:
        """Requests go to all groups of sendersTo, and before the message itself."""
        request = BarrierRequest(message.id, max(out.now_us, self._last + 1), self._home)
        out.send_all(self._topology.members(self._home), request)
        return super().send(message, out)


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


class NullsOfOwnClock(Baseline):
    """Null messages carry the time of the process that sends them, whatever it has heard."""

    def _null_time(self, out: Outbox) -> Time:
        return out.now_us


class NotItselfMerger(Merger):
    """sendersTo(h) without h itself, as in the paper's example."""

    def horizon(self) -> Timestamp:
        return min([self.barrier(group) for group in self.sources if group != self._group], default=END_OF_TIME)

    def behind(self, ts: Timestamp) -> list[GroupId]:
        return [group for group in super().behind(ts) if group != self._group]

    def senders(self) -> tuple[GroupId, ...]:
        return tuple(group for group in super().senders() if group != self._group)


class SendersAsked(Proposals):
    def _request_barriers(self, message: AppMessage, time: Time, asked: tuple[GroupId, ...], out: Outbox) -> None:
        request = BarrierRequest(message.id, time, self._group)
        for group in dict.fromkeys(x for h in message.dst for x in self._reconfiguration.senders_of(h)):
            if group != self._group:
                out.send_all(self._topology.members(group), request)


class NotItself(Baseline):
    """Group g3 is only sent to."""

    _proposals_type = SendersAsked

    def _new_merger(self, sources: dict[GroupId, Source], admissions: dict[GroupId, Admission]) -> Merger:
        kind = NotItselfMerger if self._group == 3 else Merger
        return kind(self._group, sources, admissions)


class AskedByLeaders(BaselineIngress):
    def __init__(self, process: ProcessId, topology: Topology, config: SendersConfig) -> None:
        super().__init__(process, topology, replace(config, requests=False))


class TellsNobody(Reconfiguration):
    def tell_senders(self, out: Outbox) -> None:
        pass


class StrangersJoin(Baseline):
    """Only the joiner and the group that it joins know: nobody tells the other senders, nor the joiner of them."""

    _reconfiguration_type = TellsNobody

    def _ask_for_barriers(self, ts: Timestamp, message: AppMessage, out: Outbox) -> None:
        """A destination asks nobody: barriers are its senders' business."""
        for group in self._merger.behind(ts):
            if self._log.is_leader and not self._merger.sources[group].reaches(self._group):
                self._reconfiguration.respond_to_join(group, out)


def _slowest_us(result: SimResult) -> int:
    run = result.run()
    sent = dict(zip(run.multicasts.msg.tolist(), run.multicasts.t_us.tolist(), strict=True))
    rows = run.deliveries
    final = rows.kind == FINAL
    times = zip(rows.msg[final].tolist(), rows.t_us[final].tolist(), strict=True)
    return max(int(t_us - sent[msg]) for msg, t_us in times)


def _takes_no_longer_than(limit_us: int, why: str, result: SimResult) -> tuple[Violation, ...]:
    slowest = _slowest_us(result)
    if slowest <= limit_us:
        return ()
    return (Violation("delays", [], [], f"a message took {slowest} us to its last delivery: {why}"),)


def _in_three_delays(result: SimResult) -> tuple[Violation, ...]:
    return _takes_no_longer_than(3 * result.scenario.network.default_us, "its timestamp was changed", result)


def _without_the_lag(result: SimResult) -> tuple[Violation, ...]:
    return _takes_no_longer_than(_LAG_US // 2, "it waited for a clock that lags", result)


def _fuzzed(protocol: str, seed: int, messages: int, groups: int, **options: Any) -> Scenario:
    """One process a group, no faults, reads or snapshots: the flaws need none of these."""
    made = fuzz_scenario(protocol, seed, (), replicas=1, groups=groups)
    paxos = replace(made.paxos, window=2, snapshot_every=1_000)
    return replace(made, messages=messages, options=options, paxos=paxos, reads_us=0)


ORDER = frozenset({"prefix", "acyclic", "replicas", "timestamps", "invariant"})
LOST = frozenset({"liveness", "validity"})

ERRATA = (
    Erratum(
        "oam-baseline-strict-barrier",
        "oam-baseline",
        f"{_PAPER}, Algorithm 1, line 34",
        "A message is delivered when its timestamp is below the barrier of every sender, its source group included.",
        "The barrier of the source group is the message's own timestamp: what nothing follows waits for ever.",
        "Nothing that the source group sends later comes before the message: its own timestamp is enough.",
        LOST,
        Simulated(_fuzzed("oam-baseline", 0, 1, 2), StrictBarrier),
    ),
    Erratum(
        "oam-raised-whole",
        "oam",
        f"{_PAPER}, Algorithm 1, lines 25 and 26",
        "A message whose timestamp is below the last one gets the last one plus one.",
        "A timestamp is a time and an id in one number: plus one is another's, or equal times stay as they are.",
        "A timestamp is (time, group): a raise changes the time alone, also for equal times.",
        ORDER | LOST,
        Simulated(_fuzzed("oam", 10, 6, 2), UnlikeTimestamps),
    ),
    Erratum(
        "oam-baseline-only-own-messages",
        "oam-baseline",
        f"{_PAPER}, Algorithm 1, lines 27 to 31",
        "What follows from a decision stands inside the condition that the group itself is a destination.",
        "Messages to other groups alone are never sent to them.",
        "Every decided message is remembered, raises the barrier, and is sent to its destinations.",
        LOST | {"fifo"},
        Simulated(_fuzzed("oam-baseline", 0, 1, 3), OnlyOwnMessages),
    ),
    Erratum(
        "oam-baseline-parallel-instances",
        "oam-baseline",
        f"{_PAPER}, section VI",
        "Consensus instances run in parallel, one for each message.",
        "Two messages of one sender are decided in the order in which they happened to come: FIFO order is lost.",
        "A log takes each sender's messages in the order of their numbers, whatever instance they are in.",
        frozenset({"fifo"}),
        Simulated(_fuzzed("oam-baseline", 19, 48, 3), ParallelInstances),
    ),
    Erratum(
        "oam-eager-barriers",
        "oam",
        f"{_PAPER}, section VI",
        "Barriers are requested before the message is sent, of all groups of sendersTo.",
        "Proposed at once, and in the source group too, they raise the very message that they serve: it takes a delay "
        "more.",
        "Barriers wait out the window, are just above the message's timestamp, and the source group is not asked.",
        frozenset({"delays"}),
        Simulated(
            scenario("oam", "unit", groups=3, clients=1, messages=1, workload=Micro(2, 2), seed=1),
            EagerBarriers,
            _in_three_delays,
            EagerIngress,
        ),
    ),
    Erratum(
        "oam-initial-is-final",
        "oam",
        f"{_PAPER}, Algorithm 1, lines 14 to 16, and section IV",
        "A destination stamps the first copy of a message that comes; in section IV that is the initial one.",
        "The source group may change the timestamp: destinations deliver with one that is not final.",
        "Initial copies are messages of another kind; final timestamps come through the log alone.",
        ORDER | LOST | {"fifo"},
        Simulated(_fuzzed("oam", 19, 3, 2), InitialIsFinal),
    ),
    Erratum(
        "oam-baseline-lagging-null",
        "oam-baseline",
        f"{_PAPER}, section III-D",
        "A group that has nothing to send multicasts null messages, stamped by its own clock.",
        "A group whose clock lags delays every message to its receivers by the lag.",
        "Null messages jump ahead to the latest time that other groups have reached; or barriers are requested.",
        frozenset({"delays"}),
        Simulated(
            scenario(
                "oam-baseline",
                groups=3,
                messages=20,
                interval_us=1_000,
                workload=Micro(1, 2),
                options={"requests": False, "null_us": 1_000},
                plan=FaultPlan(tuple(Skew(1, process, -_LAG_US, 0.0) for process in (6, 7, 8))),
                resend_us=1_000_000,
                seed=2,
            ),
            NullsOfOwnClock,
            _without_the_lag,
        ),
    ),
    Erratum(
        "oam-baseline-not-itself",
        "oam-baseline",
        f"{_PAPER}, sections III and V",
        "sendersTo(g3) = {g1, g2}, and g3 waits for their barriers only; a join counts from a moment decided in g3.",
        "g3 may have delivered later messages before that moment: the joiner's first one comes too late.",
        "A group always waits for its own barrier: so each replica knows of a join before it delivers what follows it.",
        ORDER,
        Simulated(
            _fuzzed("oam-baseline", 276, 3, 3, senders_to={"g3": ["g1"], "g2": ["g2", "g1"], "g1": ["g1", "g2"]}),
            NotItself,
            ingress=AskedByLeaders,
        ),
    ),
    Erratum(
        "oam-baseline-strangers-join",
        "oam-baseline",
        f"{_PAPER}, section V",
        "The joiner notifies the senders that it knows of.",
        "Two groups that join at once do not know each other, do not ask each other for barriers, and wait for ever.",
        "The response carries sendersTo, the group that was joined tells all its senders, and asks for what it misses.",
        LOST,
        Simulated(_fuzzed("oam-baseline", 9, 6, 3, senders_to={"g1": [], "g2": [], "g3": []}), StrangersJoin),
    ),
)
