"""GeoPaxos as published: Coelho, "On the many faces of atomic multicast" (2019), Algorithm 4."""

from __future__ import annotations

from collections import deque
from random import Random

from msgspec.structs import replace

from ..core import AppMessage, Outbox, ProcessId, Topology, timestamp
from ..core.timestamps import group_of
from ..protocols.geopaxos.execution import Execution, Step
from ..protocols.geopaxos.messages import Attempt, Final, Operation, Order, decode_entries
from ..protocols.geopaxos.replica import GeoPaxos
from ..protocols.geopaxos.state import GeoConfig
from ..protocols.geopaxos.track import NOTHING, Own, Track, TrackState
from ..sim import Scenario
from ..sim.fuzz import fuzz_scenario
from ._erratum import Erratum, Simulated

_PAPER = "Coelho 2019, Algorithm 4"


class RepeatingExecution(Execution):
    latest: tuple[Step, ...] = ()

    def take(self, step: Step) -> Operation | None:
        operation = super().take(step)
        if operation is not None and len(step.sites) > 1:
            self.latest = (*self.latest, step)
        return operation


class Repeating(GeoPaxos):
    """As published: every STEP2 that is decided makes its operation an ordered one, also after it was executed.

    All replicas of a site propose STEP2; here the leader does so a second time for one that is slow.
    """

    _execution_type = RepeatingExecution
    _execution: RepeatingExecution

    def __init__(self, process: ProcessId, topology: Topology, config: GeoConfig, rng: Random) -> None:
        super().__init__(process, topology, config, rng)
        self._taken: dict[Attempt, AppMessage | None] = {}

    def _flush(self, out: Outbox) -> None:
        super()._flush(out)
        latest, self._execution.latest = self._execution.latest, ()
        for step in latest:
            assert step.attempt is not None
            self._taken[step.attempt] = step.message
            if self._group in step.sites:
                self._log.propose(Final(step.attempt, step.key[0]), out)

    def _consume(self, group: int, instance: int, value: bytes, out: Outbox) -> None:
        super()._consume(group, instance, value, out)
        for entry in decode_entries(value):
            message = self._taken.get(entry.attempt) if isinstance(entry, Final) else None
            if message is not None:
                self._deliveries.add_own(message, None, out)


class UnorderedExecution(Execution):
    def take(self, step: Step) -> Operation | None:
        self.done.update(dict.fromkeys(step.sites, NOTHING))
        return super().take(step)


class AtOnceTrack(Track):
    def order(self, entry: Order, instance: int) -> bool:
        is_new = super().order(entry, instance)
        if is_new and len(entry.attempt.dst) == 1:
            first = replace(self.own.pop(), key=(0, self.count))
            self.own = deque(sorted([*self.own, first], key=_key))
        return is_new


def _key(own: Own) -> tuple[int, int]:
    return own.key


class AtOnce(GeoPaxos):
    """As published: an operation of one site is executed when it is learned."""

    _track_type = AtOnceTrack
    _execution_type = UnorderedExecution


class ForeignTrack(Track):
    def __init__(self, state: TrackState, is_own: bool, counters_convoy: bool) -> None:
        super().__init__(state, is_own, counters_convoy)
        self._holder = self.group  # whose id the clock has

    def order(self, entry: Order, instance: int) -> bool:
        is_new = super().order(entry, instance)
        if entry.attempt in self.pending:
            self.pending[entry.attempt] = timestamp(self.clock, self._holder)
        return is_new

    def finish(self, entry: Final) -> bool:
        if entry.ts > timestamp(self.clock, self._holder):
            self._holder = group_of(entry.ts)
        return super().finish(entry)


class StrictExecution(Execution):
    def next_steps(self) -> list[Step]:
        steps = super().next_steps()
        return [] if any(map(self._is_tied, steps)) else steps

    def _is_tied(self, step: Step) -> bool:
        stamps = [pair for site in step.sites for pair in self._stamps(site)]
        return len(step.sites) > 1 and any(ts == step.key[0] and other != step.attempt for other, ts in stamps)

    def _stamps(self, site: int) -> list[tuple[Attempt, int]]:
        return [*self.tracks[site].final.items(), *self.tracks[site].pending.items()]


