"""The audience of a group's log: the other members, and processes of other groups that follow it (remote learners).

Every member knows its audience: leaders send proposals to it, acceptors their votes, and whoever is asked repeats what
was decided. With a projection, other groups get to see only what concerns them of each value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core import GroupId, Outbox, ProcessId, Topology
from .config import PaxosConfig
from .learner import Learner
from .messages import Accept, Ballot, CatchUp, Learn, has_entries

Projection = Callable[[bytes, GroupId], bytes]  # a value, as the processes of another group get to see it


class Audience:
    def __init__(
        self,
        topology: Topology,
        config: PaxosConfig,
        learner: Learner,
        remote: Sequence[ProcessId],
        projection: Projection | None,
    ) -> None:
        self._topology = topology
        self._config = config
        self._learner = learner
        self._projection = projection
        self.remote = tuple(remote)
        self._remote_groups: dict[GroupId, list[ProcessId]] = {}

    def serve(self, remote: Sequence[ProcessId]) -> None:
        """From now on these processes of other groups follow the log."""
        self.remote = tuple(remote)
        self._remote_groups = {}
        for process in remote:
            group = self._topology.group_of(process)
            assert group is not None, "learners are members of groups"
            self._remote_groups.setdefault(group, []).append(process)

    def all(self) -> tuple[ProcessId, ...]:
        """Everyone else who is sent 2a and 2b."""
        return self._learner.others + self.remote

    def send_accept(self, ballot: Ballot, instance: int, value: bytes, out: Outbox) -> None:
        group, voted = self._learner.group, out.persists_at_once
        if self._projection is None:
            out.send_all(self.all(), Accept(group, ballot, instance, value, voted))
            return
        out.send_all(self._learner.others, Accept(group, ballot, instance, value, voted))
        for remote_group, learners in self._remote_groups.items():
            seen = self._projection(value, remote_group) if has_entries(value) else value
            out.send_all(learners, Accept(group, ballot, instance, seen, voted))

    def answer(self, learner: ProcessId, question: CatchUp, out: Outbox) -> bool:
        """Sends values to a learner that lags; False if it needs some that were forgotten: only state helps it."""
        first, learned = question.first, self._learner
        if first < learned.floor:
            return False
        last = min(learned.next, first + self._config.learn_chunk)
        if first < last:
            out.send(learner, Learn(learned.group, first, self._values_for(learner, range(first, last))))
        return True

    def _values_for(self, learner: ProcessId, instances: range) -> tuple[bytes, ...]:
        """As many as one answer has room for."""
        group = self._topology.group_of(learner)
        projection = None if group == self._learner.group else self._projection
        values: list[bytes] = []
        size = 0
        for instance in instances:
            value = self._learner.slots[instance].value
            if projection is not None and group is not None and has_entries(value):
                value = projection(value, group)
            values.append(value)
            size += len(value)
            if size >= self._config.learn_bytes:
                break
        return tuple(values)
