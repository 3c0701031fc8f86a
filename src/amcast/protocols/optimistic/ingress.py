"""How a message enters: its sender stamps it, and sends it to its source group and to whoever must know of it.

Senders that are in no group have one of them for their home, the source group of all their messages: FIFO order is the
order of one log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ...core import AppMessage, GroupId, Outbox, ProcessId, Topology, UsageError
from .._client import Ingress
from .._replica import ReplicaConfig
from .messages import BarrierRequest, FrMcast, Time, home_of


class SendersConfig(ReplicaConfig, frozen=True, forbid_unknown_fields=True):
    # sendersTo at the start, such as {"g1": ["g1", "g2"]}: who sends to a group; to one that is not named, all do. A
    # group that has a message for another one joins its senders by itself.
    senders_to: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    requests: bool = True  # senders request barriers together with their message


def initial_senders(config: SendersConfig, topology: Topology, group: GroupId) -> tuple[GroupId, ...]:
    names = {f"g{each}": each for each in topology.groups}
    for name in (name for receiver, senders in config.senders_to.items() for name in (receiver, *senders)):
        if name not in names:
            raise UsageError(f"senders_to names '{name}', which is no group of this topology")
    senders = config.senders_to.get(f"g{group}", tuple(names))
    return tuple(sorted({names[name] for name in senders}))


def home_group(message: AppMessage, topology: Topology) -> tuple[GroupId, ...]:
    return (home_of(message.sender, topology),)


def senders_facts(
    config: SendersConfig, topology: Topology, sent: Iterable[tuple[ProcessId, GroupId]]
) -> dict[str, Any]:
    """sendersTo as far as it went in a run: as it was at the start, and the groups that joined to send a message."""
    senders = {group: {*initial_senders(config, topology, group)} for group in topology.groups}
    for sender, group in sent:
        senders[group].add(home_of(sender, topology))
    return {"senders_to": {str(group): sorted(each) for group, each in senders.items()}}


def barriers_needed(
    dst: Sequence[GroupId], source: GroupId, senders_of: Callable[[GroupId], Sequence[GroupId]]
) -> list[GroupId]:
    """Whose barriers the destinations of a message wait for: their senders', their own, not the source group's."""
    groups = dict.fromkeys(x for h in dst for x in (*senders_of(h), h))
    return [group for group in groups if group != source]


class BaselineIngress(Ingress):
    """Requests go out with the message, so that barriers and message are ordered at the same time."""

    def __init__(self, process: ProcessId, topology: Topology, config: SendersConfig) -> None:
        self._home = home_of(process, topology)
        self._topology = topology
        self._requests = config.requests
        self._senders = {group: initial_senders(config, topology, group) for group in topology.groups}
        self._last: Time = 1  # so the first message's time is 2 or more: above the barriers that groups begin with

    def send(self, message: AppMessage, out: Outbox) -> FrMcast:
        self._last = max(out.now_us, self._last + 1)  # getTime(): no two alike
        needed = barriers_needed(message.dst, self._home, self._senders.__getitem__) if self._requests else []
        copy = FrMcast(message, self._home, self._last, tuple(needed))
        receivers = self._receivers(message)
        for group in receivers:
            out.send_all(self._topology.members(group), copy)
        request = BarrierRequest(message.id, self._last, self._home)
        for group in needed:
            if group not in receivers:
                out.send_all(self._topology.members(group), request)
        return copy

    def _receivers(self, message: AppMessage) -> tuple[GroupId, ...]:
        """Who gets the initial copy: line 10."""
        return (self._home,)

    def send_again(self, sent: FrMcast, silent: Sequence[GroupId], out: Outbox) -> None:
        """To the source group, and to destinations that did not answer: perhaps they did, and the answer got lost."""
        again = msgspec.structs.replace(sent, asked=(), again=True)
        for group in dict.fromkeys((self._home, *silent)):
            out.send_all(self._topology.members(group), again)


class OptimisticIngress(BaselineIngress):
    """The initial copy goes to the destinations as well, and stands for a request there."""

    def _receivers(self, message: AppMessage) -> tuple[GroupId, ...]:
        return tuple(dict.fromkeys((self._home, *message.dst)))
