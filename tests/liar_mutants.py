"""Protocols that survive liars, each broken on purpose in one small way that only a liar can make use of."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from msgspec import DecodeError, structs

from amcast.consensus.base import Decision
from amcast.consensus.bft.catch_up import CatchUp
from amcast.consensus.bft.checkpoints import Checkpoints
from amcast.consensus.bft.choice import NOTHING_DIGEST, Choice
from amcast.consensus.bft.ledger import Slot
from amcast.consensus.bft.messages import HandedState, digest_of
from amcast.consensus.bft.views import Views
from amcast.consensus.bft.votes import Votes
from amcast.core import AppMessage, Outbox, Process, ProcessId, Topology, signed_part
from amcast.protocols import protocol
from amcast.protocols._byzantine import ByzantineReplica, Heard, Judgement
from amcast.sim import Scenario
from amcast.sim.byzantine import Lying
from amcast.sim.faults import Crash, FaultPlan, Traitor
from tests.mutants import Mutant


def _byzcast(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Any:
    return protocol("byzcast").build(process, topology, config, rng)


class CountsCopies(Heard):
    """Relays are counted by message: one liar that repeats itself is as good as f+1 members."""

    copies: dict[Any, int]

    def hear(self, sender: ProcessId, seq: int, body: Any, needed: int) -> bool:
        if not hasattr(self, "copies"):
            self.copies = {}
        if seq in self.backed:
            return False
        key = (seq, repr(body))
        self.copies[key] = self.copies.get(key, 0) + 1
        return self._back(seq, body, set(range(self.copies[key])), needed)


class RelaysByCopies(ByzantineReplica):
    def _heard_of(self, source: int) -> Heard:
        if source not in self._heard:
            self._heard[source] = CountsCopies()
        return self._heard[source]


def relays_by_copies(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made = _byzcast(process, topology, config, rng)
    made.__class__ = RelaysByCopies
    return made


def small_quorum(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    """Quorums of n-f-1."""
    made = _byzcast(process, topology, config, rng)
    made._log._members.quorum -= 1
    return made


class DropsPrepared(Views):
    """A new view begins with nothing, whatever members had prepared."""

    def check(self, message: Any, out: Outbox) -> Choice | None:
        choice = super().check(message, out)
        if choice is None:
            return None
        return structs.replace(choice, proposals=dict.fromkeys(choice.proposals, NOTHING_DIGEST))

    def gather(self, out: Outbox) -> Any:
        gathered = super().gather(out)
        for slot in self._ledger.slots.values():
            slot.values[NOTHING_DIGEST] = b""
        return gathered


def drops_prepared(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made = _byzcast(process, topology, config, rng)
    made._log._views.__class__ = DropsPrepared
    return made


def forgets_writes(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    """A new view keeps what was prepared, and not what all members wrote."""
    made = _byzcast(process, topology, config, rng)
    made._log._members.liars = -len(made._log._members.all)  # more writes than there are members would be needed
    return made


class BelievesStates(CatchUp):
    """A state that is handed over is taken as it is."""

    def on_state(self, message: HandedState) -> list[Decision]:
        said = self._checkpoints._said
        self._checkpoints._said = {member: {message.next: digest_of(message.state)} for member in self._members.all}
        decisions = super().on_state(message)
        self._checkpoints._said = said
        return decisions


def believes_states(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made = _byzcast(process, topology, config, rng)
    made._log._catch_up.__class__ = BelievesStates
    return made


class OneDigest(Checkpoints):
    """One member's word about a checkpoint is enough."""

    def vouched_at(self, next_: int) -> bytes:
        said = [each[next_] for each in self._said.values() if next_ in each]
        return said[0] if said else b""


