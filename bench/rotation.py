"""Rolls tokens, the CA and all certificates of a real cluster while clients send, and revokes two clients.

    python -m bench.rotation --clients 64

Nothing may be lost or delivered twice. It says how long a client waited at most; for comparison, how long when a leader
is killed; and how long after its revocation a client still got answers.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random

import uvloop

from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.config import ClusterConfig
from amcast.net.local import LocalCluster, plan
from amcast.net.security.access import add_token, revoke_token, write_secret
from amcast.net.security.certs import add_authority, drop_authorities, revoke, set_up
from amcast.net.security.identity import Identity

_WAIT_S = 60.0
_LOOK_S = 0.02
_FAILOVER_S = 2.0  # how long one takes at most, as the documentation says
_NAMES = ("client", "token-thief", "key-thief")


@dataclasses.dataclass
class Result:
    messages: int = 0
    lost: int = 0
    repeated: int = 0
    calm_s: float = 0.0  # the longest time between two answers to one client, before anything is rolled
    pause_s: float = 0.0  # while credentials are rolled
    failover_s: float = 0.0  # when a leader is killed
    token_out_s: float = 0.0  # from the revocation to the last answer
    certificate_out_s: float = 0.0

    @property
    def is_good(self) -> bool:
        outs = max(self.token_out_s, self.certificate_out_s)
        is_steady = self.pause_s <= max(self.failover_s, _FAILOVER_S)
        return self.messages > 0 and self.lost == self.repeated == 0 and outs < 1.0 and is_steady


class Sender:
    """Sends one message after the other, and notes when each was answered."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.client = client
        self.answered: list[tuple[float, tuple[str, ...], bytes]] = []
        self._name = name
        self._rng = Random(name)

    async def run(self) -> None:
        while True:
            dst = self._rng.choice((("g1",), ("g2",), ("g1", "g2")))
            payload = f"{self._name} {len(self.answered)}".encode()
            await self.client.multicast(dst, payload, timeout=None)
            self.answered.append((time.monotonic(), dst, payload))

    def pause_s(self, begin: float, end: float) -> float:
        """The longest between two answers."""
        times = [at for at, _, _ in self.answered if begin <= at <= end]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


class Rotation:
    """What an operator does, and waits for. Clients have a folder of certificates of their own."""

    def __init__(self, config: ClusterConfig, scratch: Path) -> None:
        assert config.tls is not None
        assert config.tokens is not None
        self.config = config
        self.tokens = config.path(config.tokens)
        self.nodes = config.path(config.tls.folder)
        self.clients = scratch / "clients"
        self.token = scratch / "clients.token"
        set_up(self.nodes, [Identity("client", name, config.cluster) for name in _NAMES[1:]])
        self.clients.mkdir()
        self.hand_out()
        write_secret(self.token, self.add("first"))

    def add(self, name: str) -> str:
        return add_token(self.tokens, name, ["*"], ["*"])

    def hand_out(self) -> None:
        """To clients, as a deployment would: each file appears whole."""
        for name in ("ca.crt", *(f"{who}.{kind}" for who in _NAMES for kind in ("key", "crt"))):
            draft = self.clients / f"{name}.new"
            shutil.copy(self.nodes / name, draft)
            draft.replace(self.clients / name)

    def issue_all(self) -> None:
        cluster = self.config.cluster
        processes = [Identity("process", entry.id, cluster) for entry in self.config.process]
        set_up(self.nodes, [*processes, *(Identity("client", name, cluster) for name in _NAMES)], force=True)

    def _changes(self) -> list[list[str]]:
        """What each node's audit log says of changed credentials."""
        audit = self.config.path(self.config.data) / "audit"
        logs = [(audit / f"{entry.id}.jsonl").read_text().splitlines() for entry in self.config.process]
        return [[line for line in log if "credentials changed" in line] for log in logs]

    async def is_read(self, what: str) -> None:
        """Waits until every node has written this down."""
        await _until(lambda: all(any(what in line for line in lines) for lines in self._changes()))

    async def change(self, step: Callable[[], object]) -> None:
        """Changes files, hands them out, and waits until every node has read them."""
        before = [len(lines) for lines in self._changes()]
        step()
        self.hand_out()
        await _until(lambda: all(len(now) > old for now, old in zip(self._changes(), before, strict=True)))

    # -- the steps

    async def roll_token(self, have_moved: Callable[[], bool]) -> None:
        second = self.add("second")
        await self.is_read("token second is new")
        self.token.write_text(second)
        await _until(have_moved)
        revoke_token(self.tokens, "first")
        await self.is_read("token first is revoked")

    async def roll_authority(self, have_moved: Callable[[], bool]) -> None:
        await self.change(lambda: add_authority(self.nodes))
        await self.change(self.issue_all)
        await _until(have_moved)
        await self.change(lambda: drop_authorities(self.nodes))


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(_LOOK_S)


