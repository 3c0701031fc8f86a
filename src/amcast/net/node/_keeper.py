"""Keeps a node's application up: applies what it missed, saves its state now and then, and fetches a state if it must.

An application that needs messages which its node's log does not have waits while they are filled in. If no member of
the group has them any more, it takes over the state of another member's application, part by part. If that member fails
in between, the transfer goes on at it later, or begins again at another one. Where members may lie, it takes over what
several of them vouch for: see `_vouched_transfer.py`.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from zlib import crc32

from ..disk.deliveries import DeliveryLog
from ..disk.files import lacks_space
from ..wire.control import AppStatePart, AppStateQuery, NoAppState
from ._backfill import Backfill
from ._members import MEMBER_ERRORS, Address, BadAnswerError, Members
from ._off_loop import off_loop
from ._vouched_transfer import VouchedTransfer
from .application import Host

_LOOK_S = 0.05
_PAUSE_S = 0.2  # before the members are asked again
_SPACE_S = 2.0  # between attempts on a full disk
_ANSWER_S = 60.0  # a large application needs some time to dump its state

logger = logging.getLogger("amcast.node")


class _Transfer:
    """A state of which some parts have come."""

    def __init__(self, part: AppStatePart) -> None:
        self.position = part.position
        self.size = part.size
        self.checksum = part.checksum
        self.data = bytearray()

    def add(self, part: AppStatePart) -> None:
        if part.offset != len(self.data) or part.offset + len(part.data) > self.size:
            raise BadAnswerError(f"a part of {len(part.data)} bytes at {part.offset}, not at {len(self.data)}")
        if not part.data and part.offset < self.size:
            raise BadAnswerError("a part without bytes")
        self.data += part.data

    def is_of(self, part: AppStatePart) -> bool:
        return (part.position, part.size, part.checksum) == (self.position, self.size, self.checksum)


class Keeper:
    def __init__(
        self, host: Host, deliveries: DeliveryLog, backfill: Backfill, members: Members, needed: int = 1
    ) -> None:
        """`needed`: how many members must vouch for a state."""
        self._host = host
        self._deliveries = deliveries
        self._backfill = backfill
        self._members = members
        self._transfer: _Transfer | None = None
        self._vouched = None if needed == 1 else VouchedTransfer(members, needed, self._tell)
        self._is_waiting = False  # for a state, or else for messages that are in doubt

    async def run(self) -> None:
        while True:
            if self._host.catch_up():
                await asyncio.sleep(0)  # the node goes on in between
                continue
            lost_until = None
            if self._host.needs_state:
                lost_until = self._host.position + 1
            elif self._host.is_behind:
                lost_until = self._missing_until(self._host.position)
            elif (unseen := self._host.unseen_at) is not None:
                lost_until = self._missing_until(unseen)
            if lost_until is None:
                self._stop_waiting()
            elif not await self._take_over(lost_until):
                await asyncio.sleep(_PAUSE_S)
            if self._host.is_save_due:
                await self._save()
            await asyncio.sleep(_LOOK_S)

    def _missing_until(self, position: int) -> int | None:
        """If the log won't have this position, or nobody knows when: after which position a state is needed."""
        lost_until = self._backfill.lost_until(position)
        return position + 1 if lost_until is None and self._backfill.is_in_doubt(position) else lost_until

    # -- saving

    async def _save(self) -> None:
        position, state = self._host.dump()
        try:
            await off_loop(partial(self._host.write, position, state))
        except OSError as error:
            if not lacks_space(error):
                raise
            self._host.problem = "the application's state is not saved: the disk is full"
            await asyncio.sleep(_SPACE_S)
        else:
            self._host.saved_at(position)

    # -- another member's state

    async def _take_over(self, at_least: int) -> bool:
        self._tell(f"the application waits for the state of another member: position {self._host.position}")
        if self._vouched is not None:
            self._is_waiting = True
            found = await self._vouched.fetch(at_least)
            if found is not None:
                self._host.take_over(*found)
            return found is not None
        for member in self._members.all:
            try:
                transfer = await self._fetch(member, at_least)
            except MEMBER_ERRORS as error:
                logger.info("no application state from %s: %s", member.name, str(error) or "no answer in time")
                continue
            if transfer is not None:
                self._host.take_over(transfer.position, bytes(transfer.data))
                return True
        return False

    def _stop_waiting(self) -> None:
        """The messages have come, so that no state is needed any more."""
        if self._is_waiting:
            self._is_waiting = False
            self._host.problem = None

    def _tell(self, problem: str) -> None:
        self._host.problem = problem

    async def _fetch(self, member: Address, at_least: int) -> _Transfer | None:
        """None if the member has no such state."""
        async with self._members.converse(member) as conversation:
            while True:
                part = await conversation.ask(self._question(at_least), _ANSWER_S)
                if isinstance(part, NoAppState):
                    return None
                if not isinstance(part, AppStatePart) or part.position < at_least:
                    raise BadAnswerError("an answer to another question")
                transfer = self._add(part)
                if len(transfer.data) == transfer.size:
                    self._transfer = None
                    if crc32(transfer.data) != transfer.checksum:
                        raise BadAnswerError("the state does not have its checksum")
                    return transfer
                done, size = len(transfer.data) >> 20, transfer.size >> 20
                self._tell(f"the application takes over the state of {member.name}: {done} of {size} MB")

    def _question(self, at_least: int) -> AppStateQuery:
        transfer = self._transfer
        if transfer is None or transfer.position < at_least:
            return AppStateQuery(at_least)
        return AppStateQuery(at_least, transfer.position, transfer.checksum, len(transfer.data))

    def _add(self, part: AppStatePart) -> _Transfer:
        transfer = self._transfer
        if transfer is None or not transfer.is_of(part):
            transfer = self._transfer = _Transfer(part)
        try:
            transfer.add(part)
        except BadAnswerError:
            self._transfer = None
            raise
        return transfer
