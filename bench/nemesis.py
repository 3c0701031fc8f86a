"""Injects faults into a real cluster under load, and checks that it stays correct.

    python -m bench.nemesis --protocol fastcast --rounds 20

Each round strikes one process or group, for a second or two: kill -9 and restart, SIGSTOP, cut links, a full disk, a
clock that jumps. Clients multicast all the time. In the end the checker must accept the run, and every message that was
acknowledged to a client must be delivered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec

from amcast.check import check_run
from amcast.net.client.async_client import AsyncClient
from amcast.net.config import ClusterConfig, format_config
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan
from amcast.trace import read_run

BALLAST = "ballast"
DISK_MB = 64


class Proxy:
    """Forwards the connections from one process to another, so that their link can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.is_cut = False

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            if not self.is_cut:
                other_reader, other = await asyncio.open_connection(*self._target)
                self._writers.add(other)
                ways = [asyncio.create_task(w) for w in (_pump(reader, other), _pump(other_reader, writer))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
        except (OSError, asyncio.CancelledError):
            pass  # the target is down, or the benchmark ends: this connection is closed
        finally:
            for each in (writer, other):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    def cut(self) -> None:
        self.is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        self.is_cut = False

    def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


class ProxiedCluster(LocalCluster):
    """Every process has a configuration of its own, in which the addresses of the others are those of proxies."""

    def config_file(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    async def connect_links(self) -> None:
        self.proxies: dict[tuple[str, str], Proxy] = {}
        self.views: dict[str, ClusterConfig] = {}
        for name in self.names:
            entries = []
            for entry in self.config.process:
                if entry.id != name:
                    host, _, port = entry.address.rpartition(":")
                    proxy = self.proxies[name, entry.id] = Proxy(host, int(port))
                    entry = msgspec.structs.replace(entry, address=f"127.0.0.1:{await proxy.listen()}")
                entries.append(entry)
            self.write_view(msgspec.structs.replace(self.config, process=tuple(entries)), name)

    def write_view(self, config: ClusterConfig, name: str) -> None:
        self.views[name] = config
        self.config_file(name).write_text(format_config(config))

    def step_clock(self, name: str, offset_us: int) -> None:
        view = self.views[name]
        entries = tuple(
            msgspec.structs.replace(entry, clock_offset_us=offset_us) if entry.id == name else entry
            for entry in view.process
        )
        self.write_view(msgspec.structs.replace(view, process=entries), name)
        self.signal(name, signal.SIGHUP)

    def links_of(self, name: str) -> list[Proxy]:
        return [proxy for ends, proxy in self.proxies.items() if name in ends]


class Nemesis:
    def __init__(self, cluster: ProxiedCluster, rng: Random, disks: bool) -> None:
        self._cluster = cluster
        self._rng = rng
        self._faults = [self.kill, self.kill_leader, self.pause, self.cut, self.kill_majority, self.clock_step]
        if disks:
            self._faults.append(self.fill_disk)

    async def round(self, number: int) -> str:
        fault = self._faults[number % len(self._faults)]
        victim = self._rng.choice(self._cluster.names)
        what = await fault(victim)
        return f"{fault.__name__.replace('_', '-')} {what}"

    async def _a_while(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.5, 2.0))

    async def kill(self, victim: str) -> str:
        self._cluster.kill(victim)
        await self._a_while()
        self._cluster.start([victim])
        return victim

    async def kill_leader(self, victim: str) -> str:
        group = victim.split(".")[0]
        for name, status in (await self._cluster.statuses()).items():
            if status is not None and status.group == group and status.is_leader:
                victim = name
        return await self.kill(victim)

    async def kill_majority(self, victim: str) -> str:
        group = victim.split(".")[0]
        members = [name for name in self._cluster.names if name.startswith(group + ".")]
        victims = self._rng.sample(members, len(members) // 2 + 1)
        for name in victims:
            self._cluster.kill(name)
        await self._a_while()
        self._cluster.start(victims)
        return " ".join(victims)

    async def pause(self, victim: str) -> str:
        self._cluster.signal(victim, signal.SIGSTOP)
        await self._a_while()
        self._cluster.signal(victim, signal.SIGCONT)
        return victim

    async def cut(self, victim: str) -> str:
        links = self._cluster.links_of(victim)
        for link in links:
            link.cut()
        await self._a_while()
        for link in links:
            link.heal()
        return f"all links of {victim}"

    async def clock_step(self, victim: str) -> str:
        await self._cluster.wait_until_ready(60)  # a process that is starting ignores the signal
        offset = self._rng.randint(-3_600_000_000, 3_600_000_000)
        self._cluster.step_clock(victim, offset)
        return f"of {victim} by {offset / 1e6:.0f} s"

    async def fill_disk(self, victim: str) -> str:
        await self._cluster.wait_until_ready(60)  # a process refuses to start on a full disk
        path = self._cluster.config.data_folder(victim) / BALLAST
        with suppress(OSError), path.open("wb") as ballast:
            while True:
                ballast.write(bytes(1 << 16))
                ballast.flush()
        await self._a_while()
        path.unlink()
        return victim


class Load:
    """Clients that multicast one message after the other, and remember which were acknowledged."""

    def __init__(self, cluster: ProxiedCluster, clients: int) -> None:
        self._cluster = cluster
        self._clients = clients
        self._stop = asyncio.Event()
        self.acknowledged: list[int] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._run_one(Random(number)))

    def stop(self) -> None:
        self._stop.set()

    async def _run_one(self, rng: Random) -> None:
        async with self._cluster.client() as client:
            while not self._stop.is_set():
                dst = rng.choice([["g1"], ["g2"], ["g1", "g2"]])
                await self._send(client, dst)

    async def _send(self, client: AsyncClient, dst: list[str]) -> None:
        id_, future = client.submit(dst, b"x" * 64)
        await asyncio.shield(future)
        self.acknowledged.append(id_)


async def torment(folder: Path, protocol: str, rounds: int, seed: int, clients: int, disks: bool) -> dict[str, object]:
    config = plan(folder, protocol, 2, 3, durability=Durability.SYNC, trace=True)
    mounted = _mount_disks(config) if disks else []
    ProxiedCluster.create(folder, config)
    cluster = ProxiedCluster(folder)
    await cluster.connect_links()
    done: list[str] = []
    load = Load(cluster, clients)
    loading = asyncio.create_task(asyncio.sleep(0))
    try:
        cluster.start()
        await cluster.wait_until_ready()
        loading = asyncio.create_task(load.run())
        nemesis = Nemesis(cluster, Random(seed), bool(mounted))
        begun = time.monotonic()
        for number in range(rounds):
            await asyncio.sleep(0.5)
            done.append(await nemesis.round(number))
            print(f"  {time.monotonic() - begun:6.1f} s  {done[-1]}  ({len(load.acknowledged):,} acknowledged)")
        await cluster.wait_until_ready(60)
        load.stop()
        async with asyncio.timeout(120):
            await loading
        drained = await cluster.drain(60)
        cluster.stop()
        return {"protocol": protocol, "rounds": rounds, **_judge(cluster, load, drained, done)}
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        cluster.stop()
        for proxy in cluster.proxies.values():
            proxy.close()
        for path in mounted:
            subprocess.run(["umount", "-l", str(path)], check=False)


def _mount_disks(config: ClusterConfig) -> list[Path]:
    """A small disk for the data of each process, if this user may mount."""
    mounted: list[Path] = []
    for entry in config.process:
        path = config.data_folder(entry.id)
        path.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(path)]
        if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
            break
        mounted.append(path)
    return mounted


