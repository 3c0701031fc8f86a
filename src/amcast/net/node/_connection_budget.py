"""How many connections a node has: in all, from each address, and of strangers, who have not said HELLO yet.

Over a limit the newest is closed, before anything is made for it. But the processes of the cluster must get in whatever
strangers do, and they begin as strangers too. So callers from an address of a process are always let in, and another
stranger gives way: one at random, so that even a flood from that very address keeps no process out for long. If such a
caller turns out to be a client, it is a client over the limit, and is told so.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Protocol

from ..config import Limits
from ..system import system
from ._refusals import Cause

_FILES = 64  # descriptors that a node keeps for logs, snapshots, the trace, and what comes
_FOR_EACH_PROCESS = 4  # descriptors: its connection and ours, twice for a while when they are made anew
_CONNECTIONS_MIN = 8


class Counted(Protocol):
    """A connection, as far as it is counted."""

    address: str  # empty: it is not counted
    number: int  # among the strangers; -1: it is none

    def cut(self) -> None: ...


class ConnectionBudget:
    def __init__(self, limits: Limits, descriptors: int, processes: int) -> None:
        free = descriptors - _FILES - _FOR_EACH_PROCESS * processes
        self.strangers_max = max(_CONNECTIONS_MIN, min(limits.strangers, free // 4))
        self.max = max(_CONNECTIONS_MIN, min(limits.connections, free - self.strangers_max))
        self._address_max = limits.connections_per_address
        self._by_address: dict[str, int] = {}
        self._strangers: list[Counted] = []
        self._processes: set[str] = set()  # their addresses
        self.total = 0

    @property
    def strangers(self) -> int:
        return len(self._strangers)

    def expect_processes(self, hosts: Iterable[str]) -> None:
        """From these addresses processes of the cluster may come."""
        self._processes.update(map(address_of, hosts))

    def problem_at_door(self, host: str) -> Cause | None:
        """Why nobody from there is let in now."""
        address = address_of(host)
        return None if address in self._processes else self._problem(address, 0)

    def problem_of_client(self, connection: Counted) -> Cause | None:
        """Why this connection, which is counted already, may not be that of a client."""
        return self._problem(connection.address, 1)

    def _problem(self, address: str, counted: int) -> Cause | None:
        if self.total - counted >= self.max:
            return Cause.CONNECTIONS
        if self._by_address.get(address, 0) - counted >= self._address_max:
            return Cause.ADDRESS
        if not counted and len(self._strangers) >= self.strangers_max:
            return Cause.STRANGERS
        return None

    def enter(self, connection: Counted, host: str) -> bool:
        """A new stranger. Returns whether another one had to give way to it."""
        is_crowded = len(self._strangers) >= self.strangers_max
        if is_crowded:
            evicted = self._strangers[system().random_bits(32) % len(self._strangers)]
            self.leave(evicted)
            evicted.cut()
        connection.address, connection.number = address_of(host), len(self._strangers)
        self._strangers.append(connection)
        self._by_address[connection.address] = self._by_address.get(connection.address, 0) + 1
        self.total += 1
        return is_crowded

    def introduce(self, connection: Counted) -> None:
        """It is known now who has connected."""
        number, last = connection.number, self._strangers.pop()
        if last is not connection:
            self._strangers[number] = last
            last.number = number
        connection.number = -1

    def leave(self, connection: Counted) -> None:
        """Does nothing if it is not counted any more."""
        if not connection.address:
            return
        if connection.number >= 0:
            self.introduce(connection)
        left = self._by_address[connection.address] - 1
        if left:
            self._by_address[connection.address] = left
        else:
            del self._by_address[connection.address]
        connection.address = ""
        self.total -= 1


def address_of(host: str) -> str:
    """Whoever has an IPv6 address has all those of its network, so these count as one."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return host
