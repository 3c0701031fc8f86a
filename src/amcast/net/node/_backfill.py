"""Fills the gaps of a delivery log from the logs of the other members of the group.

A replica that was away is given a state, and its log has a gap. This task asks the members in turn for the deliveries
in it, writes them in pieces as segments of the log, and goes on until there is no gap. A piece is part of the log once
it is durable. Positions that every member says it does not have are lost, and asked for again after the next start.

Where f members may lie, a delivery is believed if f+1 members tell the same. Who told something else is named, and not
asked again. Positions are lost if there can't be f+1 who have them and tell the truth. In between there are positions
in doubt: some say that they have them, and differ, or don't answer. These are asked for again and again, after a pause
and after all others, so that no liar keeps the rest waiting. An application that needs them takes over a state.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ...core import BATCH_LIMIT, GroupId, StampedMessage
from ..disk.deliveries import DeliveryLog, size_of
from ..disk.files import lacks_space
from ..wire.control import DeliveriesQuery, Gone, StoredDeliveries
from ..wire.dialer import Conversation
from ._agreement import Agreed, Telling, agreed, missing
from ._members import MEMBER_ERRORS, Address, BadAnswerError, Members
from ._off_loop import off_loop

_PAUSE_S = 0.2  # before it looks for gaps again, or asks again when nobody could answer
_DOUBT_S = 2.0  # before it asks again for what is in doubt
_SPACE_S = 2.0  # between attempts on a full disk
_PIECE_BYTES = 8 << 20
_ANSWER_S = 30.0

logger = logging.getLogger("amcast.node")


class DiskFailedError(Exception):
    """This node's own disk, not a member's connection. Both are an OSError, and a connection's is survived."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Target(NamedTuple):
    at: int  # the first position that is wanted
    start: int  # of the gap: a batch may begin before `at`, but not before this
    end: int


