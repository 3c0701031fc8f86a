"""The systems that are compared: how each is started, put under load, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import shutil
import subprocess
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from amcast.net.config import Limits
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, free_ports, plan

from ._children import Worker, end, spawn
from ._jobs import Job, Outcome, Ready, Shape
from ._load_nats import create_stream

REPLICAS = 3
_READY_S = 30.0
_RUN_S = 120.0


class System(ABC):
    """A cluster and its load, running for the length of a `with` block. It makes `folder` and removes it at the end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @abstractmethod
    def _start(self) -> None:
        """Starts servers and load, and registers with `_ends` how each of them is ended."""

    @abstractmethod
    def run(self, shape: Shape, messages: int) -> Outcome: ...

    def _worker(self, module: str, *arguments: str) -> Worker:
        worker = Worker(f"bench.cluster.{module}", *arguments)
        self._ends.callback(worker.end)
        return worker

    def _servers(self, commands: list[list[str]]) -> list[subprocess.Popen[bytes]]:
        servers: list[subprocess.Popen[bytes]] = []
        self._ends.callback(end, servers)
        for number, command in enumerate(commands):
            servers.append(spawn(command, self.folder / f"{number}.log"))
        return servers

    def _wait_until(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_S
        while not is_ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{type(self).__name__} is not ready after {_READY_S:g} s; see {self.folder}")
            time.sleep(0.1)


class Amcast(System):
    """The sessions of the load share one connection to each node (`shares`), or each has connections of its own."""

    def __init__(
        self,
        folder: Path,
        durability: Durability = Durability.MEMORY,
        groups: int = 1,
        trace: bool = False,
        shares: bool = True,
        protocol: str = "fastcast",
        tls: bool = False,
        payload_bytes: int = 64,
    ) -> None:
        super().__init__(folder)
        nodes = folder / "nodes"
        whole = Limits(trace_bytes=0)
        replicas = REPLICAS if protocol == "fastcast" else None
        self.cluster = LocalCluster.create(
            nodes, plan(nodes, protocol, groups, replicas, durability=durability, trace=trace, tls=tls, limits=whole)
        )
        self._groups = groups
        self._connections = 1 if shares else None
        self._payload_bytes = payload_bytes

    def _start(self) -> None:
        self._ends.callback(self.cluster.stop)
        self.cluster.start()
        asyncio.run(self.cluster.wait_until_ready(_READY_S))
        self._load = self._worker("_load_amcast")

    @property
    def where(self) -> list[str]:
        return [str(self.cluster.config_file(self.cluster.names[0]))]

    def pids(self) -> dict[str, int]:
        pids = {name: self.cluster.pid(name) for name in self.cluster.names}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def run(self, shape: Shape, messages: int) -> Outcome:
        """With several groups, every message goes to all of them."""
        pids = list(self.pids().values())
        job = Job(self.where, shape, messages, self._groups, pids, self._connections, self._payload_bytes)
        return self._load.ask(job, Outcome, _RUN_S)


class PySyncObj(System):
    def __init__(self, folder: Path, batches: bool = True) -> None:
        super().__init__(folder)
        self._batches = batches

    def _start(self) -> None:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(REPLICAS)]
        how = "batches" if self._batches else "single"
        self._nodes = [self._worker("_node_pysyncobj", str(index), how, *addresses) for index in range(REPLICAS)]
        self._nodes[0].hear(Ready, _READY_S)

    def run(self, shape: Shape, messages: int) -> Outcome:
        return self._nodes[0].ask(Job([], shape, messages, 1, [node.pid for node in self._nodes]), Outcome, _RUN_S)


