"""FastCast as published: Coelho, Schiper, Pedone, "Fast Atomic Multicast" (2017), Algorithm 2."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from ..check import Violation
from ..core import AppMessage, GroupId, MessageId, ProcessId, Topology, timestamp
from ..protocols._fastcast_messages import Stamp
from ..protocols.fastcast import FastCast, FastCastConfig
from ..sim import Latency, Scenario, SimResult, scenario
from ..sim.fuzz import fuzz_scenario
from ..workload import Micro
from ._erratum import Erratum, Simulated

_PAPER = "Coelho, Schiper, Pedone 2017, Algorithm 2"
_DELAY_US = 50
_FAST_PATH_DELAYS = 4


class NoPendingHard(FastCast):
    """As published: a message enters the buffer with the first timestamp that is synced, not with its own hard one."""

    def _apply_set_hard(self, message: AppMessage) -> None:
        if self._seen.is_known(message.id) or len(message.dst) == 1:
            super()._apply_set_hard(message)
            return
        self._hard_clock += 1
        own = timestamp(self._hard_clock, self._group)
        self._seen.admit(message)
        tracked = self._track(message.id)
        tracked.message = message
        self._give(message, own, tracked)
        for ts, _ in (*tracked.soft.values(), *tracked.synced.values()):
            self._enter(message.id, min(ts, own))
        self._settle(message.id, tracked)

    def _enter(self, id_: MessageId, ts: int) -> None:
        if id_ not in self._pending:
            self._pending.add(id_, ts)

    def _apply_sync_soft(self, group: GroupId, stamps: tuple[Stamp, ...]) -> None:
        self._enter_if_set(stamps)
        super()._apply_sync_soft(group, stamps)

    def _apply_sync_hard(self, group: GroupId, stamps: tuple[Stamp, ...]) -> None:
        self._enter_if_set(stamps)
        super()._apply_sync_hard(group, stamps)

    def _enter_if_set(self, stamps: tuple[Stamp, ...]) -> None:
        for id_, ts, _ in stamps:
            tracked = self._tracked.get(id_)
            if tracked is not None and tracked.message is not None:
                self._enter(id_, min(ts, tracked.hard[self._group][0]))


class LateSoft(FastCast):
    """As published: a soft timestamp that is ordered after its message is final enters the buffer, and stays."""

    def _apply_sync_soft(self, group: GroupId, stamps: tuple[Stamp, ...]) -> None:
        for id_, ts, _ in stamps:
            is_delivered = id_ not in self._tracked and self._seen.is_known(id_)
            if is_delivered and id_ not in self._pending:
                self._pending.add(id_, ts)
        super()._apply_sync_soft(group, stamps)


class Rescanning(FastCast):
    """Stamps all messages whose SET-HARD is still in flight, whenever there is a new one to stamp."""

    def __init__(self, process: ProcessId, topology: Topology, config: FastCastConfig, rng: Random) -> None:
        super().__init__(process, topology, config, rng)
        self._in_flight: dict[MessageId, AppMessage] = {}

    def _guess(self, message: AppMessage) -> None:
        for earlier in self._in_flight.values():
            super()._guess(earlier)
            self._soft_clock += 1
        self._in_flight[message.id] = message
        super()._guess(message)

    def _apply_set_hard(self, message: AppMessage) -> None:
        self._in_flight.pop(message.id, None)
        super()._apply_set_hard(message)


def _drawn(seed: int, messages: int) -> Scenario:
    """A scenario of the fuzzer, without faults, and with only so many messages."""
    return replace(fuzz_scenario("fastcast", seed, ()), messages=messages, reads_us=0)


def _under_load() -> Scenario:
    made = scenario("fastcast", groups=3, clients=6, messages=300, outstanding=2, workload=Micro(1, 2), seed=3)
    return replace(made, network=Latency("constant", _DELAY_US))


def _mean_global_delays(result: SimResult) -> tuple[Violation, ...]:
    """Nearly all global messages should take the fast path while leaders are stable."""
    run = result.run()
    sent = dict(zip(run.multicasts.msg.tolist(), run.multicasts.t_us.tolist(), strict=True))
    sizes = (run.multicasts.dst_start[1:] - run.multicasts.dst_start[:-1]).tolist()
    is_global = {msg for msg, size in zip(run.multicasts.msg.tolist(), sizes, strict=True) if size > 1}
    last: dict[MessageId, int] = {}
    for msg, t_us in zip(run.deliveries.msg.tolist(), run.deliveries.t_us.tolist(), strict=True):
        if msg in is_global:
            last[msg] = max(last.get(msg, 0), t_us)
    delays = sum(t_us - sent[msg] for msg, t_us in last.items()) / len(last) / _DELAY_US
    if delays < _FAST_PATH_DELAYS + 1:
        return ()
    words = f"{len(last)} global messages took {delays:.1f} delays on average, where {_FAST_PATH_DELAYS} are claimed"
    return (Violation("delays", [], [], words),)


ERRATA = (
    Erratum(
        name="fastcast-no-pending",
        protocol="fastcast",
        paper=f"{_PAPER}, Task 5",
        published="A message enters the buffer B with the timestamps that SYNC-SOFT and SYNC-HARD bring. Only BaseCast"
        " (Algorithm 1) also puts in the group's own hard timestamp, when SET-HARD gives it.",
        problem="Until one of its timestamps is synced, nothing in B holds later messages back, and one with a higher"
        " final timestamp overtakes it. Groups, and even replicas of one group, deliver in different orders.",
        mend="Put the pending tuple of the group's own hard timestamp into B when SET-HARD is decided.",
        breaks=frozenset({"prefix", "acyclic", "replicas", "timestamps"}),
        schedule=Simulated(_drawn(3, 8), NoPendingHard),
    ),
    Erratum(
        name="fastcast-late-soft",
        protocol="fastcast",
        paper=f"{_PAPER}, Tasks 2 and 5",
        published="Every SYNC-SOFT that is decided enters the buffer B.",
        problem="If the SYNC-HARD tuples were ordered first and the message is delivered, a SYNC-SOFT of it that is"
        " decided later enters B, never leaves, and blocks every message with a higher timestamp.",
        mend="Ignore soft tuples of a message that is final or delivered, but for the clock.",
        breaks=frozenset({"liveness"}),
        schedule=Simulated(_drawn(205, 2), LateSoft),
    ),
    Erratum(
        name="fastcast-rescanning",
        protocol="fastcast",
        paper=f"{_PAPER}, Task 4",
        published="Task 4 stamps the SET-HARD tuples that are not ordered yet, whenever there are some.",
        problem="Tuples in flight are stamped again and again. Each time the soft clock rises and the hard clock does"
        " not, the guesses run ahead of the truth, and global messages take the slow path.",
        mend="Stamp each SET-HARD once per leader.",
        breaks=frozenset({"delays"}),
        schedule=Simulated(_under_load(), Rescanning, _mean_global_delays),
    ),
)
