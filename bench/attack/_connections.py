"""Connections without end: of strangers who say nothing, of those who speak slowly, and of those who come and go."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
import struct
from collections import deque

from ._tools import BROKEN, Field, hello_of

_RESET = struct.pack("ii", 1, 0)  # a closed socket leaves nothing behind, so that the attacker's ports do not run out
_SPARE_FILES = 200
_AT_ONCE = 200
_SLOW = 100  # connections that speak slowly, at a time
_DRIP_S = 0.2


async def mute_connections(field: Field) -> None:
    """As many TCP connections as ordered, which stay open and say nothing. When files run out, the oldest is closed."""
    await _open_all(field, b"")


async def half_handshakes(field: Field) -> None:
    """The same, with the first half of a TLS handshake's first message."""
    first = _client_hello(field.tls)
    await _open_all(field, first[: len(first) // 2])


async def _open_all(field: Field, greeting: bytes) -> None:
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES
    addresses = [field.address(name) for name in field.names]
    held: deque[socket.socket] = deque()
    pause_s = field.order.seconds * 0.8 * _AT_ONCE / max(1, field.order.connections)
    try:
        while field.done["connections"] < field.order.connections and not field.is_over:
            for _ in range(_AT_ONCE):
                if len(held) >= room:
                    held.popleft().close()
                held.append(_open(field, addresses[field.done["connections"] % len(addresses)]))
            await asyncio.sleep(pause_s)
            if greeting:
                _greet(list(held)[-_AT_ONCE:], greeting)
        await asyncio.sleep(field.left_s)
    finally:
        for each in held:
            each.close()


def _open(field: Field, address: tuple[str, int]) -> socket.socket:
    each = socket.socket()
    each.setblocking(False)
    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    each.bind((field.source(), 0))
    if each.connect_ex(address) in (0, errno.EINPROGRESS):
        field.done["connections"] += 1
    return each


def _greet(sockets: list[socket.socket], greeting: bytes) -> None:
    for each in sockets:
        try:
            each.send(greeting)
        except OSError:  # not connected yet, or not any more
            continue


def _client_hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def slow_handshakes(field: Field) -> None:
    """One byte of a TLS handshake after the other."""
    await field.together(_SLOW, lambda: _drip_handshake(field))


async def _drip_handshake(field: Field) -> None:
    host, port = field.address(field.rng.choice(field.names))
    _, writer = await asyncio.open_connection(host, port, local_addr=(field.source(), 0))
    field.done["connections"] += 1
    try:
        await _drip(field, writer, _client_hello(field.tls))
    finally:
        writer.transport.abort()


async def _drip(field: Field, writer: asyncio.StreamWriter, data: bytes) -> None:
    for byte in data:
        writer.write(bytes((byte,)))
        await writer.drain()
        field.done["bytes"] += 1
        await asyncio.sleep(_DRIP_S)


async def slow_hello(field: Field) -> None:
    """With a certificate, one byte of HELLO after the other."""
    await field.together(_SLOW, lambda: _drip_hello(field))


async def _drip_hello(field: Field) -> None:
    async with field.encrypted(field.rng.choice(field.names)) as link:
        data = hello_of(field.config, "client", field.order.token)
        await _drip(field, link.writer, len(data).to_bytes(4, "big") + data)


async def half_frames(field: Field) -> None:
    """Welcome, it announces a frame as large as a client's may be, and sends that a bit at a time."""
    await field.together(_SLOW, lambda: _drip_frame(field))


async def _drip_frame(field: Field) -> None:
    async with field.entered(field.rng.choice(field.names)) as link:
        size = 8 << 20
        link.writer.write(size.to_bytes(4, "big") + bytes(size // 2))
        field.done["frames"] += 1
        await _drip(field, link.writer, bytes(1_000))


async def coming_and_going(field: Field) -> None:
    """Whole TLS handshakes and HELLOs, one after the other."""
    await field.together(16, lambda: _come(field))


async def _come(field: Field) -> None:
    try:
        async with field.entered(field.rng.choice(field.names)):
            field.done["welcomes"] += 1
    except BROKEN:
        await asyncio.sleep(0.01)