async def rotate(
    config: ClusterConfig, scratch: Path, clients: int, kill_leader: Callable[[], Awaitable[None]] | None = None
) -> Result:
    """On a running cluster with TLS and tokens, whose nodes may be anywhere on this machine."""
    result = Result()
    rotation = Rotation(config, scratch)
    thief = rotation.add("thief")
    await rotation.is_read("token thief is new")
    async with AsyncExitStack() as stack, asyncio.timeout(_WAIT_S + clients):
        opened = [connect(config, certs=rotation.clients, token_file=rotation.token) for _ in range(clients)]
        opened.append(connect(config, certs=rotation.clients, name="token-thief", token=thief))
        opened.append(connect(config, certs=rotation.clients, name="key-thief", token_file=rotation.token))
        senders = [Sender(await stack.enter_async_context(client), str(number)) for number, client in enumerate(opened)]
        tasks = [asyncio.create_task(sender.run()) for sender in senders]

        def have_moved() -> bool:
            return all(sender.client.uses_new_files for sender in senders)

        try:
            times = [time.monotonic()]
            await _progress(senders, 20)
            times.append(time.monotonic())
            await rotation.roll_token(have_moved)
            await _progress(senders)
            await rotation.roll_authority(have_moved)
            await _progress(senders)
            times.append(time.monotonic())
            *honest, with_token, with_key = senders
            result.token_out_s = await _out(with_token, honest, lambda: revoke_token(rotation.tokens, "thief"))
            result.certificate_out_s = await _out(with_key, honest, lambda: revoke(rotation.nodes, ["key-thief"]))
            if kill_leader is not None:
                times.append(time.monotonic())
                await kill_leader()
                await _progress(honest)
                times.append(time.monotonic())
                result.failover_s = max(sender.pause_s(*times[-2:]) for sender in honest)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
        delivered = {group: await _delivered(honest[0].client, group, senders) for group in ("g1", "g2")}
    result.calm_s = max(sender.pause_s(*times[:2]) for sender in honest)
    result.pause_s = max(sender.pause_s(*times[1:3]) for sender in honest)
    for sender in senders:
        for _, dst, payload in sender.answered:
            counts = [delivered[group][payload] for group in dst]
            result.messages += 1
            result.lost += 0 in counts
            result.repeated += max(counts) > 1
    return result


async def _progress(senders: Iterable[Sender], answers: int = 5) -> None:
    """Waits until everyone has got so many more answers."""
    wanted = [(sender, len(sender.answered) + answers) for sender in senders]
    await _until(lambda: all(len(sender.answered) >= count for sender, count in wanted))


async def _out(thief: Sender, honest: list[Sender], revoke_it: Callable[[], None]) -> float:
    """How long after the revocation the thief got its last answer, if all others go on."""
    revoke_it()
    revoked_at = time.monotonic()
    for _ in range(3):
        await _progress(honest)
    with suppress(TimeoutError):  # it must get none in this time
        async with asyncio.timeout(1.5):
            await _progress([thief])
    return max(0.0, thief.answered[-1][0] - revoked_at)


async def _delivered(client: AsyncClient, group: str, senders: list[Sender]) -> Counter[bytes]:
    """All that a group delivered, up to the last message that was answered."""
    missing = {payload for sender in senders for _, dst, payload in sender.answered if group in dst}
    found: Counter[bytes] = Counter()
    with suppress(TimeoutError):
        async with asyncio.timeout(10):
            async for delivery in client.deliveries(group):
                found[delivery.payload] += 1
                missing.discard(delivery.payload)
                if not missing:
                    break
    return found


async def _kill_leader(cluster: LocalCluster) -> None:
    statuses = (await cluster.statuses()).values()
    cluster.kill(next(status.name for status in statuses if status is not None and status.is_leader))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="amcast-rotation-") as scratch:
        folder = Path(scratch) / "cluster"
        cluster = LocalCluster.create(folder, plan(folder, "fastcast", 2, tls=True, tokens=True))
        try:
            cluster.start()
            asyncio.run(cluster.wait_until_ready())
            kill = partial(_kill_leader, cluster)
            result = uvloop.run(rotate(cluster.config, Path(scratch), options.clients, kill))
        finally:
            cluster.stop()
    for name, value in dataclasses.asdict(result).items():
        print(f"{name:18} {value:,.3f}" if isinstance(value, float) else f"{name:18} {value:,}")
    print("good" if result.is_good else "BAD")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
