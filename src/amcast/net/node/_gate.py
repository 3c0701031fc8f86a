"""Between the start of a node and that of its process: the others are asked first what they know of it.

A process whose disk was lost, or is an older copy, can't see that by itself. So it takes part only when every other
member of its group has answered its HELLO, or when a majority has (itself included) and the rest had some time. A vote
that counted was heard by others, and if they are among those who answer, they know. Until the gate is open the node
listens, answers HELLO and tells its status; frames of peers are ignored, and messages of clients are refused.

A group of one has no other member. It asks the processes of other groups, and does not wait long for them.

Where f members of a group may lie, a process that believed one of them would throw its disk away for a lie. It has lost
its disk if f+1 members of its group say so. That many know, if it is true: n-f members, itself included, wrote its last
boot down before it took part, and a process that lost its disk is one of the f. What fewer say is shown to people.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from ..wire.control import Lost

GRACE_S = 1.0
_JUMP_MAX = 1 << 32  # starts or incarnations that a liar can have a process count over, at each loss
_REASON_MAX = 200  # characters, of one who is not believed

logger = logging.getLogger("amcast.node")


class Gate:
    def __init__(self, awaited: Sequence[str], needed: int, lost_needed: int = 1) -> None:
        self._awaited = awaited  # whose answers are worth waiting for
        self._needed = needed  # how many of them must have answered
        self._lost_needed = lost_needed  # how many of them must say LOST before it is believed; if one, anybody may
        self._answered: set[str] = set()
        self._lost: dict[str, Lost] = {}  # by those whose last answer was LOST
        self._changed = asyncio.Event()

    @classmethod
    def of_group(cls, name: str, group: Sequence[str], processes: Sequence[str], lost_needed: int = 1) -> Gate:
        others = [each for each in (processes if len(group) == 1 else group) if each != name]
        # Of the others, all but those who may lie: they may be silent as well.
        needed = len(group) // 2 if lost_needed == 1 else max(0, len(group) - lost_needed)
        return cls(others, needed, lost_needed)

    @property
    def believes_one(self) -> bool:
        return self._lost_needed == 1

    def on_welcome(self, peer: str) -> None:
        self._lost.pop(peer, None)
        if peer in self._awaited:
            self._answered.add(peer)
            self._changed.set()

    def on_lost(self, peer: str, answer: Lost) -> bool:
        """Whether enough have said so by now."""
        is_news = peer not in self._lost
        self._lost[peer] = answer
        self._changed.set()
        if self.lost is not None:
            return True
        if is_news:
            logger.warning("%s", self._doubt(peer, answer))
        return False

    def reset(self) -> None:
        """The process has become another incarnation, of which nobody has heard yet."""
        self._answered.clear()
        self._lost.clear()

    @property
    def lost(self) -> Lost | None:
        """What is believed: the numbers are as high as any that was told, since whoever remembers a higher one would
        not welcome this process. But no liar can have them run over."""
        told = [answer for peer, answer in self._lost.items() if self.believes_one or peer in self._awaited]
        if len(told) < self._lost_needed:
            return None
        told.sort(key=lambda answer: (answer.known.incarnation, answer.known.boot), reverse=True)
        sure = told[self._lost_needed - 1]
        incarnation = self._highest([answer.known.incarnation for answer in told])
        boot = self._highest([answer.known.boot for answer in told])
        return Lost(replace(sure.known, incarnation=incarnation, boot=boot), sure.reason)

    def _highest(self, numbers: list[int]) -> int:
        """Of those not too far above one that is true, or below it."""
        sure = sorted(numbers, reverse=True)[self._lost_needed - 1]
        return max(number for number in numbers if number <= sure + _JUMP_MAX)

    @property
    def doubts(self) -> list[str]:
        """For people: who says that this process has lost its disk, and is not believed."""
        return [self._doubt(*each) for each in self._lost.items()] if self.lost is None else []

    def _doubt(self, peer: str, answer: Lost) -> str:
        return (
            f"{peer} says that the disk of this process is lost, and is not believed before {self._lost_needed} members"
            f" of its group say so: {answer.reason[:_REASON_MAX]}"
        )

    async def answers(self) -> Lost | None:
        """Returns None when the process may take part, or the answer of one who remembers more than its disk."""
        await self._until(self._needed)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self._until(len(self._awaited))
        return self.lost

    async def _until(self, count: int) -> None:
        while self.lost is None and len(self._answered) < count:
            self._changed.clear()
            await self._changed.wait()

    @property
    def missing(self) -> list[str]:
        return [name for name in self._awaited if name not in self._answered]
