"""Clients that multicast all the time, and remember what was acknowledged to them."""

from __future__ import annotations

import asyncio
import zlib
from random import Random

import msgspec

from amcast.apps.store import operation_of
from amcast.core import UsageError
from amcast.net.client.async_client import AsyncClient
from amcast.net.local import LocalCluster
from amcast.protocols.geopaxos.spec import objects_at

_DESTINATIONS = (("g1",), ("g2",), ("g1", "g2"))
_OUTSTANDING = 4  # messages of a client
_PAUSE_S = 0.03  # after each message, so that a run of minutes fits on small disks
_LIFE = (50, 300)  # how many messages a client sends before another one, with an id of its own, takes its place
_MOVES = 0.05  # of the operations
_SIZES = (16, 64, 256, 1_024)


class Acknowledged(msgspec.Struct, frozen=True):
    groups: tuple[str, ...]
    checksum: int  # of the payload


class Load:
    """A client sends to the same groups all its life: when one group is down, those of others go on."""

    def __init__(self, cluster: LocalCluster, clients: int) -> None:
        self._cluster = cluster
        self._clients = clients
        self._is_stopped = False
        self._operates = cluster.config.spec().orders_operations
        self._objects = {f"g{site}": objects_at(site, 8, (1, 2)) for site in (1, 2)} if self._operates else {}
        self.acknowledged: dict[int, Acknowledged] = {}
        self.reused_ids: list[int] = []  # two messages were acknowledged under each of these

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._send_to(_DESTINATIONS[number % len(_DESTINATIONS)], Random(number)))

    def stop(self) -> None:
        self._is_stopped = True

    async def _send_to(self, groups: tuple[str, ...], rng: Random) -> None:
        while not self._is_stopped:
            try:
                async with self._cluster.client() as client, asyncio.TaskGroup() as tasks:
                    count = rng.randint(*_LIFE) // _OUTSTANDING
                    for _ in range(_OUTSTANDING):
                        tasks.create_task(self._send_many(client, groups, count, Random(rng.random())))
            except UsageError:  # no node answers, or none gives out ids now, as one whose disk is full
                await asyncio.sleep(0.2)

    async def _send_many(self, client: AsyncClient, groups: tuple[str, ...], count: int, rng: Random) -> None:
        for _ in range(count):
            if self._is_stopped:
                return
            if self._operates:
                await self._operate(client, groups, rng)
            else:
                payload = rng.randbytes(rng.choice(_SIZES))
                id_, future = client.submit(groups, payload)
                await future
                self._note(id_, groups, payload)
            await asyncio.sleep(_PAUSE_S)

    async def _operate(self, client: AsyncClient, groups: tuple[str, ...], rng: Random) -> None:
        """An operation on objects of these sites, or on any if they have moved. Clients write down what they did."""
        if rng.random() < 0.1:
            await client.query(groups[0], operation_of([("get", rng.choice(self._objects[groups[0]]))]), timeout=None)
            return
        names = [rng.choice(self._objects[group]) for group in groups]
        steps: list[tuple[str | int, ...]] = [("get", name) for name in names]
        if rng.random() < 0.7:
            steps += [("put", name, rng.getrandbits(52)) for name in names]
        payload = operation_of(steps, rng.choice((1, 2)) if rng.random() < _MOVES else 0)
        id_, answer = client.submit_call(client.groups, payload, None)
        await answer
        self._note(id_, tuple(client.groups), payload)

    def _note(self, id_: int, groups: tuple[str, ...], payload: bytes) -> None:
        if id_ in self.acknowledged:
            self.reused_ids.append(id_)
        self.acknowledged[id_] = Acknowledged(groups, zlib.crc32(payload))
