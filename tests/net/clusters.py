"""Clusters for tests: all nodes in one event loop, real sockets and disks, no operating-system processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from amcast.net.config import ClusterConfig
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan
from amcast.net.node.application import StateMachine
from amcast.net.node.server import NodeServer


class Cluster:
    """Nodes can be stopped and started again by name."""

    def __init__(self, config: ClusterConfig, machines: dict[str, StateMachine]) -> None:
        self.config = config
        self.machines = machines
        self.servers: dict[str, NodeServer] = {}

    async def start(self, *names: str) -> None:
        for name in names or [entry.id for entry in self.config.process]:
            server = NodeServer(self.config, name, self.machines.get(name))
            self.servers[name] = server
            await server.start()

    async def start_and_wait(self, name: str) -> None:
        """Returns when the others have let it in."""
        await self.start(name)
        await eventually(lambda: self.servers[name].node.is_running, f"{name} takes part")

    async def stop(self, *names: str) -> None:
        for name in names or list(self.servers):
            await self.servers.pop(name).stop()

    def leader(self, group: int) -> str:
        for name, server in self.servers.items():
            if server.node.group == group and server.node.process.is_leader:
                return name
        raise LookupError(f"g{group} has no leader")

    def has_leaders(self) -> bool:
        """Whether everyone knows the process that orders for its group, and that process knows it as well."""
        nodes = {server.node.id: server.node for server in self.servers.values()}
        leaders = [node.process.leader for node in nodes.values()]
        are_running = all(node.is_running for node in nodes.values())
        return are_running and all(leader in nodes and nodes[leader].process.is_leader for leader in leaders)


async def eventually(condition: Callable[[], bool], what: str, timeout: float = 20.0) -> None:
    """Waits for a condition, not for a time: the timeout is how long a failing test takes."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.01)
    assert condition(), what


@asynccontextmanager
async def running(
    folder: Path,
    protocol: str = "fastcast",
    groups: int = 2,
    replicas: int | None = None,
    machines: dict[str, StateMachine] | None = None,
    keep_messages: int = 10_000_000,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    settings.setdefault("durability", Durability.MEMORY)
    config = msgspec.structs.replace(plan(folder, protocol, groups, replicas, **settings), keep_messages=keep_messages)
    cluster = Cluster(LocalCluster.create(folder, config).config, machines or {})
    try:
        await cluster.start()
        await eventually(cluster.has_leaders, "every group has a leader")
        yield cluster
    finally:
        await cluster.stop()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Each test has a loop of its own, of the kind that nodes use."""

    async def guarded() -> None:
        async with asyncio.timeout(120):
            await test()

    uvloop.run(guarded())
