"""Fetches a state of the application that f+1 members vouch for, where f members of a group may lie.

First all members are asked which states they have. Of those that enough members have with the same digest the latest is
taken, and its bytes are fetched from one of them. If they do not have the digest, the next one is asked. If no state is
vouched for, the members are asked to keep the one after a position that all of them have yet to reach: how far that is,
is found by trying, since nobody knows how fast they go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..wire.control import AppDigests, AppDigestsQuery, AppStatePart, AppStateQuery, StateDigest
from ._members import MEMBER_ERRORS, Address, BadAnswerError, Members
from ._shared_states import digest_of_state

_DIGESTS_S = 10.0  # to answer which states there are
_PART_S = 60.0
_RATE_MIN = 256 << 10  # bytes in a second, at which a state must come: a liar must not take for ever
_DIGESTS_MAX = 100  # that a member may have
_MARGIN_FIRST, _MARGIN_MAX = 256, 1 << 20  # positions

logger = logging.getLogger("amcast.node")


class VouchedTransfer:
    def __init__(self, members: Members, needed: int, tell: Callable[[str], None]) -> None:
        """`tell`: for people, how far it is."""
        self._members = members
        self._needed = needed
        self._tell = tell
        self._order = list(members.all)  # those that failed to hand over a state come last, and liars not at all
        self._wanted = 0
        self._margin = _MARGIN_FIRST

    async def fetch(self, at_least: int) -> tuple[int, bytes] | None:
        """Position and state; none if there is none yet. Then it is worth asking again."""
        answers = await self._ask_all(at_least)
        digest = self._vouched(answers, at_least)
        if digest is None:
            self._choose_wanted(answers, at_least)
            return None
        for member in list(self._order):
            if member in answers and digest in answers[member].states:
                state = await self._fetch_from(member, digest)
                if state is not None:
                    self._wanted, self._margin = 0, _MARGIN_FIRST
                    return digest.position, state
        return None

    # -- which state

    async def _ask_all(self, at_least: int) -> dict[Address, AppDigests]:
        """All members at once, until a state is vouched for: who does not answer keeps nobody waiting for it then."""
        answers: dict[Address, AppDigests] = {}
        query = AppDigestsQuery(at_least, self._wanted)
        tasks = [asyncio.create_task(self._ask(member, query, answers)) for member in self._order]
        try:
            for task in asyncio.as_completed(tasks):
                await task
                if self._vouched(answers, at_least) is not None:
                    break
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return answers

    async def _ask(self, member: Address, query: AppDigestsQuery, answers: dict[Address, AppDigests]) -> None:
        try:
            async with asyncio.timeout(_DIGESTS_S), self._members.converse(member) as conversation:
                answer = await conversation.ask(query, _DIGESTS_S)
            if not isinstance(answer, AppDigests) or len(answer.states) > _DIGESTS_MAX:
                raise BadAnswerError("it does not tell which states it has")
            answers[member] = answer
        except MEMBER_ERRORS as error:
            logger.info("no application state from %s: %s", member.name, str(error) or "no answer in time")

    def _vouched(self, answers: dict[Address, AppDigests], at_least: int) -> StateDigest | None:
        vouchers: dict[StateDigest, int] = {}
        for answer in answers.values():
            for digest in set(answer.states):
                vouchers[digest] = vouchers.get(digest, 0) + 1
        found = [digest for digest, count in vouchers.items() if count >= self._needed and digest.position >= at_least]
        return max(found, key=lambda digest: digest.position, default=None)

    def _choose_wanted(self, answers: dict[Address, AppDigests], at_least: int) -> None:
        """A position that is yet to come. Of those who say that they are the furthest, all may lie but the last one."""
        positions = sorted([answer.position for answer in answers.values()], reverse=True)
        if len(positions) < self._needed or positions[self._needed - 1] < self._wanted:
            return
        if self._wanted:
            self._margin = min(4 * self._margin, _MARGIN_MAX)
        self._wanted = max(positions[self._needed - 1] + self._margin, at_least)

    # -- its bytes

    async def _fetch_from(self, member: Address, digest: StateDigest) -> bytes | None:
        """All bytes come from one member: if they are wrong, it is clear who lied."""
        data = bytearray()
        try:
            async with (
                asyncio.timeout(_PART_S + digest.size / _RATE_MIN),
                self._members.converse(member) as conversation,
            ):
                is_whole = False
                while not is_whole:
                    query = AppStateQuery(digest.position, digest.position, 0, len(data), digest.digest)
                    data += _bytes_of(await conversation.ask(query, _PART_S), digest, len(data))
                    is_whole = len(data) == digest.size
                    done, size = len(data) >> 20, digest.size >> 20
                    self._tell(f"the application takes over the state of {member.name}: {done} of {size} MB")
        except MEMBER_ERRORS as error:
            logger.info("no application state from %s: %s", member.name, str(error) or "no answer in time")
            self._order.remove(member)
            self._order.append(member)
            return None
        if digest_of_state(data) != digest.digest:
            logger.warning("%s is not asked for a state any more: what it sent does not have its digest", member.name)
            self._order.remove(member)
            return None
        return bytes(data)


def _bytes_of(part: object, digest: StateDigest, offset: int) -> bytes:
    if not isinstance(part, AppStatePart):
        raise BadAnswerError("it has that state no more")
    if (part.position, part.size, part.offset) != (digest.position, digest.size, offset):
        raise BadAnswerError("a part of another state, or another part")
    if offset + len(part.data) > digest.size or (not part.data and offset < digest.size):
        raise BadAnswerError(f"a part of {len(part.data)} bytes at {offset} of {digest.size}")
    return part.data
