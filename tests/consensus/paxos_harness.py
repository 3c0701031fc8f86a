"""A group's logs on a table: no clock, no network. Tests move every message, tick and crash by hand or by dice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from amcast.consensus import (
    Decided,
    Elected,
    Learner,
    Log,
    MultiPaxos,
    PaxosConfig,
    PaxosMessage,
    PaxosRecord,
    SnapshotDue,
    SoloRecord,
    StateReceived,
    StateWanted,
)
from amcast.consensus.multipaxos.messages import Prepare
from amcast.core import AppMessage, Codec, Outbox, ProcessId, Record, TimerKey, Topology, Wire, encode

GROUP = 1
CODEC = Codec(PaxosMessage, PaxosRecord | SoloRecord)

_state = msgspec.msgpack.Decoder(list[tuple[int, bytes]])


class Send(NamedTuple):
    to: ProcessId
    message: Wire


class Persist(NamedTuple):
    record: Record
    is_snapshot: bool


class SetTimer(NamedTuple):
    key: TimerKey
    after_us: int


class Box(Outbox):
    """Effects in the order in which they were issued."""

    def __init__(self, at_once: bool = False) -> None:
        self.effects: list[Send | Persist | SetTimer] = []
        self._at_once = at_once

    @property
    def persists_at_once(self) -> bool:
        return self._at_once

    @property
    def now_us(self) -> int:
        raise AssertionError("a log reads no clock: it counts ticks")

    def send(self, to: ProcessId, message: Wire) -> None:
        self.effects.append(Send(to, message))

    def send_all(self, to: Sequence[ProcessId], message: Wire) -> None:
        self.effects.extend(Send(process, message) for process in to)

    def persist(self, record: Record) -> None:
        self.effects.append(Persist(record, False))

    def snapshot(self, record: Record) -> None:
        self.effects.append(Persist(record, True))

    def set_timer(self, key: TimerKey, after_us: int) -> None:
        self.effects.append(SetTimer(key, after_us))

    def cancel_timer(self, key: TimerKey) -> None:
        raise AssertionError("a log cancels no timer")

    def announce(self, message: AppMessage) -> None:
        raise AssertionError("a log multicasts nothing")

    def deliver(self, position: int, message: AppMessage, final_ts: int | None) -> None:
        raise AssertionError("a log delivers nothing: its decisions return up")

    def opt_deliver(self, position: int, message: AppMessage) -> None:
        raise AssertionError("a log delivers nothing: its decisions return up")

    def restored(self, position: int) -> None:
        raise AssertionError("a log restores nothing: its decisions return up")

    def sent(self, kind: type) -> list[Any]:
        return [e.message for e in self.effects if isinstance(e, Send) and isinstance(e.message, kind)]

    def persisted(self, kind: type) -> list[Any]:
        return [e.record for e in self.effects if isinstance(e, Persist) and isinstance(e.record, kind)]

    def index(self, kind: type) -> int:
        """Where the first record or message of this kind stands."""
        for index, effect in enumerate(self.effects):
            carried = getattr(effect, "record", None) or getattr(effect, "message", None)
            if isinstance(carried, kind):
                return index
        raise AssertionError(f"no {kind.__name__} among {self.effects}")


class Packet(NamedTuple):
    src: ProcessId
    dst: ProcessId
    message: Wire


class Member:
    """A log, the disk below it, and an application above it that keeps all values."""

    def __init__(self, process: ProcessId) -> None:
        self.process = process
        self.log: Log
        self.disk: list[Record] = []
        self.starts = 0
        self.is_up = False
        self.applied: dict[int, bytes] = {}
        self.elected = 0
        self.states = 0  # how often state was handed over
        self.proposing = False
        self.last: int | None = -1  # the last instance handed up, if it is known which

    @property
    def values(self) -> list[Any]:
        """Every entry handed up, in order."""
        return [entry for i in sorted(self.applied) for entry in msgspec.msgpack.decode(self.applied[i])]


class Cluster:
    def __init__(self, size: int, config: PaxosConfig, remote: int = 0, seed: int = 0, at_once: bool = False) -> None:
        self.at_once = at_once  # whether nothing ever waits for a disk
        groups = {GROUP: range(size)} | ({2: range(size, size + remote)} if remote else {})
        self.topology = Topology(groups)
        self.config = config
        self.seed = seed
        self.remote = tuple(range(size, size + remote))
        self.members = [Member(p) for p in range(size + remote)]
        self.wire: list[Packet] = []
        # What any learner was ever handed for an instance; None if it was handed nothing.
        self.truth: dict[int, bytes | None] = {}
        for member in self.members:
            self.start(member.process)

    def __getitem__(self, process: ProcessId) -> Member:
        return self.members[process]

    def log(self, process: ProcessId) -> Any:
        return self.members[process].log

    # -- life

    def start(self, process: ProcessId) -> Box:
        member = self.members[process]
        rng = Random(f"{self.seed}/{process}/{member.starts}")
        if process in self.remote:
            member.log = Learner(GROUP, process, self.topology, self.config)
        else:
            member.log = MultiPaxos(GROUP, process, self.topology, self.config, rng, self.remote)
        member.applied, member.last, member.proposing = {}, -1, False
        if member.starts:
            member.log.recover(list(member.disk))
            member.last = None
        member.starts += 1
        member.is_up = True
        return self.call(process, member.log.on_boot)

    def crash(self, process: ProcessId) -> None:
        self.members[process].is_up = False

    def restart(self, process: ProcessId, with_disk: bool = True) -> Box:
        self.crash(process)
        if not with_disk:
            self.members[process].disk = []
        return self.start(process)

    # -- inputs

    def call(self, process: ProcessId, handler: Callable[..., Any], *args: Any, keep: int | None = None) -> Box:
        """Runs a handler. With `keep`, the process crashes after so many effects."""
        member, box = self.members[process], Box(self.at_once)
        decisions = handler(*args, box) or []
        if keep is not None and keep < len(box.effects):
            self._perform(member, box.effects[:keep])
            self.crash(process)
            return box
        for decision in decisions:
            self._act_on(member, decision, box)
        if any(isinstance(decision, SnapshotDue) for decision in decisions):
            member.log.compact(encode(sorted(member.applied.items())), box)
        self._perform(member, box.effects)
        return box

    def tick(self, process: ProcessId, times: int = 1) -> Box:
        box = Box()
        for _ in range(times):
            box = self.call(process, self.log(process).on_timer, f"log.{GROUP}.tick")
        return box

    def propose(self, process: ProcessId, *entries: Any, lazy: bool = False) -> None:
        for entry in entries:
            self.call(process, lambda box, entry=entry: self.log(process).propose(entry, box, lazy))

    def turn(self, process: ProcessId, keep: int | None = None) -> Box:
        """The end of a turn: the propose timer fires if it was set."""
        if not self[process].proposing:
            return Box()
        self[process].proposing = False
        return self.call(process, self.log(process).on_timer, f"log.{GROUP}.propose", keep=keep)

    def order(self, process: ProcessId, *entries: Any) -> None:
        """One instance with these entries, decided everywhere."""
        self.propose(process, *entries)
        self.turn(process)
        self.drain()

    # -- the wire

    def deliver(self, packet: Packet, keep: int | None = None) -> Box:
        if not self[packet.dst].is_up:
            return Box()
        message = CODEC.decode_message(encode(packet.message))
        return self.call(packet.dst, self.log(packet.dst).on_message, packet.src, message, keep=keep)

    def hand(self, src: ProcessId, dst: ProcessId, message: Wire) -> Box:
        return self.deliver(Packet(src, dst, message))

    def take(self, kind: type, src: ProcessId | None = None, dst: ProcessId | None = None) -> list[Packet]:
        """Takes matching packets off the wire."""
        found = [p for p in self.wire if isinstance(p.message, kind) and src in (None, p.src) and dst in (None, p.dst)]
        self.wire = [p for p in self.wire if p not in found]
        return found

    def round(self) -> None:
        """One message delay: everything on the wire arrives."""
        packets, self.wire = self.wire, []
        for packet in packets:
            self.deliver(packet)

    def drain(self) -> None:
        for _ in range(100):
            if not self.wire:
                return
            self.round()
            for member in self.members:
                if member.is_up:
                    self.turn(member.process)
        raise AssertionError("the members never stop talking")

    # -- effects

    def _perform(self, member: Member, effects: Sequence[Send | Persist | SetTimer]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self.wire.append(Packet(member.process, effect.to, effect.message))
                case Persist():
                    record = CODEC.decode_record(encode(effect.record))
                    member.disk = [record] if effect.is_snapshot else [*member.disk, record]
                case SetTimer():
                    member.proposing |= effect.key.endswith("propose")

    def _act_on(self, member: Member, decision: Any, box: Box) -> None:
        match decision:
            case Decided():
                self._handed(member, decision.instance, decision.value)
            case Elected():
                member.elected += 1
            case StateWanted():
                member.log.send_state(decision.peer, encode(sorted(member.applied.items())), box)
            case StateReceived():
                member.states += 1
                member.applied, member.last = {}, None
                for instance, value in _state.decode(decision.state):
                    self._handed(member, instance, value)
                member.last = None  # instances with nothing may follow the last one of the state

    def _handed(self, member: Member, instance: int, value: bytes) -> None:
        where = f"instance {instance} at process {member.process}"
        assert all(instance > i for i in member.applied), f"{where} came after a later one"
        skipped = range(0) if member.last is None else range(member.last + 1, instance)
        for i, handed in [*((i, None) for i in skipped), (instance, value)]:
            assert self.truth.setdefault(i, handed) == handed, f"{where}: two learners were handed different values"
        member.applied[instance] = value
        member.last = instance


CONFIG = PaxosConfig(tick_us=1, election_ticks=3, retransmit_ticks=2, window=2)


def running(size: int = 3, config: PaxosConfig = CONFIG, remote: int = 0) -> Cluster:
    """A group whose first member leads ballot 0, with nothing under way."""
    cluster = Cluster(size, config, remote)
    cluster.drain()
    return cluster


def elect(cluster: Cluster, process: int) -> None:
    """The others hear no leader for long enough, then this process campaigns."""
    for member in cluster.members:
        if member.is_up and member.process != process:
            cluster.tick(member.process, CONFIG.election_ticks)
    cluster.wire.clear()
    while not cluster.take(Prepare, src=process):
        cluster.tick(process)
    ballot = cluster.log(process)._election.ballot
    for member in cluster.members:
        if member.is_up and member.process != process:
            cluster.hand(process, member.process, Prepare(GROUP, ballot, cluster.log(process)._learner.next))
    cluster.drain()
    assert cluster.log(process).is_leader
