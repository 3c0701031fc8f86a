"""A remote learner that keeps what it learned: a restart needs nothing that it held from the group again.

    the group                remote learner
       |--2a, 2b------------------>|   decided: handed up
       |                           |   and written down; from then on it holds the instance
       |--HEARTBEAT--------------->|
       |<--heartbeat-ack-----------|   with how much of the log it holds

The layer above says when: `hold` after it has acted on decisions, before it tells anyone that it has them. A snapshot
holds them as well, and replaces the records before it; so does state that another process handed over, at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core import GroupId, Outbox, ProcessId, Record, Topology
from ..base import Decided, Decision, SnapshotDue
from .config import PaxosConfig
from .learner import Learner
from .messages import LearnedRecord, LearnerRecord, State


class RemoteLearner(Learner):
    def __init__(self, group: GroupId, process: ProcessId, topology: Topology, config: PaxosConfig) -> None:
        super().__init__(group, process, topology, config)
        self._held_next = 0  # instances below are on this process's disk

    @property
    def durable_next(self) -> int:
        return self._held_next

    def recover(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, LearnerRecord):
                self.recover_from(record)
            elif isinstance(record, LearnedRecord):
                self._recover_learned(record)
        self.floor = self._held_next = self.next

    def _recover_learned(self, record: LearnedRecord) -> None:
        assert record.instance >= self.next, "records are written in the order of instances"
        self._recovered.append(Decided(record.instance, record.value))
        self._handed_bytes += len(record.value)
        self.next = record.instance + 1

    def hold(self, decisions: Sequence[Decision], out: Outbox) -> None:
        """Makes durable what these decisions handed up; nothing is left to do if a snapshot followed them."""
        for decision in decisions:
            if isinstance(decision, Decided) and decision.instance >= self._held_next:
                out.persist(LearnedRecord(decision.instance, decision.value))
        self._held_next = max(self._held_next, self.next)

    def compact(self, state: bytes, out: Outbox) -> None:
        super().compact(state, out)
        self._held_next = self.next

    def on_state(self, sender: ProcessId, message: State, out: Outbox) -> list[Decision]:
        decisions = super().on_state(sender, message, out)
        is_due = bool(decisions) and not isinstance(decisions[-1], SnapshotDue)
        return [*decisions, SnapshotDue()] if is_due else decisions
