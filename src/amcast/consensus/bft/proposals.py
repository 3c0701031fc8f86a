"""Proposals: what a leader has yet to propose, and whether it may.

Entries that come in one turn make one value. An instance costs votes of all to all, however little is in it: so while
one instance is in each of the three phases, entries wait for each other, and go into the next one together. The window
bounds what is in flight: instances, bytes, and how far the log may run ahead of the last checkpoint that n-f members
have.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ...core import GroupId, Outbox
from ..multipaxos.config import PaxosConfig
from ..values import cut_into_values
from .checkpoints import Checkpoints
from .ledger import Ledger

_PHASES = 3


class Proposals:
    def __init__(self, group: GroupId, config: PaxosConfig, ledger: Ledger, checkpoints: Checkpoints) -> None:
        self._config = config
        self._ledger = ledger
        self._checkpoints = checkpoints
        self._batch: list[Any] = []
        self._values: deque[bytes] = deque()
        self._timer_set = False
        self.next_free = 0  # the first instance that nothing was proposed for
        self.timer_key = f"log.{group}.propose"

    def add(self, entry: Any, out: Outbox) -> None:
        self._batch.append(entry)
        self.hurry(out)

    def hurry(self, out: Outbox) -> None:
        """What waits is proposed at the end of the turn."""
        if not self._timer_set and (self._batch or self._values):
            self._timer_set = True
            out.set_timer(self.timer_key, 0)

    def on_timer(self) -> None:
        self._timer_set = False

    def clear(self) -> None:
        """Another leader has its own: whoever needs an entry tries again."""
        self._batch = []
        self._values.clear()

    def take(self) -> bytes | None:
        """The next value, if there is one, and room for it."""
        if not (self._values or self._batch) or not self.has_room():
            return None
        if not self._values:
            if self.next_free - self._ledger.next >= _PHASES:
                return None
            self._values.extend(cut_into_values(self._batch, self._config.value_bytes))
            self._batch = []
        return self._values.popleft()

    def has_room(self) -> bool:
        """Few instances in flight, few bytes, and not too far beyond the last stable checkpoint."""
        ledger, config = self._ledger, self._config
        self.next_free = max(self.next_free, ledger.next)
        flying = range(ledger.next, self.next_free)
        if len(flying) >= config.window or self.next_free >= self._high():
            return False
        return sum([len(v) for i in flying for v in ledger.slot(i).values.values()]) < config.window_bytes

    def _high(self) -> int:
        return self._checkpoints.low + 4 * (self._config.snapshot_every + self._config.window)

    def is_in_flight(self, value: bytes) -> bool:
        slots = self._ledger.slots
        return any(value in slots[instance].values.values() for instance in self._ledger.unfinished())
