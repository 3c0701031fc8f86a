"""The topology of a system: groups of processes, clients, and the region of each of them.

Topology is data that may change: protocols ask it each time and keep no copy of a group's members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .errors import UsageError
from .ids import GROUP_ID_LIMIT, PROCESS_ID_LIMIT, GroupId, ProcessId, client_name, process_label


class Topology:
    def __init__(
        self,
        groups: Mapping[GroupId, Sequence[ProcessId]],
        clients: Sequence[ProcessId] = (),
        regions: Mapping[ProcessId, str] | None = None,
        elsewhere: str = "local",
    ) -> None:
        """`elsewhere` is the region of whoever `regions` does not list, such as the clients of one program."""
        self._groups = {group: tuple(members) for group, members in sorted(groups.items())}
        self._clients = tuple(clients)
        self._regions = dict(regions or {})
        self._elsewhere = elsewhere
        self._group_ids = tuple(self._groups)
        self._group_of: dict[ProcessId, GroupId] = {}
        for group, members in self._groups.items():
            if not 0 < group < GROUP_ID_LIMIT:
                raise UsageError(f"group id {group} is out of range: use 1 to {GROUP_ID_LIMIT - 1}")
            if not members:
                raise UsageError(f"group g{group} has no members: give it at least one process")
            for process in members:
                if process in self._group_of:
                    raise UsageError(f"process {process} is named twice: groups must be disjoint")
                self._group_of[process] = group
        for process in (*self._group_of, *self._clients):
            if not 0 <= process < PROCESS_ID_LIMIT:
                raise UsageError(f"process id {process} is out of range: use 0 to {PROCESS_ID_LIMIT - 1}")
        if set(self._clients) & set(self._group_of) or len(set(self._clients)) != len(self._clients):
            raise UsageError("a client has an id of its own: it is neither a member of a group nor named twice")
        if not self._groups:
            raise UsageError("there is no group: a topology needs at least one")

    @property
    def groups(self) -> tuple[GroupId, ...]:
        return self._group_ids

    @property
    def clients(self) -> tuple[ProcessId, ...]:
        return self._clients

    @property
    def processes(self) -> tuple[ProcessId, ...]:
        """The members of all groups, without the clients."""
        return tuple(self._group_of)

    def members(self, group: GroupId) -> tuple[ProcessId, ...]:
        return self._groups[group]

    def has_group(self, group: GroupId) -> bool:
        return group in self._groups

    def group_of(self, process: ProcessId) -> GroupId | None:
        """None for a client."""
        return self._group_of.get(process)

    def region(self, process: ProcessId) -> str:
        return self._regions.get(process, self._elsewhere)

    def name(self, process: ProcessId) -> str:
        group = self._group_of.get(process)
        if group is None:
            return client_name(process)
        return process_label(group, self._groups[group].index(process))

    def check_destinations(self, dst: Sequence[GroupId]) -> None:
        for group in dst:
            if group not in self._groups:
                known = f"g{self.groups[0]} to g{self.groups[-1]}"
                raise UsageError(f"there is no group g{group} to send to: this topology has {known}")


def grid(
    groups: int,
    replicas: int,
    clients: int = 0,
    regions: Sequence[str] = (),
    spread: bool = True,
    client_region: str | None = None,
    homes: int = 0,
) -> Topology:
    """`groups` groups of `replicas` processes, with ids 0, 1, 2, ...; the clients have the ids after them.

    With `spread`, the replicas of each group are in different regions, so that the group survives the loss of one;
    without, all replicas of a group are in the same region. Clients take the regions in turn, unless all are in one.
    With `homes`, they take the first so many groups in turn instead, where each group is in one region.
    """
    if groups < 1 or replicas < 1:
        raise UsageError("a topology needs at least one group and one replica in each")
    members = {g + 1: range(g * replicas, (g + 1) * replicas) for g in range(groups)}
    first_client = groups * replicas
    client_ids = range(first_client, first_client + clients)
    where: dict[ProcessId, str] = {}
    if regions:
        for group, processes in members.items():
            for index, process in enumerate(processes):
                where[process] = regions[(index if spread else group - 1) % len(regions)]
        turns = homes if homes and not spread else len(regions)
        for index, client in enumerate(client_ids):
            where[client] = regions[index % turns % len(regions)] if client_region is None else client_region
    return Topology(members, client_ids, where)
