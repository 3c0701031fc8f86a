"""What simulated clients did with objects, and were answered: the table `operations` of runs of GeoPaxos.

Every replica has a store of its own (`amcast.apps.store`) and executes what it delivers. An answer is what the store of
the replica that gave it said. So a replica that executes in another order, or lags when it answers a read, is caught by
a wrong answer, as on a cluster.

A state that a replica receives in place of deliveries covers what its group delivered before: its store executes that
from the deliveries of the group's other members.
"""

from __future__ import annotations

from ..apps.store import Meaning, Store, meaning_of, operation_of, result_in
from ..core import AppMessage, GroupId, MessageId, ProcessId, Topology
from ..trace import Recorder


class _Replica:
    def __init__(self, group: GroupId) -> None:
        self.group = group
        self.store = Store()
        self.executed = 0  # positions
        self.answers: dict[MessageId, bytes] = {}


class History:
    def __init__(self, topology: Topology, recorder: Recorder) -> None:
        self._recorder = recorder
        self._replicas: dict[ProcessId, _Replica] = {}
        for group in topology.groups:
            for process in topology.members(group):
                self._replicas[process] = _Replica(group)
        self._delivered: dict[GroupId, dict[int, AppMessage]] = {group: {} for group in topology.groups}
        self._open: dict[MessageId, tuple[int, Meaning]] = {}  # operations without an answer: the row, what it is
        self._names: dict[str, None] = {}  # objects that somebody has used
        self._reads: dict[tuple[ProcessId, int], tuple[str, int]] = {}  # the object, and since when

    def called(self, message: AppMessage, now_us: int) -> None:
        meaning = meaning_of(message.payload)
        if meaning is None:
            return
        row = self._recorder.operation(message.sender, now_us, None, *meaning[:2], None, meaning.objects)
        self._open[message.id] = row, meaning
        self._names.update(dict.fromkeys(meaning.objects))

    def executed(self, process: ProcessId, position: int, message: AppMessage) -> None:
        replica = self._replicas[process]
        self._delivered[replica.group].setdefault(position, message)
        self._execute(replica, position, message)

    def _execute(self, replica: _Replica, position: int, message: AppMessage) -> None:
        replica.executed = position + 1
        answer = replica.store.execute(message.payload)
        if message.id in self._open:
            replica.answers[message.id] = answer

    def restored(self, process: ProcessId, position: int) -> None:
        """`position`: all below are covered by the state. Whoever gave it has delivered them."""
        replica = self._replicas[process]
        for each in range(replica.executed, position):
            self._execute(replica, each, self._delivered[replica.group][each])

    def answered(self, id_: MessageId, replica: ProcessId, now_us: int) -> None:
        if id_ not in self._open:
            return
        row, meaning = self._open.pop(id_)
        answer = self._replicas[replica].answers.get(id_)
        assert answer is not None, "a replica that answers has executed the operation"
        self._recorder.operation_answered(row, now_us, result_in(answer, meaning))
        for each in self._replicas.values():
            each.answers.pop(id_, None)

    # -- reads that are not ordered

    def read(self, process: ProcessId, read: int, now_us: int) -> None:
        if self._names:
            self._reads[process, read] = list(self._names)[read % len(self._names)], now_us

    def read_answered(self, process: ProcessId, read: int, now_us: int) -> None:
        """A read that is never answered changes nothing: it is left out."""
        asked = self._reads.pop((process, read), None)
        if asked is not None:
            name, since_us = asked
            payload = operation_of([("get", name)])
            meaning = meaning_of(payload)
            assert meaning is not None
            result = result_in(self._replicas[process].store.execute(payload), meaning)
            self._recorder.operation(process, since_us, now_us, *meaning[:2], result, meaning.objects)

    def restarted(self, process: ProcessId) -> None:
        self._reads = {asked: what for asked, what in self._reads.items() if asked[0] != process}
