"""Messages that a group has decided not to execute.

An application that raises for a message stops every replica. If it can't be mended, the operator starts the nodes of
the group with the application on hold before that message, and has the group decide to skip it: the decision is a
message of its own, later in the same order. Every replica leaves out the same message then, those that come back later
as well: they look for decisions before they execute what is in their logs.

A replica that has executed the message already, since its application was mended meanwhile, sees it when it reaches
the decision. Its state is not the group's: it stops, and begins anew at its next start.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...core import AppMessage
from ..wire.envelope import Skip, opened


class Skips:
    def __init__(self) -> None:
        self._decided: set[int] = set()
        self._skipped: set[int] = set()  # in the application's state
        self.looked_until = 0  # decisions below this position of the log are known
        self.hold_at: int | None = None  # nothing from this position on is executed before a decision to skip it

    def note(self, at: int, message: AppMessage) -> None:
        """A message at this position may be a decision."""
        found = opened(message.payload)
        if isinstance(found, Skip) and found.position < at:
            self._decided.add(found.position)

    @property
    def is_active(self) -> bool:
        """Whether any message may have to be held or skipped."""
        return self.hold_at is not None or bool(self._decided)

    def holds(self, position: int) -> bool:
        return position == self.hold_at and position not in self._decided

    def is_decided(self, position: int) -> bool:
        return position in self._decided

    def note_skipped(self, position: int) -> None:
        self._skipped.add(position)

    def is_skipped(self, position: int) -> bool:
        """In the application's state, and not only decided."""
        return position in self._skipped

    def dump(self) -> tuple[int, ...]:
        return tuple(sorted(self._skipped))

    def load(self, skipped: Iterable[int]) -> None:
        self._skipped = set(skipped)
