"""The watch: observes a simulated run, records its trace, and counts what correct processes still have to deliver."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence

import msgspec

from ..core import AppMessage, GroupId, MessageId, ProcessId, Timestamp, message_id, sender_of
from ..trace import FINAL, OPTIMISTIC, Recorder
from .application import execution_of
from .engine import EventLoop
from .history import History
from .scenario import Scenario

_SKIPPED = -1  # nothing was delivered at this position: a state that the process received covers it

Listener = Callable[[ProcessId, AppMessage, bool], None]  # process, message, whether it is an optimistic delivery


class FinalDeliveries:
    """What a process delivered, to compare it with what the process delivers again after a restart."""

    __slots__ = ("_ts", "ids")

    def __init__(self) -> None:
        self.ids = array("q")
        self._ts = array("q")

    def repeats(self, position: int, id_: MessageId, ts: Timestamp | None) -> bool:
        """Takes in a delivery. True if it was made before, or if a state that was received covers its position."""
        stamp = _SKIPPED if ts is None else ts
        if position < len(self.ids):
            return self.ids[position] == _SKIPPED or (self.ids[position] == id_ and self._ts[position] == stamp)
        self.skip_to(position)
        self.ids.append(id_)
        self._ts.append(stamp)
        return False

    def skip_to(self, position: int) -> None:
        missing = position - len(self.ids)
        self.ids.extend([_SKIPPED] * missing)
        self._ts.extend([_SKIPPED] * missing)


class OptimisticDeliveries:
    """What a process delivered optimistically, in all its boots.

    After a restart a process knows nothing of its earlier guesses. It counts their positions from 0 again, and may
    guess messages that it delivered before, optimistically or finally. The application had these already: they are left
    out, and the others get positions after the guesses of earlier boots.
    """

    def __init__(self) -> None:
        self._ids = array("q")
        self._before: frozenset[MessageId] = frozenset()  # delivered in earlier boots, optimistically or finally
        self._first = 0  # what is added to positions of this boot: the guesses before it, less those that were left out

    def begin_boot(self, final: FinalDeliveries | None) -> None:
        self._before = frozenset(self._ids) | frozenset(() if final is None else final.ids)
        self._first = len(self._ids)

    def position(self, position: int, id_: MessageId) -> int | None:
        """Its position among the guesses of all boots; None if it is left out."""
        if id_ in self._before:
            self._first -= 1
            return None
        self._ids.append(id_)
        return self._first + position


class Watch:
    def __init__(self, scenario: Scenario, loop: EventLoop, recorder: Recorder) -> None:
        self._topology = scenario.topology()
        self._objects_of = scenario.spec().objects_of
        self._loop = loop
        self._recorder = recorder
        self._history = History(self._topology, recorder) if self._objects_of is not None else None
        traitors = scenario.plan.traitors().keys()
        doomed = scenario.plan.permanently_down() | traitors
        self._traitors = frozenset(traitors)
        self._liars = scenario.plan.liars() | traitors
        self.execution = execution_of(scenario.workload, scenario.spec(), self._topology, self._traitors)
        self._lies: dict[tuple[MessageId, tuple[GroupId, ...], bytes], MessageId] = {}
        self._doomed = doomed | self._liars
        self.correct = tuple(p for p in self._topology.processes if p not in doomed)
        self._owing = {
            group: sum(p not in doomed for p in self._topology.members(group)) for group in self._topology.groups
        }
        self._group_of = {p: self._topology.group_of(p) for p in self._topology.processes}
        self._is_correct = {p: p not in doomed for p in self._topology.processes}
        self._final: dict[ProcessId, FinalDeliveries] = {}
        self._optimistic: dict[ProcessId, OptimisticDeliveries] = {}
        self.sent: dict[MessageId, tuple[GroupId, ...]] = {}
        self._owed_messages: set[MessageId] = set()
        self.owed = 0
        self.deliveries = 0
        self.record_wire = self._record_wire if self._liars else recorder.wire
        self.listener: Listener | None = None  # told of each delivery once, as an application would be
        self.progress_us = 0
        self.reads: dict[ProcessId, dict[int, int]] = {}  # those that are not done: the least that each has to show
        self.reads_done = 0

    def _true_id(self, message: AppMessage) -> MessageId:
        """The id in the trace. A client that lies may give one id to many messages: there each has one of its own."""
        if message.sender not in self._liars:
            return message.id
        key = (message.id, message.dst, message.payload)
        return self._lies.setdefault(key, message_id(message.sender, len(self._lies)))

    def saw_multicast(self, process: ProcessId, message: AppMessage) -> None:
        seq = message.seq
        if process in self._liars:
            id_ = self._true_id(message)
            if id_ in self.sent or message.sender != process:
                return
            message, seq = msgspec.structs.replace(message, id=id_), 0  # its numbers say nothing about an order
        self._recorder.multicast(message.id, process, seq, message.dst, self._loop.now, len(message.payload))
        if self._objects_of is not None:
            self._recorder.touches(message.id, self._objects_of(message))
        if self._history is not None:
            self._history.called(message, self._loop.now)
        self.sent[message.id] = message.dst
        self.progress_us = self._loop.now
        if process not in self._doomed:
            self._owe(message.id, message.dst)

    def _owe(self, id_: MessageId, dst: tuple[GroupId, ...]) -> None:
        self._owed_messages.add(id_)
        self.owed += sum(self._owing[group] for group in dst)

    def saw_delivery(
        self, process: ProcessId, position: int, message: AppMessage, ts: Timestamp | None, optimistic: bool
    ) -> None:
        if self._liars:
            message = msgspec.structs.replace(message, id=self._true_id(message))
        if optimistic:
            self._saw_guess(process, position, message)
            return
        final = self._final.get(process)
        if final is None:
            final = self._final[process] = FinalDeliveries()
        if final.repeats(position, message.id, ts):
            return
        self._record(process, position, message, FINAL, ts)
        if self._history is not None:
            self._history.executed(process, position, message)
        if self.execution is not None:
            self.execution.executed(process, position, message)
        if message.id not in self._owed_messages:
            self._owe(message.id, message.dst)
        if self._is_correct[process]:
            self.owed -= 1

    def _saw_guess(self, process: ProcessId, position: int, message: AppMessage) -> None:
        optimistic = self._optimistic.get(process)
        if optimistic is None:
            optimistic = self._optimistic[process] = OptimisticDeliveries()
        place = optimistic.position(position, message.id)
        if place is not None:
            self._record(process, place, message, OPTIMISTIC, None)

    def _record(self, process: ProcessId, position: int, message: AppMessage, kind: int, ts: Timestamp | None) -> None:
        self.deliveries += 1
        self.progress_us = self._loop.now
        group = self._group_of[process]
        assert group is not None
        self._recorder.delivery(process, group, position, message.id, kind, ts, self._loop.now)
        if self.listener is not None:
            self.listener(process, message, kind == OPTIMISTIC)

    def saw_answers(self, messages: Sequence[AppMessage], replica: ProcessId) -> None:
        """A client has the replies of all destination groups of these messages, the last of them from this replica."""
        for message in messages:
            self._recorder.answer(message.id, self._loop.now)
            if self._history is not None:
                self._history.answered(message.id, replica, self._loop.now)

    def saw_restart(self, process: ProcessId) -> None:
        self.reads.pop(process, None)
        if self._history is not None:
            self._history.restarted(process)
        if process in self._group_of:
            self._optimistic.setdefault(process, OptimisticDeliveries()).begin_boot(self._final.get(process))

    def saw_read(self, process: ProcessId, read: int) -> None:
        """It has to show whatever any member of the group has delivered by now."""
        if process in self._traitors:
            return
        group = self._group_of[process]
        assert group is not None
        ends = [len(self._final[p].ids) for p in self._topology.members(group) if p in self._final]
        self.reads.setdefault(process, {})[read] = max(ends, default=0)
        if self._history is not None:
            self._history.read(process, read, self._loop.now)

    def saw_readable(self, process: ProcessId, read: int, position: int) -> None:
        begun = self.reads.get(process, {})
        for each in [each for each in begun if each <= read]:
            wanted = begun.pop(each)
            assert position >= wanted, f"a read shows positions below {position}, and {wanted - 1} was delivered before"
            self.reads_done += 1
            if self._history is not None:
                self._history.read_answered(process, each, self._loop.now)

    def saw_restored(self, process: ProcessId, position: int) -> None:
        if process in self._traitors:
            return
        final = self._final.setdefault(process, FinalDeliveries())
        if position > len(final.ids):
            self.owed -= position - len(final.ids) if self._is_correct[process] else 0
            final.skip_to(position)
            if self._history is not None:
                self._history.restored(process, position)
            if self.execution is not None:
                self.execution.restored(process, position)
            self._recorder.fault(process, self._loop.now, "restored", json.dumps({"position": position}))

    def _record_wire(
        self,
        src: ProcessId,
        dst: ProcessId,
        kind: str,
        msg: MessageId | None,
        nbytes: int,
        sent_us: int,
        received_us: int | None,
    ) -> None:
        """Nobody can tell whom a message with a liar's id concerns: such rows are left out."""
        if src not in self._liars and dst not in self._liars and (msg is None or sender_of(msg) not in self._liars):
            self._recorder.wire(src, dst, kind, msg, nbytes, sent_us, received_us)

    def saw_wire(
        self,
        src: ProcessId,
        dst: ProcessId,
        kind: str,
        about: tuple[MessageId, ...],
        size: int,
        sent: int,
        received: int | None,
    ) -> None:
        if len(about) < 2:
            self.record_wire(src, dst, kind, about[0] if about else None, size, sent, received)
            return
        # One row for each message that the frame is about; they share its bytes.
        each, more = divmod(size, len(about))
        for index, id_ in enumerate(about):
            self.record_wire(src, dst, kind, id_, each + (index < more), sent, received)

    def delivered(self, process: ProcessId) -> list[MessageId]:
        """What a process delivered, in its order."""
        final = self._final.get(process)
        return [] if final is None else [id_ for id_ in final.ids if id_ != _SKIPPED]

    def stuck(self) -> tuple[MessageId, ...]:
        """The messages that some correct process still has to deliver, oldest first."""
        missing = []
        delivered = {process: set(self.delivered(process)) for process in self.correct}
        for id_ in self.sent:
            if id_ in self._owed_messages:
                members = [p for group in self.sent[id_] for p in self._topology.members(group)]
                if any(self._is_correct[p] and id_ not in delivered[p] for p in members):
                    missing.append(id_)
        return tuple(missing)
