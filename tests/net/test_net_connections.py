"""Connections of strangers: what they cost, how long they last, how many there may be; and what they can't do."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

import pytest

from amcast.net.client.async_client import connect
from amcast.net.node.connection import Connection
from amcast.net.wire.dialer import Channel

from .clusters import eventually, run, running
from .test_net_frames import client_hello, framed


@contextmanager
def without_collector() -> Iterator[None]:
    """What goes now goes because nothing refers to it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def noted(monkeypatch: pytest.MonkeyPatch, kind: type[object]) -> WeakSet[object]:
    """All objects of this kind that are alive, of those that are made from now on."""
    alive: WeakSet[object] = WeakSet()
    init = kind.__init__

    def noting_init(self: object, *args: object) -> None:
        init(self, *args)
        alive.add(self)

    monkeypatch.setattr(kind, "__init__", noting_init)
    return alive


# -- memory


@pytest.mark.parametrize("has_tls", [False, True])
def test_nothing_is_left_of_a_connection_that_has_ended(
    has_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, dialed = noted(monkeypatch, Connection), noted(monkeypatch, Channel)

    async def test() -> None:
        async with running(tmp_path / "c", groups=1, tls=has_tls) as cluster:
            (host, port), *_ = cluster.config.addresses().values()
            with without_collector():
                before, dialed_before = len(alive), len(dialed)
                for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\5hello", framed(client_hello(version=7))):
                    for _ in range(5):
                        reader, writer = await asyncio.open_connection(host, port)
                        writer.write(said)
                        writer.write_eof()
                        async with asyncio.timeout(10):
                            await reader.read()
                        writer.transport.abort()
                for _ in range(5):
                    async with connect(cluster.config) as client:
                        await client.multicast(["g1"], b"x")
                        await anext(client.deliveries("g1"))
                await eventually(lambda: len(alive) == before, "connections are gone")
                await eventually(lambda: len(dialed) == dialed_before, "and their other ends")

    run(test)