class Backfill:
    def __init__(
        self, group: GroupId, has_batches: bool, deliveries: DeliveryLog, members: Members, needed: int = 1
    ) -> None:
        """`needed`: how many members must tell the same before it is believed."""
        self._group = group
        self._batch_max = BATCH_LIMIT if has_batches else 1
        self._deliveries = deliveries
        self._members = members
        self._needed = needed
        self._order = list(members.all)  # those who failed to answer come last, and liars not at all
        self._lost: list[tuple[int, int]] = []  # ranges that no member has
        self._doubtful: list[tuple[int, int]] = []  # and those that can't be proved now
        self._has_gap = asyncio.Event()
        self.problem: str | None = None

    async def run(self) -> None:
        """Until the disk fails: it raises what the disk said, as all who write do, so that it is told like any."""
        while True:
            target = self._target()
            if target is None and self._doubtful:
                await asyncio.sleep(_DOUBT_S)
                self._doubtful = []
                continue
            try:
                is_filled = target is not None and await self._fill(target)
            except DiskFailedError as failure:
                raise failure.error from None
            if not is_filled:
                await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_S):
                await self._has_gap.wait()
        self._has_gap.clear()

    def hurry(self) -> None:
        """There is a new gap. Until it is filled, its messages are on fewer disks than they should be."""
        self._has_gap.set()

    @property
    def is_filling(self) -> bool:
        return self._target() is not None or bool(self._doubtful)

    def lost_until(self, position: int) -> int | None:
        """If the log misses this position for good: the next one that it has, or will have."""
        if self._deliveries.has(position):
            return None
        for start, end in self._deliveries.gaps():
            if start <= position < end:
                found = _after(self._lost, position)
                return found if found > position else None
        return self._deliveries.after_hole(position)

    def is_in_doubt(self, position: int) -> bool:
        """The log misses it, and it may be long until enough members tell it alike."""
        return not self._deliveries.has(position) and _after(self._doubtful, position) > position

    def _target(self) -> _Target | None:
        wanted = self._deliveries.kept_from
        for start, end in self._deliveries.gaps():
            at = _after(sorted([*self._lost, *self._doubtful]), max(start, wanted))
            if at < end:
                return _Target(at, start, end)
        return None

    async def _fill(self, target: _Target) -> bool:
        """Whether there was progress."""
        return await (self._fill_from_one(target) if self._needed == 1 else self._fill_from_many(target))

    # -- members that tell the truth

    async def _fill_from_one(self, target: _Target) -> bool:
        """A member that can't be asked now may have what the others lack."""
        lacking: list[int] = []
        for member in self._members.all:
            try:
                end = await self._fill_from(member, target)
            except MEMBER_ERRORS as error:
                logger.info("no deliveries from %s: %s", member.name, str(error) or "no answer in time")
                continue
            if end is None:
                return True
            if end > target.at:
                lacking.append(end)
        if len(lacking) < len(self._members.all):
            return False
        lost = (target.at, min([target.end, *lacking]))
        logger.warning("no member of the group has the deliveries from %s to %s any more", lost[0], lost[1] - 1)
        self._lost = sorted([*self._lost, lost])
        return True

    async def _fill_from(self, member: Address, target: _Target) -> int | None:
        """None if something was filled. Otherwise the next position that the member has; if it is behind, the same."""
        at, is_filled = target.at, False
        async with self._members.converse(member) as conversation:
            while at < target.end:
                first, piece, next_ = await self._gather(conversation, target._replace(at=at))
                if not piece:
                    return None if is_filled else next_
                if not await self._write(first, piece):
                    return target.at
                at, is_filled = next_, True
        return None

    # -- members that may lie

    async def _fill_from_many(self, target: _Target) -> bool:
        """One more member is asked as long as those before do not tell a whole piece alike."""
        tellings: list[Telling] = []
        found = Agreed(target.at, [], target.at, [])
        for member in list(self._order):
            telling = await self._hear(member, target)
            if telling is not None:
                tellings.append(telling)
                found = await off_loop(partial(agreed, target.at, tuple(tellings), self._needed))
                if found.end >= target.end or sum(map(size_of, found.piece)) >= _PIECE_BYTES:
                    break
        self._order = [member for member in self._order if member.name not in found.liars]
        for liar in found.liars:
            logger.warning(
                "%s is not asked for deliveries any more: it told others than %s members", liar, self._needed
            )
        if found.piece:
            return await self._write(found.first, found.piece)
        return self._give_up(target, tellings)

    async def _hear(self, member: Address, target: _Target) -> Telling | None:
        """What a member has to tell in time. One that fails is asked last from now on."""
        try:
            async with asyncio.timeout(_ANSWER_S), self._members.converse(member) as conversation:
                return Telling(member.name, *await self._gather(conversation, target))
        except MEMBER_ERRORS as error:
            logger.info("no deliveries from %s: %s", member.name, str(error) or "no answer in time")
            self._order.remove(member)
            self._order.append(member)
            return None

    def _give_up(self, target: _Target, tellings: list[Telling]) -> bool:
        """Nothing at the target can be proved now. Whether something is known to be lost by that."""
        at, end = target.at, target.end
        lost_until, doubtful_until = missing(at, end, tellings, len(self._order) - len(tellings), self._needed)
        if lost_until < doubtful_until:
            self._doubtful = sorted([*self._doubtful, (lost_until, doubtful_until)])
        if lost_until == at:
            return False
        logger.warning("too few members of the group have the deliveries from %s to %s still", at, lost_until - 1)
        self._lost = sorted([*self._lost, (at, lost_until)])
        return True

    # -- one piece

    async def _gather(self, conversation: Conversation, target: _Target) -> tuple[int, list[StampedMessage], int]:
        """Where the piece begins, its deliveries, and the position after it. Of an empty one: the member's next."""
        piece: list[StampedMessage] = []
        first = at = target.at
        size = 0
        while at < target.end and size < _PIECE_BYTES:
            answer = await conversation.ask(DeliveriesQuery(at), _ANSWER_S)
            if isinstance(answer, Gone):
                return first, piece, at if piece else max(at, answer.first)
            if not isinstance(answer, StoredDeliveries):
                raise BadAnswerError(f"an answer of another kind, {type(answer).__name__}")
            if not answer.messages:
                break
            if not piece:
                first = answer.first
                if not target.start <= first <= at:
                    raise BadAnswerError(f"deliveries from {first} on, not from {at}")
            elif answer.first != at:
                raise BadAnswerError(f"deliveries from {answer.first} on, not from {at}")
            taken, at = self._take(answer, target.end)
            piece += taken
            size += sum(map(size_of, taken))
        return first, piece, at

    def _take(self, answer: StoredDeliveries, end: int) -> tuple[list[StampedMessage], int]:
        """Those of the deliveries that are below the end of the gap, and the position after them."""
        taken: list[StampedMessage] = []
        at = answer.first
        for message, ts in answer.messages:
            if at >= end:
                break
            if not 1 <= message.count <= self._batch_max or self._group not in message.dst:
                raise BadAnswerError(f"what it delivered at {at} was not for this group")
            at += message.count
            taken.append((message, ts))
        if at > end:
            raise BadAnswerError(f"a batch runs over {end}, where this log goes on")
        return taken, at

    async def _write(self, first: int, piece: list[StampedMessage]) -> bool:
        """False if there is no space on the disk. Other errors of the disk stop the node."""
        try:
            end = await off_loop(partial(self._deliveries.write_fill, first, piece))
        except OSError as error:
            if not lacks_space(error):
                raise DiskFailedError(error) from error
            self.problem = "messages that this node missed are not fetched: the disk is full"
            await asyncio.sleep(_SPACE_S)
            return False
        self.problem = None
        self._deliveries.add_fill(first, end)
        return True


def _after(ranges: list[tuple[int, int]], position: int) -> int:
    """The first position from this one on that is in none of the ranges, which ascend."""
    for start, end in ranges:
        if start <= position < end:
            position = end
    return position
