"""Protocols broken on purpose, each in one small way. If the checker does not catch one, the checker is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from msgspec import structs

from amcast.consensus import Decision, Learner, MultiPaxos
from amcast.consensus.multipaxos.acceptor import Acceptor
from amcast.consensus.multipaxos.messages import PromiseRecord
from amcast.consensus.multipaxos.reads import ReadRounds, Reads
from amcast.core import (
    AppMessage,
    GroupId,
    MessageId,
    Outbox,
    PendingSet,
    Process,
    ProcessId,
    Record,
    SeenMessages,
    Timestamp,
    Topology,
    Wire,
    clock_of,
    unpack,
)
from amcast.errata.fastcast import LateSoft, NoPendingHard
from amcast.protocols import GroupOutbox, ProtocolSpec, protocol, tree
from amcast.protocols._adapter import Frame, FromGroup, ReplicatedAutomaton, Submit
from amcast.protocols._byzantine import replicate_among_liars
from amcast.protocols._fastcast_messages import SyncReject
from amcast.protocols.fastcast import FastCast
from amcast.protocols.flexcast import FlexCastAutomaton, Msg, Notice, Pending, build_with
from amcast.protocols.geopaxos.execution import Execution, Placement, Step
from amcast.protocols.geopaxos.messages import Attempt, Operation
from amcast.protocols.geopaxos.replica import GeoPaxos
from amcast.protocols.geopaxos.state import GeoConfig
from amcast.protocols.geopaxos.track import NOTHING
from amcast.protocols.multipaxos import OrderingGroup
from amcast.protocols.optimistic import Optimistic
from amcast.protocols.optimistic.baseline import Baseline
from amcast.protocols.optimistic.merge import Admission, Merger
from amcast.protocols.optimistic.source import Source
from amcast.protocols.skeen import SendHard, SkeenAutomaton
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


class SkippingLearner(Learner):
    """Hands up a later instance when an earlier one is late."""

    def advance(self) -> list[Decision]:
        decisions = super().advance()
        later = self.slots.get(self.next + 1)
        if later is not None and later.decided:
            self.next += 1
            decisions += super().advance()
        return decisions


def skipping_learner(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made: Any = protocol("fastcast").build(process, topology, config, rng)
    made._log._learner.__class__ = SkippingLearner
    return made


class ForgetfulAcceptor(Acceptor):
    """Comes back from a restart with its votes, and without the promises it made since."""

    def recover(self, records: Sequence[Record]) -> None:
        initial = self.promised
        super().recover([r for r in records if not isinstance(r, PromiseRecord)])
        self.promised = initial
        self.is_member = True
        self.incarnation = self.incarnation if records else 0


def forgetful_acceptor(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made: Any = protocol("basecast").build(process, topology, config, rng)
    made._log._acceptor.__class__ = ForgetfulAcceptor
    return made


class Unconfirmed(ReadRounds):
    """A leader takes it for granted that it still leads."""

    def _is_confirmed(self, round_: int) -> bool:
        return True


class KnownDecided(ReadRounds):
    """A leader lets reads wait for what it knows to be decided: not for what its predecessor, or a vote that it has not
    seen, has decided."""

    def begin_round(self, out: Outbox) -> None:
        leadership, next_free = self._leadership, self._leadership.next_free
        leadership.next_free = self._learner.next
        super().begin_round(out)
        leadership.next_free = next_free


class Hasty(Reads):
    """A read is done when it is known what it has to wait for."""

    def advance(self, next_: int) -> int | None:
        return super().advance(1 << 62)


class UnaskedReads(Reads):
    """A reader takes what it was handed for everything."""

    def begin(self, read: int) -> bool:
        self.done = read
        return False


def reading_with(base: str, rounds: type[ReadRounds] = ReadRounds, reads: type[Reads] = Reads) -> Any:
    """The protocol, over a log that reads otherwise."""

    def build(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
        made: Any = protocol(base).build(process, topology, config, rng)
        if isinstance(made._log, MultiPaxos):
            made._log._rounds.__class__ = rounds
        learner = getattr(made._log, "_learner", made._log)
        learner.reads.__class__ = reads
        return made

    return build


class ReadsByLogAlone(FastCast):
    """A read waits for the log, and not for messages that another replica may have delivered by a guess."""

    def _perhaps_delivered(self) -> set[MessageId]:
        return set()


class ReadsOwnLogAlone(Baseline):
    """A read waits for the log of the group, and not for those of other groups that send to it."""

    def _followed(self, group: GroupId, own: int, out: Outbox) -> int:
        return own


class OneIdOneMessage(SkeenAutomaton):
    """Takes every stamp under an id for one of the message that it has under this id."""

    def _on_hard(self, source: GroupId, body: SendHard, out: GroupOutbox) -> None:
        if body.id in self._messages:
            body = structs.replace(body, digest=self._stamps[body.id][self._group][1])
        super()._on_hard(source, body, out)


def one_id_one_message(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made: Any = protocol("basecast").build(process, topology, config, rng)
    made._automaton.__class__ = OneIdOneMessage
    return made


class DropsNothing(FastCast):
    """Waits for every timestamp, even if the group that should give it has said that it never will."""

    def _drop(self, id_: MessageId) -> None:
        """A liar's message stays."""


