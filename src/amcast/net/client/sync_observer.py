"""The observer for programs without an event loop: the same calls, which block. A thread of its own runs its loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ...core import ProcessId, UsageError
from ..wire.control import Layout, Placement, Status
from .observer import Delivery, Observer, Where, observe

T = TypeVar("T")


class SyncObserver:
    """An observer whose calls block, for programs without an event loop. Made by `observe_sync`, and opened by `with`.

    Threads may share it.
    """

    def __init__(self, observer: Observer, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop`: of the client whose connections this one shares."""
        self._observer = observer
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._is_open = False

    def __enter__(self) -> Self:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="amcast-client", daemon=True)
            self._thread.start()
        self._is_open = True
        try:
            self._call(self._observer.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call(self._observer.__aexit__(kind, error, trace))
        finally:
            self._end()

    def _end(self) -> None:
        if self._thread is None or self._loop is None:
            self._is_open = False
            return
        self._call(self._loop.shutdown_asyncgens())  # streams of deliveries that were not read to their end
        self._is_open = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._start(work).result()

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if not self._is_open or self._loop is None:
            work.close()
            raise UsageError("this client is not open: use `with amcast.connect_sync(...) as client`")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def layout(self) -> Layout:
        """The cluster as its processes describe it: protocol, groups with their members, addresses."""
        return self._observer.layout

    @property
    def groups(self) -> list[str]:
        """The names of all groups, as g1."""
        return self._observer.groups

    def deliveries(self, group: str, position: int = 0) -> Iterator[Delivery]:
        """What a group delivered from a position on, and then what it delivers from now on; blocks for the next."""
        stream = self._observer.deliveries(group, position)
        try:
            while True:
                yield self._call(stream.__anext__())
        finally:
            if self._is_open:  # otherwise the end of the client has ended it
                self._call(stream.aclose())

    def end_of(self, group: str, timeout: float = 5.0) -> int:
        """The position that the group fills next, as far as its members answer."""
        return self._call(self._observer.end_of(group, timeout))

    def status(self, process: ProcessId, timeout: float = 5.0) -> Status:
        """How a process is, by its number, from 0 on in the order of groups and members."""
        return self._call(self._observer.status(process, timeout))

    def placement(self, process: ProcessId, object: str = "", moves: int = 0, timeout: float = 5.0) -> Placement:
        """What a process knows of the site of an object; without one, how placement goes there."""
        return self._call(self._observer.placement(process, object, moves, timeout))


def observe_sync(
    where: Where,
    *,
    name: str = "client",
    token: str = "",
    token_file: str | Path | None = None,
    certs: str | Path | None = None,
    region: str = "local",
    wait: float = 0.0,
) -> SyncObserver:
    """Like `amcast.observe`, for programs without an event loop."""
    return SyncObserver(
        observe(where, name=name, token=token, token_file=token_file, certs=certs, region=region, wait=wait)
    )