class ForeignClock(GeoPaxos):
    """As published: a clock is increased with the id that it has, and an operation waits until it is strictly first."""

    _track_type = ForeignTrack
    _execution_type = StrictExecution


class BlindExecution(Execution):
    def _is_valid(self, operation: Operation, attempt: Attempt) -> bool:
        return True


class StaleSites(GeoPaxos):
    """As published: an operation is executed whichever sites have ordered it."""

    _execution_type = BlindExecution


def _drawn(seed: int, messages: int) -> Scenario:
    """A scenario of the fuzzer, without faults, and with only so many messages."""
    return replace(fuzz_scenario("geopaxos", seed, ()), messages=messages, reads_us=0)


def _in_a_hurry(seed: int, messages: int) -> Scenario:
    """The same, with moves, and eight times as fast: operations are on their way while their objects move."""
    made = _drawn(seed, 60)
    workload = replace(made.workload, moves=0.3)
    return replace(made, messages=messages, interval_us=made.interval_us // 8, workload=workload)


ERRATA = (
    Erratum(
        name="geopaxos-twice",
        protocol="geopaxos",
        paper=f"{_PAPER}, lines 19 to 23",
        published="Every replica of a site proposes STEP2, so that the site's log has several. Whenever one is decided"
        " and there is one of each site, the operation joins the set Ordered.",
        problem="A STEP2 that is decided after the operation was executed puts it into the set again: it is executed"
        " twice.",
        mend="An operation joins the set Ordered once: later STEP2 of it change nothing but the clock.",
        breaks=frozenset({"integrity"}),
        schedule=Simulated(_drawn(2, 2), Repeating),
    ),
    Erratum(
        name="geopaxos-at-once",
        protocol="geopaxos",
        paper=f"{_PAPER}, lines 11 and 12, and section 4.4.2",
        published="An operation of one site is executed when its STEP1 is decided, past all operations of several"
        " sites: the log of the site has both in one order.",
        problem="When the operation of several sites is executed depends on the other sites' logs as well. Where their"
        " STEP2 came first it is executed before the one of a single site, elsewhere after it.",
        mend="The operation of one site waits for those whose STEP2 precedes it in the site's log, and for no others."
        " All logs say the same about that, and it waits for nothing that is still without a final timestamp.",
        breaks=frozenset({"conflict-order", "replicas"}),
        schedule=Simulated(_drawn(50, 3), AtOnce),
    ),
    Erratum(
        name="geopaxos-stale-site",
        protocol="geopaxos",
        paper="Coelho 2019, sections 4.4.2 and 4.5",
        published="A replica looks up the preferred sites of an operation's objects when it gets the operation, and"
        " these sites order it. A move is ordered by the old and by the new site.",
        problem="An object may move between the look-up and the execution. An operation that its old site orders after"
        " the move, and one that its new site orders, have no site in common: replicas execute them in any order.",
        mend="When an operation is executed, all replicas look whether its sites are still those of its objects. If not"
        " they drop it alike, and it is ordered again, by the right sites.",
        breaks=frozenset({"conflict-order", "replicas"}),
        schedule=Simulated(_in_a_hurry(0, 8), StaleSites),
    ),
    Erratum(
        name="geopaxos-ties",
        protocol="geopaxos",
        paper=f"{_PAPER}, lines 14, 20 and 24",
        published="A clock is a pair of a number and a site. STEP2 sets it to the maximum with the final timestamp,"
        " STEP1 increments it, and an operation is executed when its timestamp is smaller than all others.",
        problem="After a maximum with another site's timestamp, the pair has that site's id. Incremented, it equals"
        " what the other site gives next: two operations have the same timestamp, and wait for each other for ever.",
        mend="An increment gives the next number, with the site's own id.",
        breaks=frozenset({"liveness"}),
        schedule=Simulated(_drawn(12, 8), ForeignClock),
    ),
)
