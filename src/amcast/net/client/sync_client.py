"""The client for programs without an event loop: the same calls, which block. Its loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from ...core import MessageId, ProcessId
from ..wire.control import Status
from .async_client import AsyncClient, Payload, connect
from .observer import Delivery, Where

T = TypeVar("T")


class SyncClient:
    """A client whose calls block, for programs without an event loop. Made by `connect_sync`, and opened by `with`.

    Threads may share it.
    """

    def __init__(self, client: AsyncClient, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop`: of the client whose connections this one shares."""
        self._client = client
        self._loop = loop or asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        if loop is None:
            self._thread = threading.Thread(target=self._loop.run_forever, name="amcast-client", daemon=True)

    def __enter__(self) -> SyncClient:
        if self._thread is not None:
            self._thread.start()
        try:
            self._call(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call(self._client.__aexit__(kind, error, trace))
        finally:
            self._end()

    def _end(self) -> None:
        if self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._start(work).result()

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def multicast(self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0) -> MessageId:
        """Returns the message's id when every destination group has delivered it. See `AsyncClient.multicast`."""
        return self._call(self._client.multicast(groups, payload, timeout))

    def call(
        self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0
    ) -> dict[str, bytes | None]:
        """Like `multicast`, and returns what the application of each group answered, as {"g1": b"..."}."""
        return self._call(self._client.call(groups, payload, timeout))

    def call_nowait(
        self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0
    ) -> Future[dict[str, bytes | None]]:
        """For many calls at a time: the future has what `call` returns, or raises what it raises."""
        return self._start(self._client.call(groups, payload, timeout))

    @property
    def groups(self) -> list[str]:
        """The names of all groups, as g1."""
        return self._client.groups

    def session(self) -> SyncClient:
        """Another client on the connections of this one, and in its thread: to be closed before this one."""
        return SyncClient(self._client.session(), self._loop)

    def status(self, process: ProcessId, timeout: float = 5.0) -> Status:
        """How a process is, by its number, from 0 on in the order of groups and members."""
        return self._call(self._client.status(process, timeout))

    def multicast_nowait(
        self, groups: str | Iterable[str], payload: Payload, timeout: float | None = 30.0
    ) -> Future[MessageId]:
        """For many messages at a time: the future is done when every destination group has delivered the message."""
        return self._start(self._client.multicast(groups, payload, timeout))

    def deliveries(self, group: str, position: int = 0) -> Iterator[Delivery]:
        """What a group delivered from a position on, and then what it delivers from now on; blocks for the next."""
        stream = self._client.deliveries(group, position)
        try:
            while True:
                yield self._call(stream.__anext__())
        finally:
            self._call(stream.aclose())


def connect_sync(where: Where, **settings: Any) -> SyncClient:
    """Like `connect`, for programs without an event loop: the same arguments, and calls that block.

        with amcast.connect_sync("cluster.toml") as client:
            client.multicast({"g1", "g2"}, b"transfer 10 from a to b")

    Its event loop runs in a thread of its own.
    """
    return SyncClient(connect(where, **settings))