class Etcd(System):
    def _start(self) -> None:
        ports = free_ports(2 * REPLICAS)
        clients = [f"http://127.0.0.1:{port}" for port in ports[:REPLICAS]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[REPLICAS:]]
        cluster = ",".join(f"n{number}={peer}" for number, peer in enumerate(peers))
        self._running = self._servers(
            [
                [
                    *("etcd", "--name", f"n{number}", "--data-dir", str(self.folder / f"n{number}")),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
                    *("--logger", "zap", "--log-level", "error"),
                ]
                for number, (client, peer) in enumerate(zip(clients, peers, strict=True))
            ]
        )
        self._leader = ""

        def has_leader() -> bool:
            self._leader = next((client for client in clients if _leads(client)), "")
            return bool(self._leader)

        self._wait_until(has_leader)
        self._load = self._worker("_load_etcd")

    def run(self, shape: Shape, messages: int) -> Outcome:
        pids = [server.pid for server in self._running]
        where = [self._leader.removeprefix("http://")]  # a follower would forward everything to it
        return self._load.ask(Job(where, shape, messages, 1, pids), Outcome, _RUN_S)


def _leads(client: str) -> bool:
    try:
        with urllib.request.urlopen(f"{client}/metrics", timeout=1) as answer:
            return "\netcd_server_is_leader 1\n" in answer.read().decode()
    except OSError:
        return False


class Nats(System):
    def _start(self) -> None:
        ports = free_ports(2 * REPLICAS)
        self._clients = [f"127.0.0.1:{port}" for port in ports[:REPLICAS]]
        self._leader = ""
        routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports[REPLICAS:])
        self._running = self._servers(
            [
                [
                    *("nats-server", "-a", "127.0.0.1", "-p", str(client), "-n", f"n{number}"),
                    *("-js", "-sd", str(self.folder / f"n{number}"), "--cluster_name", "bench"),
                    *("--cluster", f"nats://127.0.0.1:{peer}", "--routes", routes),
                ]
                for number, (client, peer) in enumerate(zip(ports[:REPLICAS], ports[REPLICAS:], strict=True))
            ]
        )
        self._wait_until(self._has_leader)
        self._load = self._worker("_load_nats")

    def _has_leader(self) -> bool:
        try:
            name = asyncio.run(asyncio.wait_for(create_stream(self._clients[0], REPLICAS), 5))
        except (OSError, TimeoutError):
            return False
        if name:
            self._leader = self._clients[int(name.removeprefix("n"))]
        return bool(name)

    def run(self, shape: Shape, messages: int) -> Outcome:
        pids = [server.pid for server in self._running]
        return self._load.ask(Job([self._leader], shape, messages, 1, pids), Outcome, _RUN_S)


SYSTEMS: dict[str, Callable[[Path], System]] = {
    "amcast": Amcast,
    "amcast-traced": lambda folder: Amcast(folder, trace=True),
    "amcast-2-groups": lambda folder: Amcast(folder, groups=2),
    "amcast-sync": lambda folder: Amcast(folder, Durability.SYNC),
    "amcast-apart": lambda folder: Amcast(folder, shares=False),
    "amcast-apart-sync": lambda folder: Amcast(folder, Durability.SYNC, shares=False),
    "amcast-1kB": lambda folder: Amcast(folder, payload_bytes=1_000),
    "byzcast": lambda folder: Amcast(folder, protocol="byzcast"),
    "byzcast-tls": lambda folder: Amcast(folder, protocol="byzcast", tls=True),
    "byzcast-sync": lambda folder: Amcast(folder, Durability.SYNC, protocol="byzcast"),
    "byzcast-1kB": lambda folder: Amcast(folder, protocol="byzcast", payload_bytes=1_000),
    "byzcast-1kB-sync": lambda folder: Amcast(folder, Durability.SYNC, protocol="byzcast", payload_bytes=1_000),
    "pysyncobj": PySyncObj,
    "pysyncobj-unbatched": lambda folder: PySyncObj(folder, batches=False),
    "nats": Nats,
    "etcd": Etcd,
}


def missing(name: str) -> str | None:
    """Why a system can't run here."""
    if name.startswith("pysyncobj"):
        return None if importlib.util.find_spec("pysyncobj") else "not installed: `pip install pysyncobj`"
    binary = {"etcd": "etcd", "nats": "nats-server"}.get(name)
    if binary is None or shutil.which(binary):
        return None
    package = {"etcd": "etcd-server", "nats": "nats-server"}[name]
    return f"not installed: there is no `{binary}` on the path (Debian's package is {package})"
