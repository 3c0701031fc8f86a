"""What is done to a cluster: one fault a round. Each ends with all processes started again."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from random import Random

from ._cluster import ProxiedCluster

DISK_FAULTS = ("fill-disk",)  # need a small disk of its own for each process

# In which order they come is drawn anew each time all had their turn.
FAULTS = (
    "kill",
    "kill-leader",
    "kill-majority",
    "kill-group",
    "kill-all",
    "pause",
    "cut",
    "clock-step",
    "slow-disk",
    "fill-disk",
    "replace-disk",
    "restore-copy",
    "damage-disk",
    "format-by-mistake",
    "rolling-restart",
    "stop-group",
    "stop-then-kill",
)


# A copy is known to be old by what others remember of its process, which they write down once a second.
_COPY_AGE_S = 2.0


class Nemesis:
    def __init__(self, cluster: ProxiedCluster, rng: Random, faults: list[str]) -> None:
        self._cluster = cluster
        self._rng = rng
        self._faults = faults
        self._turn: list[str] = []
        self._copies: dict[str, Path] = {}  # the latest copy of a process's disk
        self.damaged: set[str] = set()  # processes that may yet find that a file is damaged
        self._rounds = 0
        cluster.choose_liars(rng)

    async def round(self) -> str:
        if not self._turn:
            self._turn = self._rng.sample(self._faults, len(self._faults))
        fault = self._turn.pop()
        self._rounds += 1
        if not self._cluster.liars or self._rounds % 2 == 0:
            return await self._strike(fault, self._rng.choice(self._cluster.names))
        lie = self._cluster.let_lie(self._rng)
        try:
            # Whatever is done to one process is done to a liar: then no more of its group are faulty than may be.
            return f"{await self._strike(fault, self._rng.choice(self._cluster.liars))}; {lie}"
        finally:
            self._cluster.end_lies()

    async def _strike(self, fault: str, victim: str) -> str:
        what = await getattr(self, "_" + fault.replace("-", "_"))(victim)
        await self._cluster.until_all_take_part()
        await self._copy()
        return f"{fault} {what}"

    async def mend(self) -> None:
        """Processes that found damage and ended get a new disk, as they ask for."""
        for name in sorted(self.damaged):
            if self._cluster.pid(name) is None:
                await self._cluster.revive(name)

    async def _a_while(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.5, 2.0))

    def _group_of(self, victim: str) -> list[str]:
        return self._cluster.members(victim.split(".")[0])

    # -- processes

    async def _kill(self, victim: str) -> str:
        return await self._kill_for_a_while([victim])

    async def _kill_leader(self, victim: str) -> str:
        group = victim.split(".")[0]
        for name, status in (await self._cluster.statuses()).items():
            if status is not None and status.group == group and status.is_leader:
                victim = name
        return await self._kill(victim)

    async def _kill_majority(self, victim: str) -> str:
        members = self._group_of(victim)
        return await self._kill_for_a_while(self._rng.sample(members, len(members) // 2 + 1))

    async def _kill_group(self, victim: str) -> str:
        return await self._kill_for_a_while(self._group_of(victim))

    async def _kill_all(self, victim: str) -> str:
        await self._kill_for_a_while(self._cluster.names)
        return "at once"

    async def _kill_for_a_while(self, victims: list[str]) -> str:
        for name in victims:
            self._cluster.kill(name)
        await self._a_while()
        self._cluster.start(victims)
        return " ".join(victims)

    async def _pause(self, victim: str) -> str:
        self._cluster.signal(victim, signal.SIGSTOP)
        await self._a_while()
        self._cluster.signal(victim, signal.SIGCONT)
        return victim

    async def _rolling_restart(self, victim: str) -> str:
        await self._restart_in_turn(self._cluster.names)
        return "of all"

    async def _restart_in_turn(self, names: list[str]) -> None:
        for name in names:
            await self._cluster.settle()
            self._cluster.terminate([name])
            await self._cluster.end([name])
            await self._a_while()
            self._cluster.start([name])

    async def _stop_group(self, victim: str) -> str:
        """Snapshots come several times a second. With a slow disk, the stop finds some of them half done."""
        members = await self._slow_group(victim)
        self._cluster.terminate(members)
        await asyncio.sleep(1.0)
        self._cluster.set_slow(members, False)
        await self._cluster.end(members)
        self._cluster.start(members)
        return " ".join(members)

    async def _stop_then_kill(self, victim: str) -> str:
        """As an init system does that has no patience."""
        members = await self._slow_group(victim)
        self._cluster.terminate(members)
        await asyncio.sleep(self._rng.uniform(0.0, 0.3))
        for name in members:
            if self._cluster.pid(name) is not None:
                self._cluster.kill(name)
        self._cluster.set_slow(members, False)
        self._cluster.start(members)
        return " ".join(members)

    async def _slow_group(self, victim: str) -> list[str]:
        members = self._group_of(victim)
        await self._cluster.settle()  # a process that is starting does not stop in good order
        self._cluster.set_slow(members, True)
        await self._a_while()
        return members

    # -- links and clocks

    async def _cut(self, victim: str) -> str:
        links = self._cluster.links_of(victim)
        for link in links:
            link.cut()
        await self._a_while()
        for link in links:
            link.heal()
        return f"all links of {victim}"

    async def _clock_step(self, victim: str) -> str:
        await self._cluster.settle()  # a process that is starting ignores the signal
        offset = self._rng.randint(-3_600_000_000, 3_600_000_000)
        self._cluster.step_clock(victim, offset)
        return f"of {victim} by {offset / 1e6:.0f} s"

    # -- disks. At most one process of a group may be without its disk at a time.

    async def _slow_disk(self, victim: str) -> str:
        self._cluster.set_slow([victim], True)
        await self._a_while()
        self._cluster.set_slow([victim], False)
        return victim

    async def _fill_disk(self, victim: str) -> str:
        await self._cluster.settle()  # a process refuses to start on a full disk
        self._cluster.fill_disk(victim)
        await self._a_while()
        self._cluster.free_disk(victim)
        return victim

    async def _replace_disk(self, victim: str) -> str:
        killed = await self._kill_some(victim)
        await self._a_while()
        self._cluster.empty_disk(victim)
        self._cluster.replace_disk(victim)
        await self._start_and_settle(killed, victim)
        return f"of {victim}, down: {' '.join(killed)}"

    async def _format_by_mistake(self, victim: str) -> str:
        killed = await self._kill_some(victim)
        self._cluster.empty_disk(victim)
        self._cluster.format_disk(victim)
        await self._start_and_settle(killed, victim)
        return f"{victim}, down: {' '.join(killed)}"

    async def _damage_disk(self, victim: str) -> str:
        """A bit flips in a file. The process may see it at its start, much later, or never."""
        killed = await self._kill_some(victim)
        what = self._cluster.damage_disk(victim, self._rng)
        self.damaged.add(victim)
        await self._start_and_settle(killed, victim)
        return f"{what}, down: {' '.join(killed)}"

    async def _restore_copy(self, victim: str) -> str:
        if not self._copies:
            await self._copy()
        victim = self._rng.choice(sorted(self._copies))
        await asyncio.sleep(_COPY_AGE_S)
        killed = await self._kill_some(victim)
        self._cluster.restore_disk(victim, self._copies[victim])
        await self._start_and_settle(killed, victim)
        return f"of {victim}, down: {' '.join(killed)}"

    async def _kill_some(self, victim: str) -> list[str]:
        """The victim, or its whole group: then no leader is left that could tell it what it has forgotten."""
        await self._cluster.settle()
        killed = [victim] if self._rng.random() < 0.5 else self._group_of(victim)
        for name in killed:
            self._cluster.kill(name)
        return killed

    async def _start_and_settle(self, names: list[str], victim: str) -> None:
        self._cluster.start(names)
        self._cluster.end_lies()  # nobody takes back a process that lost its disk and lies about it
        await self._cluster.revive(victim)
        await self._cluster.settle()

    async def _copy(self) -> None:
        """Of a process that is stopped for the moment, as an image of a virtual machine, or of one that runs."""
        victim = self._rng.choice(self._cluster.names)
        copy = self._cluster.folder / "copies" / victim
        is_frozen = self._rng.random() < 0.5 and self._cluster.pid(victim) is not None
        if is_frozen:
            self._cluster.signal(victim, signal.SIGSTOP)
        await asyncio.to_thread(self._cluster.copy_disk, victim, copy)
        if is_frozen:
            self._cluster.signal(victim, signal.SIGCONT)
        self._copies[victim] = copy
