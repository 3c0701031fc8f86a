"""Nodes broken on purpose, each in one small way. If the simulator does not catch one, it has gone blind."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast.core import AppMessage
from amcast.core.ids import SEQ_BITS
from amcast.net.config import Limits
from amcast.net.disk._delivery_files import DeliveryFiles
from amcast.net.disk.records import Durability
from amcast.net.node._client_service import ClientService
from amcast.net.node._exchange import Exchange
from amcast.net.node._keys import Keys
from amcast.net.node.node import Node
from amcast.net.node.results import Results
from amcast.net.system import system
from amcast.net.wire.control import Tell, Told
from amcast.netsim import NodePlan, NodeScenario, fuzz_node_scenario
from amcast.netsim.faults import CutOff, FullDisk, Kill, OldDisk, PauseNode

Break = Callable[[pytest.MonkeyPatch], None]


def _nothing(*args: Any, **named: Any) -> None:
    return None


def unsynced_segments(patch: pytest.MonkeyPatch) -> None:
    """Records are reported as durable when they are written."""
    patch.setattr("amcast.net.disk._writer.sync", _nothing)


def unsynced_folders(patch: pytest.MonkeyPatch) -> None:
    """A file is synced, and renamed, and its new name is not synced."""
    for module in ("files", "_writer", "_recovery", "_segments", "_delivery_files"):
        patch.setattr(f"amcast.net.disk.{module}.sync_folder", _nothing, raising=False)


def snapshot_before_deliveries(patch: pytest.MonkeyPatch) -> None:
    """A snapshot replaces records before the deliveries that they could repeat are durable."""
    patch.setattr("amcast.net.node.server.NodeServer._before_snapshot", _nothing)


def acknowledgement_before_disk(patch: pytest.MonkeyPatch) -> None:
    """What a process issues after a record leaves before the disk has the record."""

    def hold(self: Any, size: int, action: Callable[..., None], *args: Any) -> None:
        action(*args)

    patch.setattr("amcast.net.node._barrier.DiskBarrier.hold", hold)


def swallowed_application_errors(patch: pytest.MonkeyPatch) -> None:
    """A message that the application did not take is left out."""
    from amcast.net.node.application import Host

    apply = Host._apply

    def lenient(self: Any, message: Any, *rest: Any) -> None:
        if self.position % 5 != 3:
            apply(self, message, *rest)
        else:
            self._finish(message, None)

    patch.setattr(Host, "_apply", lenient)


def unsynced_counters(patch: pytest.MonkeyPatch) -> None:
    """Whose folder it is, how often the process was started and what is known of peers: written, and not synced."""

    def write(path: Path, *parts: bytes) -> None:
        fd = system().open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        system().pwrite(fd, b"".join(parts), 0)
        system().close(fd)

    patch.setattr("amcast.net.disk.checked.write_file", write)
    patch.setattr("amcast.net.node._witnesses.write_file", write)


def trusting_hello(patch: pytest.MonkeyPatch) -> None:
    """A process is believed whatever incarnation, boot and records its HELLO tells of."""
    patch.setattr("amcast.net.node._witnesses.Witnesses.doubt", _nothing)


def deliveries_dropped_before_snapshot(patch: pytest.MonkeyPatch) -> None:
    """The delivery log drops messages that the application has not saved the effects of."""

    def kept_from(self: Any, next_: int) -> int:
        return max(0, next_ - self._keep)

    patch.setattr("amcast.net.disk.deliveries.DeliveryLog._kept_from", kept_from)


def forgotten_debts(patch: pytest.MonkeyPatch) -> None:
    """What is decided counts as delivered, also by another group, which may be down."""
    patch.setattr("amcast.protocols._owed.Debt.add", lambda self, owed: False)


def emptied_delivery_logs(patch: pytest.MonkeyPatch) -> None:
    """A replica that is given a state forgets what it had delivered, and nobody fills the gap."""
    begin_at = DeliveryFiles.begin_at

    def begin_anew(self: Any, position: int) -> None:
        begin_at(self, position)
        self.drop_before(position)

    patch.setattr(DeliveryFiles, "begin_at", begin_anew)
    patch.setattr("amcast.net.node._backfill.Backfill._target", lambda self: None)


def believed_clocks(patch: pytest.MonkeyPatch) -> None:
    """A sender's clock is believed whatever it says."""
    patch.setattr("amcast.protocols.optimistic.baseline.believed", lambda time, now_us: time)
    for name in ("TIME_MAX", "BARRIER_MAX"):
        for module in ("proposals", "source"):
            patch.setattr(f"amcast.protocols.optimistic.{module}.{name}", 1 << 62)