def one_digest(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made = _byzcast(process, topology, config, rng)
    made._log._checkpoints.__class__ = OneDigest
    return made


class AnyDestination(ByzantineReplica):
    """The signature does not cover the destinations: here, any that the leader put in would do."""

    def _is_genuine(self, message: AppMessage, out: Outbox) -> bool:
        if super()._is_genuine(message, out):
            return True
        groups = self._topology.groups
        for mask in range(1, 1 << len(groups)):
            dst = tuple([group for at, group in enumerate(groups) if mask >> at & 1])
            signed = signed_part(structs.replace(message, dst=dst))
            if out.verify(message.sender, signed, message.proof):
                return bool(message.dst) and set(message.dst) <= set(groups)
        return False


def any_destination(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made = _byzcast(process, topology, config, rng)
    made.__class__ = AnyDestination
    return made


class BelievesLeaders(ByzantineReplica):
    """Whatever a leader proposes is approved."""

    def _judge(self, value: bytes, out: Outbox) -> Any:
        return Judgement.GOOD if self._can_read(value) else Judgement.BAD

    def _can_read(self, value: bytes) -> bool:
        try:
            self._entries.decode(value)
        except (DecodeError, UnicodeDecodeError):
            return False
        return True


def believes_leaders(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made = _byzcast(process, topology, config, rng)
    made.__class__ = BelievesLeaders
    return made


class FollowsOne(Votes):
    """What one member wrote, be it the leader, is written without a look at it."""

    def write_with_others(self, instance: int, slot: Slot, out: Outbox) -> None:
        if self.may_write(slot) and self._ledger.count(slot.writes, slot.view, slot.digest):
            self.write(instance, slot, out)


def follows_one(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made = _byzcast(process, topology, config, rng)
    made._log._votes.__class__ = FollowsOne
    return made


@dataclass(frozen=True)
class LiarMutant(Mutant):
    """Its seeds are those of the fuzzer, and in each the first member of every group lies in the way that it needs."""

    ways: tuple[str, ...] = ()
    small: bool = False  # whether states must be handed over

    def scenario(self, seed: int) -> Scenario:
        made = super().scenario(seed)
        topology = made.topology()
        others = [fault for fault in made.plan.faults if not isinstance(fault, Traitor)]
        # Another member than that may not be lost as well.
        kept = [f for f in others if not isinstance(f, Crash) or (f.keeps_disk and f.down_us is not None)]
        liars = [Traitor(0, topology.members(group)[0], Lying(self.ways, 1.0, seed)) for group in topology.groups]
        made = structs.replace(made, plan=FaultPlan((*liars, *kept)), reads_us=0)
        if self.small:
            paxos = structs.replace(made.paxos, snapshot_every=3, lag_max=2)
            made = structs.replace(made, paxos=paxos)
        return made


LIARS = ("byzantine",)
WRONG = frozenset({"prefix", "acyclic", "replicas", "integrity", "agreement", "invariant", "positions"})
AWAY = ("crash", "pause", "partition")
LIAR_MUTANTS = (
    LiarMutant("relays-by-copies", "byzcast", relays_by_copies, WRONG, LIARS, groups=3, ways=("forged-relay",)),
    LiarMutant("small-quorum", "byzcast", small_quorum, WRONG, LIARS, groups=1, ways=("twins",)),
    Mutant("drops-prepared", "byzcast", drops_prepared, WRONG, AWAY, groups=1),
    Mutant("forgets-writes", "byzcast", forgets_writes, WRONG, AWAY, groups=1),
    LiarMutant("believes-states", "byzcast", believes_states, WRONG, AWAY, groups=1, ways=("lying-state",), small=True),
    LiarMutant(
        "one-digest",
        "byzcast",
        one_digest,
        WRONG | {"liveness"},
        AWAY,
        groups=1,
        ways=("lying-checkpoint",),
        small=True,
    ),
    LiarMutant("any-destination", "byzcast", any_destination, WRONG, LIARS, groups=3, ways=("forged-value",)),
    LiarMutant("follows-one", "byzcast", follows_one, WRONG, LIARS, groups=2, ways=("forged-value",)),
    LiarMutant("believes-leaders", "byzcast", believes_leaders, WRONG, LIARS, groups=2, ways=("forged-value",)),
)
