"""Between the start of a node and that of its process: the others are asked first what they know of it.

A process whose disk was lost, or is an older copy, can't see that by itself. So it takes part only when every other
member of its group has answered its HELLO, or when a majority has (itself included) and the rest had some time. A vote
that counted was heard by others, and if they are among those who answer, they know. Until the gate is open the node
listens, answers HELLO and tells its status; frames of peers are ignored, and messages of clients are refused.

A group of one has no other member. It asks the processes of other groups, and does not wait long for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from ..wire.control import Life, Lost

GRACE_S = 1.0


class Gate:
    def __init__(self, awaited: Sequence[str], needed: int) -> None:
        self._awaited = awaited  # whose answers are worth waiting for
        self._needed = needed  # how many of them must have answered
        self._answered: set[str] = set()
        self._lost: Lost | None = None
        self._changed = asyncio.Event()

    @classmethod
    def of_group(cls, name: str, group: Sequence[str], processes: Sequence[str]) -> Gate:
        others = [each for each in (processes if len(group) == 1 else group) if each != name]
        return cls(others, len(group) // 2)

    def on_welcome(self, peer: str) -> None:
        if peer in self._awaited:
            self._answered.add(peer)
            self._changed.set()

    def on_lost(self, answer: Lost) -> None:
        if self._lost is None or _rank(answer.known) > _rank(self._lost.known):
            self._lost = answer
        self._changed.set()

    def reset(self) -> None:
        """The process has become another incarnation, of which nobody has heard yet."""
        self._answered.clear()
        self._lost = None

    async def answers(self) -> Lost | None:
        """Returns None when the process may take part, or the answer of one who remembers more than its disk."""
        await self._until(self._needed)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self._until(len(self._awaited))
        return self._lost

    async def _until(self, count: int) -> None:
        while self._lost is None and len(self._answered) < count:
            self._changed.clear()
            await self._changed.wait()

    @property
    def missing(self) -> list[str]:
        return [name for name in self._awaited if name not in self._answered]


def _rank(life: Life) -> tuple[int, int]:
    return life.incarnation, life.boot
