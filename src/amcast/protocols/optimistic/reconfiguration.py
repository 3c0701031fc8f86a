"""Reconfiguration (section V of the paper): groups join and leave the senders to a group while messages flow.

    joiner x                  group h, which x has a message for
       |--JOIN-REQUEST------------->|   for the count-th time
       |                            |   h's log orders Admit: from there on h waits for x's barriers
       |<--JOIN-RESPONSE------------|   since when, and who else sends to h
       |  x's log orders Join: x's clock is above that time, and x sends to h from there on
       |                            |--SENDERS-TO-->   h tells all its senders who the others are

A group that has sent nothing for a while leaves: its log orders Leave, and from there on nobody waits for it. Who sends
to whom is therefore decided by two logs, h's and x's, and kept by the merger, in its sources and admissions. Here is
only what a leader has under way: a new leader begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...consensus import MultiPaxos
from ...core import GroupId, Outbox, ProcessId, Timestamp, Topology, clock_of
from .merge import Admission, Merger
from .messages import Admit, Join, JoinRequest, JoinResponse, Leave, SendersTo, Time
from .source import Link


class Reconfiguration:
    def __init__(
        self,
        group: GroupId,
        topology: Topology,
        initial: Mapping[GroupId, tuple[GroupId, ...]],
        log: MultiPaxos,
        merger: Merger,
    ) -> None:
        self._group = group
        self._topology = topology
        self._initial = initial  # sendersTo at the start
        self._log = log
        self._merger = merger
        # What other groups said of their senders, each with the position in its log: a later one replaces it.
        self._senders_to: dict[GroupId, tuple[int, tuple[GroupId, ...]]] = {}
        # While this process leads:
        self._proposed: set[tuple[type, GroupId, int]] = set()
        self._wanted: dict[GroupId, None] = {}  # groups that messages wait to be sent to
        self.used_at: dict[GroupId, Time] = {}  # when it last sent to a group
        self.update_receivers()

    def senders_of(self, group: GroupId) -> tuple[GroupId, ...]:
        """sendersTo, as far as this process knows."""
        if group == self._group:
            return self._merger.senders()
        heard = self._senders_to.get(group)
        return self._initial[group] if heard is None else heard[1]

    def on_elected(self) -> None:
        self._proposed, self._wanted, self.used_at = set(), {}, {}

    def _propose_once(self, entry: Admit | Join | Leave, out: Outbox) -> None:
        count = 0 if isinstance(entry, Leave) else entry.count
        key = (type(entry), entry.group, count)
        if self._log.is_leader and key not in self._proposed:
            self._proposed.add(key)
            self._log.propose(entry, out)

    # -- this group joins and leaves others

    def want(self, groups: list[GroupId], out: Outbox) -> None:
        """A message waits until this group sends to these ones."""
        for group in groups:
            if group not in self._wanted:
                self._wanted[group] = None
                self._ask_to_join(group, out)

    def ask_again(self, out: Outbox) -> None:
        for group in self._wanted:
            self._ask_to_join(group, out)

    def _ask_to_join(self, group: GroupId, out: Outbox) -> None:
        link = self._merger.own.links.get(group, Link())
        out.send_all(self._topology.members(group), JoinRequest(self._group, link.count + 1))

    def on_join_response(self, sender: ProcessId, response: JoinResponse, out: Outbox) -> None:
        if self._topology.group_of(sender) == response.group:
            link = self._merger.own.links.get(response.group, Link())
            if not link.joined and response.count == link.count + 1:
                self._senders_to.setdefault(response.group, (0, response.senders))
                self._propose_once(Join(response.group, response.count, response.time), out)

    def on_senders_to(self, sender: ProcessId, message: SendersTo) -> None:
        if self._topology.group_of(sender) == message.group:
            heard = self._senders_to.get(message.group)
            if heard is None or heard[0] < message.version:
                self._senders_to[message.group] = (message.version, message.senders)

    def on_own_link(self, group: GroupId, out: Outbox) -> None:
        """This group's log says that it joined or left the senders to another one."""
        self._wanted.pop(group, None)
        self.used_at[group] = out.now_us
        self._proposed.discard((Leave, group, 0))
        self.update_receivers()

    def on_leap(self) -> None:
        """Another replica's state may hold joins that this one asked for: those groups are no longer wanted."""
        self._wanted = {group: None for group in self._wanted if not self._merger.own.reaches(group)}
        self.update_receivers()

    def update_receivers(self) -> None:
        """Who follows this group's log: the groups that it sends to, and those it left until they know."""
        learners: list[ProcessId] = []
        for group in sorted(self._merger.own.links):
            link = self._merger.own.links[group]
            kept = self._merger.kept.get(group)
            if link.joined or (link.count and (kept is None or kept.floor <= link.left_at)):
                learners += self._topology.members(group)
        self._log.serve(learners)

    def on_acknowledged(self, group: GroupId) -> None:
        """A group that this one left may know it now."""
        link = self._merger.own.links.get(group)
        if link is not None and not link.joined:
            self.update_receivers()

    def leave_idle(self, idle_us: int, needed: Collection[GroupId], out: Outbox) -> None:
        """Leaves the groups that were sent nothing for so long, but those that messages wait to be sent to."""
        now = out.now_us
        for group, link in self._merger.own.links.items():
            unused_us = now - self.used_at.setdefault(group, now)
            if link.joined and unused_us >= idle_us and group not in needed:
                self._propose_once(Leave(group), out)

    # -- others join and leave this group

    def on_join_request(self, sender: ProcessId, request: JoinRequest, out: Outbox) -> None:
        if self._topology.group_of(sender) != request.group:
            return
        admission = self._merger.admissions.get(request.group, Admission())
        if request.count == admission.count + 1:
            self._propose_once(Admit(request.group, request.count), out)
        elif request.count == admission.count:
            self.respond_to_join(request.group, out)

    def on_admit(self, entry: Admit, ts: Timestamp, out: Outbox) -> None:
        if self._merger.admit(entry.group, entry.count, ts) and self._log.is_leader:
            self.respond_to_join(entry.group, out)
            self.tell_senders(out)

    def respond_to_join(self, group: GroupId, out: Outbox) -> None:
        admission = self._merger.admissions[group]
        since = admission.since.get(admission.count)
        if since is not None:
            response = JoinResponse(self._group, admission.count, clock_of(since), self._merger.senders())
            out.send_all(self._topology.members(group), response)

    def tell_senders(self, out: Outbox) -> None:
        """All senders to this group must know each other, to ask each other for barriers."""
        senders = self._merger.senders()
        for group in senders:
            if group != self._group:
                out.send_all(self._topology.members(group), SendersTo(self._group, self._merger.own.position, senders))
