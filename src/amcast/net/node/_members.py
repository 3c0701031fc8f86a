"""The other members of a node's group, as it asks them for what it misses: messages, or its application's state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import NamedTuple

from ..security.keyring import Keyring
from ..security.seal import Seal
from ..security.tls import PeerError
from ..wire.control import Hello
from ..wire.dialer import Conversation, LostError, RefusedError, converse, dial


class BadAnswerError(Exception):
    """What a member answered can't be right: the text says why."""


# What may go wrong with one member, so that another one is asked. Only a liar says LOST to one that just reads.
MEMBER_ERRORS = (OSError, TimeoutError, RefusedError, LostError, PeerError, BadAnswerError)


class Address(NamedTuple):
    name: str
    address: tuple[str, int]


class Members:
    def __init__(
        self, members: list[Address], hello: Callable[[], Hello], tls: Keyring | None, seal: Seal | None = None
    ) -> None:
        self.all = members
        self._hello = hello
        self._tls = tls
        self._seal = seal

    def converse(self, member: Address) -> AbstractAsyncContextManager[Conversation]:
        return converse(partial(dial, member.address, self._hello(), self._tls, member.name, seal=self._seal))