def overlooked_boots(patch: pytest.MonkeyPatch) -> None:
    """Of a process that was started again, the collected run has the first boot alone."""
    from amcast.net.trace import _intake

    raw_files = _intake.raw_files

    def first_boots(folder: Path, known: Any) -> Any:
        return [file for file in raw_files(folder, known) if file.boot == 1]

    patch.setattr(_intake, "raw_files", first_boots)


def failing_applications_go_on(patch: pytest.MonkeyPatch) -> None:
    """An application that raises does not stop its node: the rest of the batch is left out."""
    from amcast.net.node.application import ApplicationError, Host

    deliver = Host.deliver_batch

    def lenient(self: Any, first: int, delivered: Any) -> None:
        with suppress(ApplicationError):
            deliver(self, first, delivered)

    patch.setattr(Host, "deliver_batch", lenient)
    patch.setattr(Host, "catch_up", lambda self: False)


def unguarded_layout(patch: pytest.MonkeyPatch) -> None:
    """A folder is used under any layout."""
    patch.setattr("amcast.net.node.data_folder.difference", _nothing)


def unbounded_waiting(patch: pytest.MonkeyPatch) -> None:
    """A node goes on reading, however much waits for its disk."""
    patch.setattr("amcast.net.node.node.Node._regulate", _nothing)


def unbounded_log_of_one(patch: pytest.MonkeyPatch) -> None:
    """A group of one counts the messages since its last snapshot, and not their bytes."""
    from amcast.consensus.solo import Solo

    is_due = Solo._snapshot_if_due

    def without_bytes(self: Any) -> Any:
        self._new_bytes = 0
        return is_due(self)

    patch.setattr(Solo, "_snapshot_if_due", without_bytes)


def unconfirmed_reads(patch: pytest.MonkeyPatch) -> None:
    """A leader that was cut off, and deposed, answers queries as if it led."""
    patch.setattr("amcast.consensus.multipaxos.reads.ReadRounds._is_confirmed", lambda self, round_: True)


@dataclass(frozen=True)
class NodeMutant:
    break_: Break
    kinds: tuple[str, ...]
    seeds: range  # in which it must be caught
    protocol: str = "fastcast"
    durability: Durability = Durability.SYNC
    replicas: int | None = None
    groups: int = 1
    changes: dict[str, Any] = field(default_factory=dict)  # to the random scenario

    @property
    def name(self) -> str:
        return self.break_.__name__

    def scenario(self, seed: int) -> NodeScenario:
        made = fuzz_node_scenario(self.protocol, seed, self.kinds, self.replicas, self.groups, self.durability)
        return msgspec.structs.replace(made, **self.changes)


# While p2 is cut off, p0 and p1 decide. Then p0's disk is set back, and p1 is away: nobody who is there knows what they
# decided. Only p2 can tell that p0 has been further.
SET_BACK = NodePlan(
    (
        CutOff(300_000, ("g1.p2",), 900_000),
        OldDisk(1_100_000, "g1.p0", 20_000, None, 250_000),
        Kill(1_100_000, "g1.p1", 1_500_000),
    )
)

