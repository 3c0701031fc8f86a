"""The one place through which every refusal passes: it is counted by its cause, and written to the log.

Whoever is refused may come back a thousand times a second. So only the first few of each second are written out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum

from ..system import system

_LINES_A_SECOND = 10

logger = logging.getLogger("amcast.node")


class Cause(StrEnum):
    CONNECTIONS = "connections"  # too many in all
    ADDRESS = "address"  # too many from one address
    STRANGERS = "strangers"  # too many that have not said who they are
    DESCRIPTORS = "descriptors"  # the operating system has none left
    HANDSHAKE = "handshake"  # of TLS
    DEADLINE = "deadline"  # no HELLO in time
    HELLO = "hello"  # who says so, may not enter
    REQUEST = "request"  # it broke a rule, or did what it may not
    BUDGET = "budget"  # of this client, or of all clients
    CREDENTIALS = "credentials"  # its certificate or token holds no longer
    SLOW = "slow"  # it does not read what it asked for
    FAILURE = "failure"  # its frame raised something that nobody expected


Listener = Callable[[Cause, str, str], None]


class Refusals:
    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(Cause, 0)
        self.listeners: list[Listener] = []  # each is told the cause, who it was, and the reason
        self._second = 0
        self._lines = 0  # of this second
        self._unwritten = 0

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def note(self, cause: Cause, who: str, reason: str) -> None:
        self.counts[cause] += 1
        for listener in self.listeners:
            listener(cause, who, reason)
        self._write(who, reason)

    def _write(self, who: str, reason: str) -> None:
        second = int(system().monotonic_s())
        if second != self._second:
            if self._unwritten:
                logger.warning("%s more connections were closed", self._unwritten)
            self._second, self._lines, self._unwritten = second, 0, 0
        if self._lines < _LINES_A_SECOND:
            self._lines += 1
            logger.warning("closing the connection of %s: %s", who, reason)
        else:
            self._unwritten += 1