class BelievesGuesses(FastCast):
    """Takes a message that is rejected for one that was delivered by its guess, as if clients told the truth."""

    def _apply_reject(self, entry: SyncReject) -> None:
        tracked = self._tracked.get(entry.id)
        if tracked is not None and entry.group in tracked.soft:
            tracked.synced.setdefault(entry.group, tracked.soft[entry.group])
            self._settle(entry.id, tracked)
        else:
            super()._apply_reject(entry)


class Credulous(ProtocolSpec):
    """Takes from clients whatever they send."""

    def problem_with(self, client: ProcessId, message: Wire, topology: Topology) -> str | None:
        return None


class EntersAnywhere(ProtocolSpec):
    """Takes an id at whichever group its destinations name, as if no other group could have it."""

    def problem_with_entry(self, message: AppMessage, topology: Topology) -> str | None:
        return None


enters_anywhere = replicate_among_liars(tree.TreeFrame, tree.Relay, tree.TreeState, tree.tree_automaton)


class NothingSeen(SeenMessages):
    def is_known(self, message: MessageId) -> bool:
        return False

    def admit_new(self, message: AppMessage) -> bool:
        return True


def retry_twice(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    """Orders a message again when its client tries again."""
    made = OrderingGroup(process, topology, config, rng)
    made._seen = NothingSeen()
    return made


class KnowsFirstIds(SeenMessages):
    """Remembers of a batch no more than its own id, which is that of its first message."""

    def admit_new(self, message: AppMessage) -> bool:
        return super().admit_new(structs.replace(message, count=1))


def seeing_with(base: str, seen: type[SeenMessages]) -> Any:
    """The protocol, with another memory of what it has seen."""

    def build(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
        made: Any = protocol(base).build(process, topology, config, rng)
        getattr(made, "_automaton", made)._seen = seen()
        return made

    return build


class ForgetsDebts(OrderingGroup):
    """Takes decided for delivered: keeps nothing for a group that is down, and answers for it."""

    def _owe(self, message: AppMessage) -> tuple[GroupId, ...]:
        return message.dst


class RefusesForNow(SeenMessages):
    """Refuses a batch in which an id is known, and does not remember that it did."""

    def admit_new(self, message: AppMessage) -> bool:
        return not any(self.is_known(part.id) for part in unpack(message)) and super().admit_new(message)


class RefusesSilently(FastCast):
    """Refuses a batch in which an id is known, and tells nobody: groups that have ordered it wait for ever."""

    def __init__(self, process: ProcessId, topology: Topology, config: Any, rng: Random) -> None:
        super().__init__(process, topology, config, rng)
        self._seen = RefusesForNow()

    def _on_refused(self, message: AppMessage) -> None:
        """Others may go on waiting."""


class DuplicateTwice(FastCast):
    """Delivers again when a copy of a delivered message arrives."""

    def _on_known(self, sender: ProcessId, message: AppMessage, out: Outbox) -> None:
        if message.id not in self._tracked:
            self._deliver(message, 0, out)
        super()._on_known(sender, message, out)


class NoAcks(FlexCastAutomaton):
    """Waits for no destination of lower rank."""

    def _is_acknowledged(self, pending: Pending) -> bool:
        assert pending.message is not None
        pending.acked.extend(pending.message.dst)
        return super()._is_acknowledged(pending)


class NoNotifs(FlexCastAutomaton):
    def _notify(
        self, name: int, id_: MessageId, dst: tuple[GroupId, ...], also_forgotten: bool, out: GroupOutbox
    ) -> tuple[Notice, ...]:
        return ()


class ForgetsOnArrival(FlexCastAutomaton):
    """Forgets what comes before a flush when it hears of the flush, delivered or not."""

    def _on_msg(self, source: GroupId, body: Msg) -> None:
        super()._on_msg(source, body)
        if body.id < 0:
            self._history.forget_before(body.id)


class NotFifo(ReplicatedAutomaton):
    """Takes what comes from another group once, but in any order."""

    def _on_frame(self, sender: ProcessId, frame: Frame[Any], out: Outbox) -> None:
        stream = self._in_stream(frame.source)
        stream.acknowledged = -1
        for seq, body in enumerate(frame.bodies, frame.first):
            if self._log.is_leader and seq not in stream.ahead:
                stream.ahead[seq] = body
                self._log.propose(FromGroup(frame.source, seq, body), out)

    def _apply(self, entry: Any, out: Outbox) -> None:
        if isinstance(entry, Submit):
            super()._apply(entry, out)
        elif not self._automaton.is_known(entry.body.id):
            stream = self._in_stream(entry.source)
            upto, stream.applied = stream.applied, entry.seq
            super()._apply(entry, out)
            stream.applied = upto
            while stream.applied in stream.ahead:
                stream.applied += 1


def not_fifo(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
    made = protocol("tree").build(process, topology, config, rng)
    made.__class__ = NotFifo
    return made


class SkippingMerger(Merger):
    def horizon(self) -> Timestamp:
        groups = sorted(self.sources)
        return min(map(self.barrier, groups[:-1] or groups))


class SkippedSender(Optimistic):
    """Waits for the barriers of all of sendersTo but one."""

    def _new_merger(self, sources: dict[GroupId, Source], admissions: dict[GroupId, Admission]) -> Merger:
        return SkippingMerger(self._group, sources, admissions)


class OneSitePlacement(Placement):
    def sites_of(self, operation: Operation) -> tuple[GroupId, ...]:
        return (operation.site,) if operation.site in self._sites else super().sites_of(operation)


class OneSiteExecution(Execution):
    _placement_type = OneSitePlacement


class OneSiteMove(GeoPaxos):
    """A move is ordered by the new site alone: the old one may order operations on the object meanwhile."""

    _execution_type = OneSiteExecution


class OvertakingExecution(Execution):
    def next_steps(self) -> list[Step]:
        own = self.tracks[self._group]
        if own.own and own.own[0].attempt is not None and own.first_final < own.first_own:
            return [self._own_step(own)]
        return super().next_steps()

    def take(self, step: Step) -> Operation | None:
        self.done.update(dict.fromkeys(step.sites, NOTHING))
        return super().take(step)


class OvertakesInOneReplica(GeoPaxos):
    """The first replica of each group executes an operation of its site at once, past one of several sites that waits
    for the others."""

    def __init__(self, process: ProcessId, topology: Topology, config: GeoConfig, rng: Random) -> None:
        super().__init__(process, topology, config, rng)
        if topology.members(self._group)[0] == process:
            self._execution.__class__ = OvertakingExecution


class LosesStep2(GeoPaxos):
    """A leader never says the STEP2 that another one had to say before it."""

    def __init__(self, process: ProcessId, topology: Topology, config: GeoConfig, rng: Random) -> None:
        super().__init__(process, topology, config, rng)
        self._others: set[Attempt] = set()

    def _on_stamp(self, attempt: Attempt, out: Outbox) -> None:
        if not self._log.is_leader and self._final_ts(attempt) is not None:
            self._others.add(attempt)
        elif attempt not in self._others:
            super()._on_stamp(attempt, out)


class ReadsOwnSiteAlone(GeoPaxos):
    """Reads when it has followed its own site's log, though another replica may have heard more of other sites."""

    def _reads_done(self, out: Outbox) -> int:
        return self._log.reads_done(out)


class ReadsUnfollowed(GeoPaxos):
    """Reads whatever this replica has executed: it may lag."""

    def _reads_done(self, out: Outbox) -> int:
        return self._latest_read


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
    spec_type: type[ProtocolSpec] = ProtocolSpec
    reads_us: int | None = None  # how often members read, if not as the seed says

    def scenario(self, seed: int) -> Scenario:
        made = fuzz_scenario(self.base, seed, self.kinds, groups=self.groups, size=self.size)
        return made if self.reads_us is None else structs.replace(made, reads_us=self.reads_us)

    def spec(self) -> ProtocolSpec:
        base = protocol(self.base)
        return self.spec_type(**{each.name: getattr(base, each.name) for each in fields(base)} | {"build": self.build})


LIES = ("lying-client",)
INVARIANT = frozenset({"invariant"})
READ = INVARIANT
INTEGRITY = frozenset({"integrity"})
LIVENESS = frozenset({"liveness"})
ORDER = frozenset({"prefix", "acyclic", "replicas", "timestamps"})
MUTANTS = (
    Mutant("no-pending-hard", "fastcast", NoPendingHard, ORDER),
    Mutant("late-soft", "fastcast", LateSoft, LIVENESS),
    Mutant("no-tie-break", "basecast", no_tie_break, LIVENESS),
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
    Mutant(
        "reads-unconfirmed",
        "basecast",
        reading_with("basecast", Unconfirmed),
        READ,
        ("partition", "pause"),
        reads_us=1_000,
    ),
    Mutant("reads-known-decided", "basecast", reading_with("basecast", KnownDecided), READ, reads_us=1_000),
    Mutant("reads-hasty", "basecast", reading_with("basecast", reads=Hasty), READ, reads_us=1_000),
    Mutant("reads-unasked", "multipaxos", reading_with("multipaxos", reads=UnaskedReads), READ, reads_us=1_000),
    Mutant("reads-by-log-alone", "fastcast", ReadsByLogAlone, READ, groups=2, reads_us=1_000),
    Mutant("reads-own-log-alone", "oam-baseline", ReadsOwnLogAlone, READ, groups=2, reads_us=1_000),
    Mutant("no-acks", "flexcast", build_with(NoAcks), ORDER | {"liveness", "invariant"}, (), groups=4),
    Mutant("no-notifs", "flexcast", build_with(NoNotifs), ORDER, ("pause", "partition"), groups=4),
    Mutant(
        "forgets-on-arrival",
        "flexcast",
        build_with(ForgetsOnArrival),
        ORDER | {"liveness", "invariant"},
        ("pause", "partition"),
        groups=4,
    ),
    Mutant("not-fifo", "tree", not_fifo, ORDER, ("reorder",), groups=4),
    Mutant("retry-twice", "multipaxos", retry_twice, INTEGRITY),
    Mutant("forgets-debts", "multipaxos", ForgetsDebts, frozenset({"positions", "validity", "agreement"})),
    Mutant("duplicate-twice", "fastcast", DuplicateTwice, INTEGRITY),
    Mutant("one-id-one-message", "basecast", one_id_one_message, ORDER | {"agreement", "integrity"}, LIES),
    Mutant("knows-first-ids", "fastcast", seeing_with("fastcast", KnowsFirstIds), INTEGRITY, LIES),
    Mutant("knows-first-ids-tree", "tree", seeing_with("tree", KnowsFirstIds), INTEGRITY, LIES),
    Mutant("refuses-silently", "fastcast", RefusesSilently, LIVENESS, LIES, groups=2),
    Mutant("drops-nothing", "fastcast", DropsNothing, LIVENESS, LIES),
    Mutant("believes-guesses", "fastcast", BelievesGuesses, ORDER | {"agreement", "liveness"}, LIES, groups=2),
    Mutant(
        "credulous",
        "flexcast",
        build_with(FlexCastAutomaton),
        ORDER | {"integrity", "liveness", "invariant"},
        LIES,
        groups=1,
        spec_type=Credulous,
    ),
    Mutant("enters-anywhere", "byzcast", enters_anywhere, INVARIANT, LIES, groups=2, spec_type=EntersAnywhere),
    Mutant("one-site-move", "geopaxos", OneSiteMove, frozenset({"conflict-order"}), groups=3),
    Mutant("one-site-move-by-answers", "geopaxos", OneSiteMove, frozenset({"linearizability"}), groups=3),
    Mutant("overtakes-in-one-replica", "geopaxos", OvertakesInOneReplica, frozenset({"replicas", "conflict-order"})),
    Mutant("loses-step2", "geopaxos", LosesStep2, LIVENESS, ("crash", "partition"), groups=3),
    Mutant(
        "reads-own-site-alone",
        "geopaxos",
        ReadsOwnSiteAlone,
        frozenset({"linearizability"}),
        groups=2,
        reads_us=1_000,
    ),
    Mutant("reads-unfollowed", "geopaxos", ReadsUnfollowed, READ, groups=2, reads_us=1_000),
    Mutant("skipped-sender", "oam", SkippedSender, ORDER | {"invariant", "agreement"}, groups=3),
)
