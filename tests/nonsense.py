"""Wire messages with any values in them, as liars send them: whatever decodes, in their own name."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from random import Random
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import structs

from amcast.consensus import LogWire, PaxosMessage
from amcast.consensus.bft.messages import COMMAND, NewView, Propose, Readd, ViewChange, digest_of, encode_readd
from amcast.core import ProcessId, Topology, encode, message_id, signed_part
from amcast.protocols import ProtocolSpec, Reply, Start
from amcast.protocols._adapter import Frame

LARGE = bytes(1 << 20)
DEEP = b"\x93" + b"\x01\x02" + b"\x91" * 5_000 + b"\x00"
FAR_NUMBERS = [*range(-1, 9), 64, 1_000, 1 << 31, 1 << 40, 1 << 59, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63)]
ODD_BLOBS = [b"", b"\x00", bytes(31), bytes(32), bytes(33), digest_of(b""), encode([]), b"\x90" * 2, COMMAND, DEEP]
ODD_BLOBS += [COMMAND + DEEP, encode_readd(Readd(3, 1 << 40))]

Sign = Callable[[bytes], bytes]

fields_of = cache(structs.fields)  # it evaluates annotations each time


class Nonsense:
    """Draws values of any type that wire messages are made of. Half are the receiver's own numbers and digests."""

    def __init__(self, rng: Random, numbers: list[int], blobs: list[bytes]) -> None:
        self._rng = rng
        self._left = 500  # elements of tuples, of all in a message
        self._numbers, self._blobs = (numbers, FAR_NUMBERS), (blobs or ODD_BLOBS, ODD_BLOBS)

    def draw(self, type_: Any, depth: int = 0) -> Any:
        origin, args, rng = get_origin(type_), get_args(type_), self._rng
        if type_ is bool:
            return rng.random() < 0.5
        if type_ is int:
            return rng.choice(rng.choice(self._numbers))
        if type_ is bytes:
            return LARGE if depth < 2 and rng.random() < 0.1 else rng.choice(rng.choice(self._blobs))
        if type_ is NoneType:
            return None
        if origin in (Union, UnionType):
            return self.draw(rng.choice(args), depth)
        if origin is dict:
            return {self.draw(args[0]): self.draw(args[1]) for _ in range(rng.randrange(3))}
        if origin is tuple and args[1:] == (Ellipsis,):
            return tuple([self.draw(args[0], depth + 1) for _ in range(self._length())])
        if origin is tuple:
            return tuple([self.draw(each, depth) for each in args])
        if issubclass(type_, Enum):
            return rng.choice(list(type_))
        assert issubclass(type_, msgspec.Struct), type_
        return type_(*[self.draw(field.type, depth + 1) for field in fields_of(type_)])

    def _length(self) -> int:
        length = min(self._left, self._rng.choice((0, 1, 1, 2, 3, 5, 500)))
        self._left -= length
        return length


class Falsehoods:
    """Draws what a liar says to a member of a Byzantine group, knowing all that the member knows."""

    def __init__(self, rng: Random, spec: ProtocolSpec, topology: Topology, lying_client: ProcessId) -> None:
        self._rng = rng
        self._topology = topology
        self._lying_client = lying_client
        own = get_args(Start | Reply | spec.messages)
        self._kinds = [*own * 10, *get_args(PaxosMessage)]  # those of another log decode as well

    def draw(self, sender: ProcessId, member: ProcessId, replica: Any, sign: Sign) -> Any:
        return self.signed(sender, self._aimed(sender, member, replica._log, self._drawn(replica)), sign)

    def _drawn(self, replica: Any) -> Any:
        log = replica._log
        numbers = [log.view, log.view + 1, log._ledger.next, log._ledger.next + 1, log._ledger.floor]
        numbers += [log._ledger.next + self._rng.randrange(60) for _ in range(5)]
        numbers += [heard.applied for heard in replica._heard.values()]
        numbers += [message_id(self._lying_client, self._rng.randrange(9))]
        slots = list(log._ledger.slots.values())[-3:]
        blobs = [digest for slot in slots for digest in slot.values]
        blobs += [value for slot in slots for value in slot.values.values()]
        return Nonsense(self._rng, numbers, blobs).draw(self._rng.choice(self._kinds))

    def _aimed(self, sender: ProcessId, member: ProcessId, log: Any, message: Any) -> Any:
        """Mostly under its own name, and to the group that it concerns: otherwise nobody would look at it."""
        if self._rng.random() < 0.1:
            return message
        if isinstance(message, LogWire):
            message = structs.replace(message, group=self._topology.group_of(member))
        if isinstance(message, Frame) and self._topology.group_of(sender) is not None:
            message = structs.replace(message, source=self._topology.group_of(sender))
        if isinstance(message, ViewChange):
            message = structs.replace(message, process=sender)
        if isinstance(message, Propose):
            message = structs.replace(message, view=log.view, instance=log._ledger.next + self._rng.randrange(3))
        return message

    def signed(self, sender: ProcessId, message: Any, sign: Sign) -> Any:
        """A liar signs for itself alone."""
        if isinstance(message, NewView):
            changes = [structs.replace(each, group=message.group, process=sender) for each in message.changes]
            message = structs.replace(message, changes=tuple([self.signed(sender, each, sign) for each in changes]))
        if isinstance(message, ViewChange | NewView):
            return structs.replace(message, proof=sign(message.signed()))
        if isinstance(message, Start):
            signed = [structs.replace(each, proof=sign(signed_part(each))) for each in message.messages]
            return Start(tuple(signed))
        return message