def _judge(cluster: ProxiedCluster, load: Load, drained: bool, done: list[str]) -> dict[str, object]:
    out = cluster.folder / "run"
    report = cluster.collect(out, drained)
    run = read_run(out)
    verdict = check_run(run)
    delivered: Counter[tuple[int, int]] = Counter()
    for process, message in zip(run.deliveries.process.tolist(), run.deliveries.msg.tolist(), strict=True):
        delivered[process, message] += 1
    group_of = {process: group.id for group in run.info.groups for process in group.processes}
    groups_with = {(group_of[process], message) for process, message in delivered}
    lost = [id_ for id_ in load.acknowledged if not any((group, id_) in groups_with for group in (1, 2))]
    return {
        "faults": dict(Counter(what.split()[0] for what in done)),
        "acknowledged": len(load.acknowledged),
        "deliveries": report.deliveries,
        "verdict": verdict.verdict,
        "missing": list(run.info.missing),
        "violations": [violation.explanation for violation in verdict.violations[:5]],
        "lost": len(lost),
        "duplicates": sum(count > 1 for count in delivered.values()),
        "drained": drained,
    }


def is_good(result: dict[str, object]) -> bool:
    return bool(
        result["verdict"] == "pass" and not result["lost"] and not result["duplicates"] and result["acknowledged"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", action="append", help="may be given more than once; fastcast and basecast if not")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-disks", action="store_true", help="leave out full disks, which need the right to mount")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and trace")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    return max(_run(protocol, options) for protocol in options.protocol or ("fastcast", "basecast"))


def _run(protocol: str, options: argparse.Namespace) -> int:
    folder = Path(tempfile.mkdtemp(prefix="amcast-nemesis-"))
    try:
        work = torment(
            folder / "cluster", protocol, options.rounds, options.seed, options.clients, not options.no_disks
        )
        result = asyncio.run(work)
    finally:
        if options.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:14} {value}")
    return 0 if is_good(result) else 1


if __name__ == "__main__":
    sys.exit(main())
