"""States of the application that other members can vouch for as well, where some of the group may lie.

A member that needs a state believes it when f+1 members have a state with the same digest after the same position. So
they must have dumped it at the same position, though each goes on at its own pace:

    the asker   which states have you?          1,203 / 1,205 / 1,204, and their digests: no two are alike
    the asker   please keep the one after 1,460
    the asker   which states have you?          all have 1,460, with one digest: then its bytes, from any of them

Whoever is asked dumps the state as it is, too: if nothing is delivered, all members are at the same position. A state
that is handed over is the same bytes at all members, so it leaves out what a node has for itself: see `dump_shared`.

A liar can ask as well. For each member that asks, the application is dumped twice in some seconds at most, and one
older state is kept while it is fetched.
"""

from __future__ import annotations

import asyncio
from collections import deque
from hashlib import blake2b
from typing import NamedTuple

from ..system import system
from ..wire.control import AppDigests, AppDigestsQuery, AppStatePart, AppStateQuery, NoAppState, StateDigest
from .application import Host

_DIGESTS_MAX = 8  # of the latest states
_EVERY_S = 5.0  # between two dumps of a kind for the same asker
_KEEP_S = 60.0  # all of it, after the last question
_PART_BYTES = 1 << 20


def digest_of_state(state: bytes | bytearray) -> bytes:
    return blake2b(state, digest_size=32).digest()


class _Dumped(NamedTuple):
    digest: StateDigest
    state: bytes


class _Asker:
    """Another member."""

    def __init__(self) -> None:
        self.wanted = 0  # the position after which it wants a state
        self.wanted_s = self.at_once_s = -_EVERY_S  # when the application was last dumped for it, in both ways
        self.fetched: _Dumped | None = None  # what it was last told of, or is fetching


class SharedStates:
    def __init__(self, host: Host) -> None:
        self._host = host
        host.on_wanted = self._on_wanted
        self._loop = asyncio.get_running_loop()
        self._digests: deque[StateDigest] = deque(maxlen=_DIGESTS_MAX)
        self._latest: _Dumped | None = None
        self._askers: dict[str, _Asker] = {}
        self._expiry: asyncio.TimerHandle | None = None

    # -- questions

    def digests(self, name: str, query: AppDigestsQuery) -> AppDigests:
        """At once, without waiting for a dump: whoever asks does not wait long for a liar, so not for others either."""
        self._stay()
        asker = self._asker(name)
        now_s, position = system().monotonic_s(), self._host.position
        if query.wanted > position and now_s >= asker.wanted_s + _EVERY_S:
            asker.wanted = query.wanted
            self._want()
        if position >= query.at_least and now_s >= asker.at_once_s + _EVERY_S:
            asker.at_once_s = now_s
            self._loop.call_soon(self._dump)
        asker.fetched = self._latest
        return AppDigests(position, tuple(self._digests))

    def part(self, name: str, query: AppStateQuery) -> AppStatePart | NoAppState:
        self._stay()
        asker = self._asker(name)
        for dumped in (asker.fetched, self._latest):
            if dumped is not None and (dumped.digest.position, dumped.digest.digest) == (query.position, query.digest):
                asker.fetched = dumped
                offset = max(0, query.offset)
                data = dumped.state[offset : offset + _PART_BYTES]
                return AppStatePart(query.position, len(dumped.state), 0, offset, data)
        return NoAppState()

    def _asker(self, name: str) -> _Asker:
        return self._askers.setdefault(name, _Asker())

    # -- dumping

    def _want(self) -> None:
        self._host.wanted = {asker.wanted for asker in self._askers.values() if asker.wanted > self._host.position}

    def _on_wanted(self) -> None:
        """The application has just come to a position that somebody wanted."""
        for asker in self._askers.values():
            if asker.wanted == self._host.position:
                asker.wanted_s = system().monotonic_s()
        self._want()
        self._dump()

    def _dump(self) -> None:
        if self._latest is not None and self._latest.digest.position == self._host.position:
            return
        position, state = self._host.dump_shared()
        self._latest = _Dumped(StateDigest(position, len(state), digest_of_state(state)), state)
        self._digests.append(self._latest.digest)

    # -- forgetting

    def _stay(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_later(_KEEP_S, self.forget)

    def forget(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry, self._latest = None, None
        self._digests.clear()
        self._askers.clear()
        self._want()
