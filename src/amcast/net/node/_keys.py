"""Idempotency keys: a request that was executed under a client's name and key is not executed again.

    await client.call({"g1", "g2"}, b"pay invoice 17", key="invoice 17")

A program that crashed in the middle of this, comes back under its name and calls again, gets the answer of the first
execution. Answers are kept with the application's state, so all replicas of a group agree on what is known. They are
kept until all of them take too much room: then the name with the most has to give up its oldest.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from ...core import AppMessage
from ..wire.control import Refusal, Result

_OVERHEAD = 200  # bytes that an entry with an empty result takes, about

_Entry = tuple[bytes, Result]  # a digest of the request, and its result
_Dumped = list[tuple[str, list[tuple[str, bytes, Result]]]]
_decoder: msgspec.msgpack.Decoder[_Dumped] = msgspec.msgpack.Decoder(_Dumped)


class Keys:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._names: dict[str, dict[str, _Entry]] = {}  # keys in the order of execution
        self._bytes: dict[str, int] = {}
        self._total = 0

    def find(self, name: str, key: str, request: bytes) -> tuple[Result] | None:
        """The answer of a request that was executed; none if there is none with this key."""
        entry = self._names.get(name, {}).get(key)
        if entry is None:
            return None
        return (entry[1] if entry[0] == request else Refusal.OTHER_REQUEST,)

    def add(self, name: str, key: str, request: bytes, result: Result) -> None:
        self._names.setdefault(name, {})[key] = (request, result)
        self._count(name, _size(name, key, result))
        while self._total > self._bytes_max and (len(self._names) > 1 or len(self._names[name]) > 1):
            self._drop_oldest(max(self._bytes, key=lambda each: (self._bytes[each], each)))

    def _drop_oldest(self, name: str) -> None:
        entries = self._names[name]
        key = next(iter(entries))
        _, result = entries.pop(key)
        self._count(name, -_size(name, key, result))
        if not entries:
            del self._names[name], self._bytes[name]

    def _count(self, name: str, size: int) -> None:
        self._bytes[name] = self._bytes.get(name, 0) + size
        self._total += size

    # -- snapshots

    def dump(self) -> bytes:
        dumped: _Dumped = [
            (name, [(key, request, result) for key, (request, result) in entries.items()])
            for name, entries in self._names.items()
        ]
        return msgspec.msgpack.encode(dumped)

    def load(self, data: bytes) -> None:
        self._names, self._bytes, self._total = {}, {}, 0
        for name, entries in _decoder.decode(data) if data else []:
            for key, request, result in entries:
                self._names.setdefault(name, {})[key] = (request, result)
                self._count(name, _size(name, key, result))


def _size(name: str, key: str, result: Result) -> int:
    return _OVERHEAD + len(name) + len(key) + (len(result) if isinstance(result, bytes) else 0)


def digest_of(message: AppMessage) -> bytes:
    """What is asked of whom: the same for every message that brings this request."""
    hashed = blake2b(msgspec.msgpack.encode(message.dst), digest_size=16)
    hashed.update(message.payload)
    return hashed.digest()
