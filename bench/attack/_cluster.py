"""A local cluster with TLS and tokens, as it is attacked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from amcast.core import UsageError
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.client.observer import observe
from amcast.net.config import ClusterConfig, Limits
from amcast.net.local import LocalCluster, plan
from amcast.net.security.access import add_token
from amcast.net.wire.control import Status

_TOKENS = "tokens.toml"
_PEAK = "VmHWM:"


class Tokens(msgspec.Struct, frozen=True):
    correct: str
    without_rights: str
    with_rights: str


class AttackedCluster(LocalCluster):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tokens = Tokens("", "", "")
        self.pids: dict[str, int | None] = {}

    @classmethod
    def make(cls, folder: Path, protocol: str, replicas: int | None = None) -> AttackedCluster:
        folder.mkdir(parents=True)
        everything = ["*"]
        tokens = Tokens(
            add_token(folder / _TOKENS, "correct", everything, everything),
            add_token(folder / _TOKENS, "without-rights", [], []),
            add_token(folder / _TOKENS, "with-rights", everything, everything),
        )
        planned: ClusterConfig = plan(folder, protocol, 2, replicas, trace=True, tls=True, limits=Limits(trace_bytes=0))
        cls.create(folder, msgspec.structs.replace(planned, tokens=_TOKENS))
        cluster = cls(folder)
        cluster.tokens = tokens
        return cluster

    async def begin(self) -> None:
        self.start()
        await self.wait_until_ready(60.0)
        self.pids = {name: self.pid(name) for name in self.names}

    def client(self, **settings: Any) -> AsyncClient:
        return connect(self.config, token=self.tokens.correct, **settings)

    async def statuses(self) -> dict[str, Status | None]:
        found: dict[str, Status | None] = dict.fromkeys(self.names)
        try:
            async with observe(self.config, token=self.tokens.correct) as observer:
                ids = self.config.ids()
                asked = (observer.status(ids[name]) for name in self.names)
                for name, answer in zip(self.names, await asyncio.gather(*asked, return_exceptions=True), strict=True):
                    found[name] = answer if isinstance(answer, Status) else None
        except UsageError:  # none takes this client now
            pass
        return found

    async def is_drained(self) -> bool:
        """Unlike in peace, messages may stay open: an attacker need not have sent them everywhere."""
        positions: dict[str, set[int]] = {}
        for status in (await self.statuses()).values():
            if status is None:
                return False
            self._delivered[status.name] = status.delivered
            positions.setdefault(status.group, set()).add(status.delivered)
        return all(len(each) == 1 for each in positions.values())

    def ended(self) -> list[str]:
        """Processes that are not the ones that were started, with the last word of each."""
        gone = [name for name in self.names if self.pid(name) is None or self.pid(name) != self.pids[name]]
        return [f"{name}: {self.last_words(name) or 'no word'}" for name in gone]

    def peak_mb(self) -> dict[str, float]:
        """The most memory that each process ever had."""
        found = {}
        for name in self.names:
            pid = self.pid(name)
            if pid is not None:
                found[name] = peak_mb(pid)
        return found


def peak_mb(process: int | str) -> float:
    """The most memory that a process ever had: this one is called self."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(_PEAK)), 0.0)
