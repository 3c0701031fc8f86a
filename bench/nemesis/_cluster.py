"""A cluster on this machine whose links, processes and disks can be tampered with."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import msgspec

from amcast.core import GroupId, ProcessId, UsageError
from amcast.net.config import ClusterConfig, format_config
from amcast.net.local import LocalCluster
from amcast.net.node.data_folder import format_folder, replace_folder
from amcast.net.wire.control import Status
from amcast.trace import RunInfo

from ._liar import draw_lying, lying_file
from ._node import slow_file
from ._proxy import Proxy

_PROGRAM = "bench.nemesis._node"
_DISK_MB = 192
_BALLAST = "ballast"
_STOP_S = 30.0
_READY_S = 60.0
_REVIVALS = 3


@contextmanager
def small_disks(config: ClusterConfig) -> Iterator[bool]:
    """A small disk for the data of each process, so that it can be filled. False if this user may not mount."""
    mounted: list[Path] = []
    try:
        for entry in config.process:
            path = config.data_folder(entry.id)
            path.mkdir(parents=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m", "tmpfs", str(path)]
            if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
                break
            mounted.append(path)
        yield len(mounted) == len(config.process)
    finally:
        for path in mounted:
            subprocess.run(["umount", "-l", str(path)], check=False)


def _takes_part(status: Status | None) -> bool:
    return status is not None and not (status.problem or "").startswith("is starting")


class ProxiedCluster(LocalCluster):
    """Every process has a configuration of its own, in which the addresses of the others are those of proxies."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.proxies: dict[tuple[str, str], Proxy] = {}
        self.views: dict[str, ClusterConfig] = {}
        self.liars: list[str] = []  # one of each group, which lies now and then, if the protocol survives that
        self._are_lying = False

    # -- links

    def config_file(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    async def connect_links(self) -> None:
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

    def close(self) -> None:
        self.stop()
        for proxy in self.proxies.values():
            proxy.close()

    # -- liars

    def choose_liars(self, rng: Random) -> None:
        """The same for the whole run: members that lied at any time are not many, over all of it."""
        if self.config.survives_liars:
            groups = dict.fromkeys(name.split(".")[0] for name in self.names)
            self.liars = [rng.choice(self.members(group)) for group in groups]

    def let_lie(self, rng: Random) -> str:
        """Returns how they lie from now on."""
        lying = draw_lying(rng)
        self._are_lying = True
        for name in self.liars:
            path = lying_file(self.folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(msgspec.json.encode(lying))
        return f"{' '.join(self.liars)} lie ({', '.join(lying.ways)})"

    def end_lies(self) -> None:
        self._are_lying = False
        for name in self.liars:
            lying_file(self.folder, name).unlink(missing_ok=True)

    def run_info(self, complete: bool, sent: Iterable[tuple[ProcessId, GroupId]]) -> RunInfo:
        info = super().run_info(complete, sent)
        ids = self.config.ids()
        liars = [ids[name] for name in self.liars]
        return msgspec.structs.replace(info, correct=tuple(each for each in info.correct if each not in liars))

    # -- processes

    def command(self, name: str) -> list[str]:
        return [sys.executable, "-m", _PROGRAM, str(self.config_file(name)), name]

    def members(self, group: str) -> list[str]:
        return [name for name in self.names if name.startswith(group + ".")]

    def dead(self) -> list[str]:
        """Those that do not run, with the last word of each."""
        return [f"{name}: {self.last_words(name)}" for name in self.names if self.pid(name) is None]

    def last_words(self, name: str) -> str:
        lines = self.log_file(name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no word"

    async def revive(self, name: str) -> None:
        """Does what the last words of a process ask for that was started and ended again, until it stays."""
        for _ in range(_REVIVALS):
            await self._until_it_answers_or_ends(name)
            if self.pid(name) is not None:
                return
            words = self.last_words(name)
            if "amcast replace" in words:
                self.replace_disk(name)
            elif "start it again" not in words:
                raise UsageError(f"{name} does not start: {words}")
            self.start([name])

    async def _until_it_answers_or_ends(self, name: str) -> None:
        problem: str | None = "no answer"
        try:
            async with asyncio.timeout(_READY_S):
                while self.pid(name) is not None:
                    status = (await self.statuses())[name]
                    problem = "no answer" if status is None else status.problem
                    if problem is None:
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise UsageError(f"{name} is not well {_READY_S:g} s after its start: {problem}") from None

    def terminate(self, names: list[str]) -> None:
        for name in names:
            self.signal(name, signal.SIGTERM)

    async def end(self, names: list[str]) -> None:
        """Waits for those that got SIGTERM. All must end by themselves, and say that all is well."""
        try:
            async with asyncio.timeout(_STOP_S):
                while any(self.pid(name) is not None for name in names):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            alive = [name for name in names if self.pid(name) is not None]
            raise UsageError(f"{', '.join(alive)} did not end within {_STOP_S:g} s of SIGTERM") from None
        for name in names:
            if self._children[name].returncode:
                raise UsageError(f"{name} ended with code {self._children[name].returncode}: {self.last_words(name)}")

    async def until_all_take_part(self) -> None:
        """A boot that ends earlier leaves no trace. If its folder is lost then, nobody knows that this one had none."""
        try:
            async with asyncio.timeout(_READY_S):
                while not all(map(_takes_part, (await self.statuses()).values())):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise UsageError(f"not all take part within {_READY_S:g} s") from None

    async def settle(self) -> None:
        """Waits until all are up, votes of all count, and all have what anyone has delivered so far.

        Nobody has to wait for one that lies: its lies may be about what it needs.
        """
        await self.wait_until_ready(_READY_S)
        positions: dict[str, int] = {}
        for status in (await self.statuses()).values():
            if status is not None:
                positions[status.group] = max(positions.get(status.group, 0), status.delivered)
        try:
            async with asyncio.timeout(_READY_S):
                while not await self._have_reached(positions):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise UsageError(f"not all members have caught up within {_READY_S:g} s") from None

    async def _have_reached(self, positions: dict[str, int]) -> bool:
        return all(
            status is not None and status.problem is None and status.delivered >= positions[status.group]
            for name, status in (await self.statuses()).items()
            if not (self._are_lying and name in self.liars)
        )

    # -- disks

    def fill_disk(self, name: str) -> None:
        with suppress(OSError), (self.config.data_folder(name) / _BALLAST).open("wb") as ballast:
            while True:
                ballast.write(bytes(1 << 16))
                ballast.flush()

    def free_disk(self, name: str) -> None:
        (self.config.data_folder(name) / _BALLAST).unlink(missing_ok=True)

    def set_slow(self, names: list[str], is_slow: bool) -> None:
        for name in names:
            flag = slow_file(self.folder, name)
            flag.parent.mkdir(exist_ok=True)
            flag.touch() if is_slow else flag.unlink(missing_ok=True)

    def empty_disk(self, name: str) -> None:
        """The folder itself stays: it may be where a disk is mounted."""
        for path in self.config.data_folder(name).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def format_disk(self, name: str) -> None:
        format_folder(self.config, name)

    def replace_disk(self, name: str) -> None:
        replace_folder(self.config, name)

    def damage_disk(self, name: str, rng: Random) -> str:
        """Flips a bit somewhere. Returns where."""
        folder = self.config.data_folder(name)
        path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size))
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        return f"{name}/{path.relative_to(folder)}, byte {at} of {len(data)}"

    def copy_disk(self, name: str, copy: Path) -> None:
        """As a backup does. The process may be running: files that it removes meanwhile are not in the copy."""
        shutil.rmtree(copy, ignore_errors=True)
        folder = self.config.data_folder(name)
        for path in sorted(folder.rglob("*")):
            target = copy / path.relative_to(folder)
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    shutil.copyfile(path, target)

    def restore_disk(self, name: str, copy: Path) -> None:
        self.empty_disk(name)
        shutil.copytree(copy, self.config.data_folder(name), dirs_exist_ok=True)
