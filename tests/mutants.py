"""Protocols broken on purpose, each in one small way. If the checker does not catch one, the checker is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from amcast.consensus import Decision, MultiPaxos
from amcast.consensus.multipaxos.acceptor import Acceptor
from amcast.consensus.multipaxos.messages import PromiseRecord
from amcast.core import (
    AppMessage,
    MessageId,
    Outbox,
    PendingSet,
    Process,
    ProcessId,
    Record,
    Sessions,
    Topology,
    clock_of,
)
from amcast.errata.fastcast import LateSoft, NoPendingHard
from amcast.protocols import ProtocolSpec, protocol
from amcast.protocols.fastcast import FastCast
from amcast.protocols.multipaxos import OrderingGroup
from amcast.sim import PlanSize, Scenario
from amcast.sim.faults import KINDS
from amcast.sim.fuzz import fuzz_scenario


class ClockOnlyPending(PendingSet):
    """As published: compares clocks alone, and waits until its own is strictly smaller than all others."""

    def pop_deliverable(self) -> tuple[MessageId, int] | None:
        clocks = sorted(clock_of(bound) for bound in self._bound.values())
        if len(clocks) > 1 and clocks[0] == clocks[1]:
            return None
        return super().pop_deliverable()


def no_tie_break(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made: Any = protocol("basecast").build(process, topology, config, rng)
    made._automaton._pending = ClockOnlyPending()
    return made


class SkippingLog(MultiPaxos):
    """Hands up a later instance when an earlier one is late."""

    def _advance(self, out: Outbox) -> list[Decision]:
        decisions = super()._advance(out)
        later = self._slots.get(self._next + 1)
        if later is not None and later.decided:
            self._skip_to(self._next + 1)
            decisions += super()._advance(out)
        return decisions


def skipping_learner(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made: Any = protocol("fastcast").build(process, topology, config, rng)
    made._log = SkippingLog(made._group, process, topology, config.paxos, rng)
    return made


class ForgetfulAcceptor(Acceptor):
    """Comes back from a restart with its votes, and without the promises it made since."""

    def recover(self, records: Sequence[Record]) -> Any:
        initial = self.promised
        recovered = super().recover([r for r in records if not isinstance(r, PromiseRecord)])
        self.promised = initial
        self.is_member = True
        return recovered


def forgetful_acceptor(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made: Any = protocol("basecast").build(process, topology, config, rng)
    made._log._acceptor = ForgetfulAcceptor(made._log._acceptor.promised)
    return made


class NoSessions(Sessions):
    def is_known(self, message: MessageId) -> bool:
        return False


def retry_twice(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    """Orders a message again when its client tries again."""
    made = OrderingGroup(process, topology, config, rng)
    made._sessions = NoSessions()
    return made


class DuplicateTwice(FastCast):
    """Delivers again when a copy of a delivered message arrives."""

    def _on_known(self, sender: ProcessId, message: AppMessage, out: Outbox) -> None:
        if message.id not in self._tracked:
            self._deliver(message, self._sessions.timestamp(message.id) or 0, out)
        super()._on_known(sender, message, out)


SIZE = PlanSize()


@dataclass(frozen=True)
class Mutant:
    name: str
    base: str
    build: Any
    caught_by: frozenset[str]  # properties of which at least one must fail
    # Where its flaw shows: all faults on any number of groups, unless it needs a harder time.
    kinds: tuple[str, ...] = KINDS
    groups: int | None = None
    size: PlanSize = SIZE

    def scenario(self, seed: int) -> Scenario:
        return fuzz_scenario(self.base, seed, self.kinds, groups=self.groups, size=self.size)

    def spec(self) -> ProtocolSpec:
        return replace(protocol(self.base), build=self.build)


ORDER = frozenset({"prefix", "acyclic", "replicas", "timestamps"})
MUTANTS = (
    Mutant("no-pending-hard", "fastcast", NoPendingHard, ORDER),
    Mutant("late-soft", "fastcast", LateSoft, frozenset({"liveness"})),
    Mutant("no-tie-break", "basecast", no_tie_break, frozenset({"liveness"})),
    Mutant("skipping-learner", "fastcast", skipping_learner, ORDER | {"agreement", "liveness"}),
    Mutant(
        "forgetful-acceptor",
        "basecast",
        forgetful_acceptor,
        ORDER | {"agreement", "liveness"},
        ("crash", "partition", "pause"),
        groups=1,
        size=PlanSize(last_us=30_000, faults_max=60),
    ),
    Mutant("retry-twice", "multipaxos", retry_twice, frozenset({"integrity"})),
    Mutant("duplicate-twice", "fastcast", DuplicateTwice, frozenset({"integrity"})),
)
