"""Takes connections from listening sockets. Each is asked for, by its address, before anything is made for it.

A process that runs out of descriptors must not spend its time on callers that it can't take: it leaves them in the
kernel's queue for a moment, and goes on.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, cast

_ACCEPTED_A_TURN = 64  # the loop has others to serve
_PAUSE_S = 0.1
_NO_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Caller:
    """What the protocol of an accepted connection has besides."""

    accepted: socket.socket | None = None  # until the connection is made
    _transport: asyncio.Transport | None = None  # from then on

    def protocol(self) -> asyncio.BaseProtocol:
        """Who takes what comes: this object itself, or somebody in between."""
        return cast(asyncio.BaseProtocol, self)

    def never_made(self, error: OSError) -> None:
        """The connection ended before it was made: neither `connection_made` nor `connection_lost` is called."""

    def cut(self) -> None:
        """At once, without a word, whether or not it is made already.

        A handshake that is under way can't be cancelled at every moment: some event loops lose the socket then. So the
        socket ends, and the handshake finds that out by itself.
        """
        if self._transport is not None:
            self._transport.abort()
        elif self.accepted is not None:
            with suppress(OSError):  # the caller has left already
                self.accepted.shutdown(socket.SHUT_RDWR)


class Doorkeeper(Protocol):
    def admit(self, host: str) -> Caller | None:
        """The protocol of the connection. None: it is closed."""

    def on_exhausted(self, error: OSError) -> None:
        """No connection can be accepted for now: there are no descriptors, or there is no memory, for more."""


class Acceptor:
    def __init__(
        self,
        sockets: Sequence[socket.socket],
        doorkeeper: Doorkeeper,
        tls: ssl.SSLContext | None,
        handshake_s: float,
    ) -> None:
        self._sockets = sockets
        self._doorkeeper = doorkeeper
        self.tls = tls  # for connections to come
        self._handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], Caller] = {}
        self._is_closed = False
        for each in sockets:
            self._loop.add_reader(each, self._accept, each)

    async def close(self) -> None:
        """Connections that are made stay."""
        self._is_closed = True
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        for caller in self._handshakes.values():
            caller.cut()
        if self._handshakes:
            await asyncio.wait(self._handshakes, timeout=self._handshake_s)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_A_TURN):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    continue  # the caller has left already
                self._doorkeeper.on_exhausted(error)
                self._loop.remove_reader(listening)
                self._loop.call_later(_PAUSE_S, self._listen_again, listening)
                return
            caller = self._doorkeeper.admit(address[0])
            if caller is None:
                accepted.close()
            else:
                self._begin(accepted, caller)

    def _listen_again(self, listening: socket.socket) -> None:
        if not self._is_closed:
            self._loop.add_reader(listening, self._accept, listening)

    def _begin(self, accepted: socket.socket, caller: Caller) -> None:
        accepted.setblocking(False)
        caller.accepted = accepted
        task = self._loop.create_task(self._make(accepted, caller))
        self._handshakes[task] = caller
        task.add_done_callback(self._handshakes.pop)

    async def _make(self, accepted: socket.socket, caller: Caller) -> None:
        timeout = self._handshake_s if self.tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                caller.protocol,
                accepted,
                ssl=self.tls,
                ssl_handshake_timeout=timeout,
                ssl_shutdown_timeout=timeout,
            )
        except OSError as error:
            caller.never_made(error)
        finally:
            caller.accepted = None
