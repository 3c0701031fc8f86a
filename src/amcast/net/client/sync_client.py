"""The client for programs without an event loop: the same calls, which block. Its loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from ...core import MessageId
from .async_client import AsyncClient, Payload, connect
from .observer import Where
from .sync_observer import SyncObserver

T = TypeVar("T")


class SyncClient(SyncObserver):
    """A client whose calls block, for programs without an event loop. Made by `connect_sync`, and opened by `with`.

    Threads may share it.
    """

    def __init__(self, client: AsyncClient, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(client, loop)
        self._client = client

    def multicast(self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0) -> MessageId:
        """Returns the message's id when every destination group has delivered it. See `AsyncClient.multicast`."""
        return self._call(self._client.multicast(groups, payload, timeout))

    def call(
        self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0, *, key: str | None = None
    ) -> dict[str, bytes | None]:
        """Like `multicast`, and returns what the application of each group answered, as {"g1": b"..."}."""
        return self._call(self._client.call(groups, payload, timeout, key=key))

    def call_nowait(
        self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0, *, key: str | None = None
    ) -> Future[dict[str, bytes | None]]:
        """For many calls at a time: the future has what `call` returns, or raises what it raises."""
        return self._start(self._client.call(groups, payload, timeout, key=key))

    def skip(self, group: str, position: int, timeout: float | None = 30.0) -> None:
        """Has a group decide not to execute the message at this position."""
        self._call(self._client.skip(group, position, timeout))

    def query(
        self,
        group: str,
        payload: Payload,
        *,
        consistency: str = "linearizable",
        max_age: float = 1.0,
        timeout: float | None = 30.0,
    ) -> bytes | None:
        """Asks the application of one group, without ordering anything; see `AsyncClient.query`."""
        return self.query_nowait(group, payload, consistency=consistency, max_age=max_age, timeout=timeout).result()

    def query_nowait(
        self,
        group: str,
        payload: Payload,
        *,
        consistency: str = "linearizable",
        max_age: float = 1.0,
        timeout: float | None = 30.0,
    ) -> Future[bytes | None]:
        """For many queries at a time."""
        return self._start(
            self._client.query(group, payload, consistency=consistency, max_age=max_age, timeout=timeout)
        )

    def session(self) -> SyncClient:
        """Another client on the connections of this one, and in its thread: to be closed before this one."""
        return SyncClient(self._client.session(), self._loop)

    def multicast_nowait(
        self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0
    ) -> Future[MessageId]:
        """For many messages at a time: the future is done when every destination group has delivered the message."""
        return self._start(self._client.multicast(groups, payload, timeout))

    def submit(self, groups: str | Iterable[str], payload: Payload) -> tuple[MessageId, Future[None]]:
        """Like `multicast_nowait`, and tells the message's id at once. The future has no time limit."""

        async def submit() -> tuple[MessageId, Future[None]]:
            id_, delivered = self._client.submit(groups, payload)
            return id_, self._start(_until(asyncio.shield(delivered)))

        return self._call(submit())

    def submit_call(
        self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0, *, key: str | None = None
    ) -> tuple[MessageId, Future[dict[str, bytes | None]]]:
        """Like `call_nowait`, and tells the message's id at once."""

        async def submit() -> tuple[MessageId, Future[dict[str, bytes | None]]]:
            id_, answer = self._client.submit_call(groups, payload, timeout, key=key)
            return id_, self._start(answer)

        return self._call(submit())

    @property
    def uses_new_files(self) -> bool:
        """Whether all connections were made with the files of now: then older certificates and tokens may go."""
        return self._client.uses_new_files


async def _until(done: asyncio.Future[T]) -> T:
    return await done


def connect_sync(
    where: Where,
    *,
    name: str = "client",
    token: str = "",
    token_file: str | Path | None = None,
    certs: str | Path | None = None,
    region: str = "local",
    wait: float = 0.0,
    history: str | Path | None = None,
) -> SyncClient:
    """Like `connect`, for programs without an event loop: the same arguments, and calls that block.

        with amcast.connect_sync("cluster.toml") as client:
            client.multicast({"g1", "g2"}, b"transfer 10 from a to b")

    Its event loop runs in a thread of its own.
    """
    return SyncClient(
        connect(
            where,
            name=name,
            token=token,
            token_file=token_file,
            certs=certs,
            region=region,
            wait=wait,
            history=history,
        )
    )
