"""Frames that are no requests: nested, mutated, too long, before HELLO and after it."""

from __future__ import annotations

from random import Random

import msgspec

from amcast.core import encode
from amcast.net.wire.control import Attach, Detach, Follow, StatusQuery, Unfollow
from amcast.protocols import Start

from ._tools import Field, Link, hello_of

_AT_ONCE = 8
_FRAMES = 500  # in one write: a node that refuses the first may throw the others away unread
_DEPTHS = (100, 1_000, 1_100, 5_000, 50_000)


def nested(depth: int, rng: Random) -> bytes:
    opening = rng.choice([b"\x91", b"\x81\xa1a", b"\x92\x01"])
    return opening * depth + b"\x90"


def with_nested(data: bytes, depth: int, rng: Random) -> bytes:
    """A message with one field more, which no decoder knows: it has to find the end of it all the same."""
    fields = [msgspec.Raw(msgspec.msgpack.encode(each)) for each in msgspec.msgpack.decode(data)]
    if rng.random() < 0.5:
        fields.append(msgspec.Raw(nested(depth, rng)))
    else:
        fields[rng.randrange(1, len(fields) + 1) - 1] = msgspec.Raw(nested(depth, rng))
    return msgspec.msgpack.encode(fields)


async def nested_hello(field: Field) -> None:
    """With a certificate, a first frame of arrays in arrays."""
    await field.together(_AT_ONCE, lambda: _send_nested(field, False))


async def nested_requests(field: Field) -> None:
    """The same after WELCOME, also where the payload of a known request belongs."""
    await field.together(_AT_ONCE, lambda: _send_nested(field, True))


async def _send_nested(field: Field, is_welcome: bool) -> None:
    async with field.encrypted(field.rng.choice(field.names)) as link:
        samples = [hello_of(field.config, kind, field.order.token) for kind in ("client", "observer", "process")]
        if is_welcome:
            await link.hello(field, field.rng.choice(["client", "observer"]))
            samples = _requests(link)
        link.write(with_nested(field.rng.choice(samples), field.rng.choice(_DEPTHS), field.rng))
        field.done["frames"] += 1
        await link.flush()
        await link.until_closed()


async def mutated_hello(field: Field) -> None:
    """HELLOs with some bytes changed, left out or added."""
    await field.together(_AT_ONCE, lambda: _send_mutated(field, False))


async def mutated_requests(field: Field) -> None:
    """The same of all requests, after WELCOME."""
    await field.together(_AT_ONCE, lambda: _send_mutated(field, True))


async def _send_mutated(field: Field, is_welcome: bool) -> None:
    async with field.encrypted(field.rng.choice(field.names)) as link:
        if is_welcome:
            await link.hello(field, "client")
            field.note(link.client)
            samples = _requests(link)
        else:
            samples = [hello_of(field.config, kind, field.order.token) for kind in ("client", "observer", "process")]
        for _ in range(_FRAMES):
            link.write(mutated(field.rng.choice(samples), field.rng))
        field.done["frames"] += _FRAMES
        await link.flush()
        await link.until_closed()


def _requests(link: Link) -> list[bytes]:
    messages = (link.message((1,)), link.message((2,)), link.message((1, 2), b"y" * 100))
    others = (Attach(link.client, link.ticket), Detach(link.client), Follow(1, 0), Unfollow(), StatusQuery())
    return [encode(Start(messages)), *map(msgspec.msgpack.encode, others)]


def mutated(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) or 1)
        match rng.randrange(5):
            case 0:
                changed[at : at + 1] = bytes((rng.randrange(256),))
            case 1:
                del changed[at : at + rng.randint(1, 8)]
            case 2:
                changed[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                changed[at : at + 1] = b"\xcf" + rng.choice([b"\xff" * 8, b"\x7f" + b"\xff" * 7, bytes(8)])
            case _:
                changed[at:at] = changed[: rng.randint(0, len(changed))]
    return bytes(changed)
