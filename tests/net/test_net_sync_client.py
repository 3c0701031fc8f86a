"""The blocking client has whatever the asynchronous one has, under the same names and with the same options."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import amcast
from amcast.core import message_id
from amcast.core.ids import sender_of, seq_of
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.client.observer import Observer, observe
from amcast.net.client.sync_client import SyncClient, connect_sync
from amcast.net.client.sync_observer import SyncObserver, observe_sync
from amcast.net.disk.records import Durability
from tests.net.clusters import run, running

# What a blocking client has besides, for work that goes on meanwhile.
OWN = {"multicast_nowait", "call_nowait", "query_nowait"}


def surface(kind: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("theirs", "ours"), [(Observer, SyncObserver), (AsyncClient, SyncClient)])
def test_everything_public_is_there(theirs: type, ours: type) -> None:
    assert set(surface(theirs)) == set(surface(ours)) - OWN


@pytest.mark.parametrize(("theirs", "ours"), [(Observer, SyncObserver), (AsyncClient, SyncClient)])
def test_methods_take_the_same(theirs: type, ours: type) -> None:
    for name, method in surface(theirs).items():
        other = surface(ours)[name]
        assert isinstance(method, property) == isinstance(other, property), name
        if not isinstance(method, property):
            assert inspect.signature(method).parameters == inspect.signature(other).parameters, name


@pytest.mark.parametrize(("theirs", "ours"), [(connect, connect_sync), (observe, observe_sync)])
def test_both_are_opened_in_the_same_way(theirs: Any, ours: Any) -> None:
    assert inspect.signature(theirs).parameters == inspect.signature(ours).parameters


def test_what_blocks_does_the_same(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=2, durability=Durability.MEMORY) as cluster:

            def use() -> None:
                with amcast.connect_sync(cluster.config, wait=1.0) as client:
                    assert client.layout.groups.keys() == {1, 2}
                    assert not client.uses_new_files or client.uses_new_files is True
                    id_, delivered = client.submit({"g1", "g2"}, b"one")
                    delivered.result(30)
                    assert client.multicast("g1", b"two") == message_id(sender_of(id_), seq_of(id_) + 1)
                    assert client.end_of("g1") == 2
                    with pytest.raises(amcast.UsageError, match="there is no group 'g9'"):
                        client.submit("g9", b"")
                with amcast.observe_sync(cluster.config) as observer:
                    assert observer.end_of("g2") == 1
                    stream = observer.deliveries("g1", 1)
                    assert next(stream).payload == b"two"
                with pytest.raises(amcast.UsageError, match="this client is not open"):
                    next(stream)
                with pytest.raises(amcast.UsageError, match="this client is not open"):
                    amcast.connect_sync(cluster.config).multicast("g1", b"")

            await asyncio.to_thread(use)

    run(test)