# Each member is away for long enough to be given a state when it comes back.
ONE_BY_ONE = NodePlan(tuple(Kill(150_000 + 550_000 * index, f"g1.p{index}", 450_000) for index in range(3)))

# More than what is checked beside any limit: 300 messages of 15 kB each, on average.
HEAVY = {"messages": 300, "payload_bytes": 30_000, "interval_us": 5_000, "clients": 1, "window_bytes": 256 << 10}
FULL_DISK = NodePlan((FullDisk(100_000, "g1.p2", 0, 3_000_000),))


# Most messages go to both groups, a few at a time.
TOGETHER = {"dst_max": 2, "messages": 40, "interval_us": 60_000}


def recomputed_results(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks again gets what the application would answer now."""

    def find(self: Results, id_: int) -> tuple[bool, bytes | None]:
        known = self._senders.get(id_ >> SEQ_BITS)
        return (False, None) if known is None else (True, known.results[max(known.results)])

    patch.setattr(Results, "find", find)
    patch.setattr(Node, "on_results", lambda *_: None)


def hasty_results(patch: pytest.MonkeyPatch) -> None:
    """A result is dropped when the sender's next message is executed, whether or not the sender has it."""
    original = Results.add_all

    def add_all(self: Results, messages: list[AppMessage], results: list[bytes | None]) -> None:
        for message, result in zip(messages, results, strict=True):
            original(self, [msgspec.structs.replace(message, settled=message.seq)], [result])
            for known in self._senders.values():
                self._drop_settled(known)

    patch.setattr(Results, "add_all", add_all)
    patch.setattr(Node, "on_results", lambda *_: None)


def told_later(patch: pytest.MonkeyPatch) -> None:
    """Who asks what a group read for a message is told what it read for its latest one."""
    made = Exchange.__init__

    def init(self: Any, members: Any, send: Any, speaks: Any, *rest: Any) -> None:
        made(self, members, send, lambda: False, *rest)

    def on_tell(self: Any, sender: Any, pair: Any, tell: Any) -> None:
        if tell.wants and pair.first + len(pair.values) > tell.executed:
            self._say((sender,), Told(tell.executed, (pair.values[-1],), pair.first))

    patch.setattr(Exchange, "__init__", init)
    patch.setattr(Exchange, "_on_tell", on_tell)


def words_left_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    """What other groups were told is not in the application's snapshots."""
    dump = Exchange.dump

    def without_values(self: Any) -> Any:
        return {group: (executed, executed, ()) for group, (executed, _, _) in dump(self).items()}

    patch.setattr(Exchange, "dump", without_values)


def words_forgotten_early(patch: pytest.MonkeyPatch) -> None:
    """What another group was told is forgotten as soon as one of its members says that it needs it no longer."""
    patch.setattr(Exchange, "_forget", lambda self, pair: pair.forget_below(max(pair.durable.values())))
    patch.setattr(Exchange, "_report", lambda self, pair, wants=False: Tell(pair.executed, pair.executed, wants))


def impatient_groups(patch: pytest.MonkeyPatch) -> None:
    """A group executes a message without what other groups have not told yet."""
    hear = Exchange.hear

    def at_once(self: Any, groups: Any) -> Any:
        found = hear(self, groups)
        if found is None:
            for group in groups:
                pair = self._pairs[group]
                pair.heard.setdefault(pair.executed, b"")
            found = hear(self, groups)
        return found

    patch.setattr(Exchange, "hear", at_once)


def forgotten_keys(patch: pytest.MonkeyPatch) -> None:
    """Keys are not in the application's snapshots."""
    patch.setattr(Keys, "dump", lambda self: b"")


def skip_of_one_replica(patch: pytest.MonkeyPatch) -> None:
    """A leader that is asked to skip a message does so by itself, and does not ask its group."""

    def problem(self: Any, position: int, dst: Any) -> str:
        host = self._node.application
        if self._node._leads:
            host.skips._decided.add(position)
            host._go_on()
        return "it is done"

    patch.setattr(ClientService, "_problem_with_skip", problem)


def skips_overlooked(patch: pytest.MonkeyPatch) -> None:
    """A node that starts again does not look for decisions before it executes what is in its log."""
    patch.setattr("amcast.net.node.application.Host._look_for_skips", lambda self: False)


# The leader of g1 is paused, and then cut off from its peers together with a client. The others elect another leader,
# and the first one does not know that for a while: it counts its own ticks.
# p0 sleeps until clients have sent again what it did not answer. It wakes up cut off, with one client, who only asks.
DEPOSED = NodePlan((CutOff(300_000, ("g1.p0", "c3"), 2_100_000), PauseNode(300_000, "g1.p0", 1_500_000)))
READING: dict[str, Any] = {"queries": 8.0, "clients": 3, "readers": 1, "dst_max": 1, "limits": Limits()}


MUTANTS = (
    NodeMutant(told_later, ("kill",), range(10), groups=2, changes=TOGETHER),
    NodeMutant(words_left_out_of_snapshots, ("group-down",), range(20), groups=2, changes=TOGETHER),
    NodeMutant(words_forgotten_early, ("group-down",), range(50, 60), groups=2, changes=TOGETHER),
    NodeMutant(impatient_groups, (), range(5), groups=2, changes=TOGETHER),
    NodeMutant(forgotten_keys, ("kill",), range(20)),
    NodeMutant(skip_of_one_replica, ("poison",), range(5)),
    NodeMutant(skips_overlooked, ("poison", "kill"), range(20)),
    NodeMutant(unsynced_segments, ("group-down", "power-loss"), range(20)),
    NodeMutant(unsynced_folders, ("group-down", "power-loss"), range(20)),
    NodeMutant(snapshot_before_deliveries, ("group-down", "power-loss"), range(20)),
    NodeMutant(acknowledgement_before_disk, ("group-down", "power-loss"), range(166, 176)),
    NodeMutant(swallowed_application_errors, ("kill",), range(10)),
    NodeMutant(unsynced_counters, ("power-loss",), range(20)),
    NodeMutant(trusting_hello, (), range(6), changes={"plan": SET_BACK}),
    NodeMutant(deliveries_dropped_before_snapshot, ("kill",), range(20), "skeen", replicas=1),
    NodeMutant(forgotten_debts, ("group-down",), range(20), "multipaxos", groups=2),
    NodeMutant(emptied_delivery_logs, (), range(6), changes={"plan": ONE_BY_ONE}),
    NodeMutant(believed_clocks, ("client-clock",), range(10), "oam-baseline"),
    NodeMutant(overlooked_boots, ("kill",), range(10)),
    NodeMutant(recomputed_results, ("kill",), range(10)),
    NodeMutant(hasty_results, ("kill",), range(10)),
    NodeMutant(failing_applications_go_on, ("application",), range(10)),
    NodeMutant(unguarded_layout, ("layout",), range(4)),
    NodeMutant(
        unconfirmed_reads,
        (),
        range(3),
        "basecast",
        groups=2,
        changes={
            **READING,
            "messages": 30,
            "interval_us": 250_000,
            "options": {"paxos": {"tick_us": 40_000, "election_ticks": 3}, "resend_us": 60_000},
            "plan": DEPOSED,
        },
    ),
    NodeMutant(
        unbounded_waiting,
        (),
        range(1),
        changes={**HEAVY, "plan": FULL_DISK, "limits": Limits(undurable_bytes=1_000), "options": {}},
    ),
    NodeMutant(
        unbounded_log_of_one,
        (),
        range(1),
        "skeen",
        replicas=1,
        changes={**HEAVY, "options": {"paxos": {"snapshot_bytes": 1_000}, "history_max": 4}, "limits": Limits()},
    ),
)
