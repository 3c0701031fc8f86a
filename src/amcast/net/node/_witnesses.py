"""What this process remembers of the others, so that none of them can forget without being noticed.

Every process says at HELLO how far it has got by its own disk (`Life`), and marks on its links say how its records
grow. Whoever receives something from a process has therefore seen a mark that covers the records it depends on. A
process that comes back with less than that has lost its disk, or runs on an older copy of it, and hears LOST.

    g1.p0 says   incarnation 0, boot 3, 900 records      remembered
    g1.p0 says   incarnation 0, boot 4, 120 records      LOST: its disk is an older copy
    g1.p0 says   incarnation 1, boot 5, no records       welcome: it knows that it lost them

A new boot is on this process's own disk, in the file `peers`, before it is welcomed. The numbers of records follow
within a second, and when the process stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import astuple, replace

from ..disk.checked import pack_checked, read_checked, write_checked
from ..disk.files import write_file
from ..wire.control import Life

PEERS = "peers"
_EVERY_S = 1.0
_MORE_THAN_ANY = 1 << 62  # records

logger = logging.getLogger("amcast.node")

OnSaved = Callable[[OSError | None], None]


def write_peers(folder: Path, known: dict[str, Life]) -> None:
    write_checked(folder / PEERS, PEERS, known)


class Witnesses:
    """Those that `known` names are processes of this cluster. It belongs to the event loop."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PEERS
        self._known = read_checked(self._path, PEERS, dict[str, Life])
        self._saved = {name: astuple(life) for name, life in self._known.items()}
        self._waiting: list[OnSaved] = []
        self._wake = asyncio.Event()
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None
        self.problem: str | None = None

    # -- what is remembered

    def known(self, name: str) -> Life | None:
        return self._known.get(name)

    def doubt(self, name: str, life: Life) -> str | None:
        """Why this can't be the disk that the process had, in words."""
        known = self._known.get(name)
        if known is None:
            return None
        if life.incarnation > known.incarnation:
            # It knows by itself that it lost its records. It must still count on from its last start.
            is_counted = life.boot > known.boot or (life.boot, life.nonce) == (known.boot, known.nonce)
            return None if is_counted else f"{name} says that it is at start {life.boot}, and {known.boot} was seen"
        if (life.incarnation, life.boot) < (known.incarnation, known.boot):
            return (
                f"{name} says that it is at start {life.boot} of incarnation {life.incarnation}, and start"
                f" {known.boot} of incarnation {known.incarnation} was seen: its disk was lost, or is an older copy"
            )
        if life.boot == known.boot:
            if life.nonce == known.nonce:
                return None
            return f"{name} was seen at start {life.boot} before, and this is another one: its disk is an older copy"
        if known.records == _MORE_THAN_ANY:
            return f"{name} was seen on an older disk, and has not become another incarnation since"
        if life.records < known.records:
            return (
                f"{name} has {life.records} records on its disk, and {known.records} were seen: its disk was lost, or"
                " is an older copy"
            )
        return None

    def condemn(self, name: str) -> None:
        """Nothing is believed of this incarnation any more, even if the older disk has as many records one day.

        Say that it ran with members who remembered less, and was killed when it heard LOST: its log has grown since.
        """
        self._known[name].records = _MORE_THAN_ANY
        self._wake.set()

    def note(self, name: str, life: Life) -> Life:
        """Remembers it. In what is returned, `records` may be raised as marks arrive, while this boot lasts."""
        known = self._known.get(name)
        if known is not None and _boot(known) == _boot(life):
            known.records = max(known.records, life.records)
            return known
        self._known[name] = noted = replace(life)
        return noted

    # -- the file

    def is_saved(self, name: str, life: Life) -> bool:
        """Whether this boot is on the disk."""
        saved = self._saved.get(name)
        return saved is not None and saved[:3] == _boot(life)

    def when_saved(self, call: OnSaved) -> None:
        """Calls back when all that is remembered now is on the disk, or with the reason why it is not."""
        self._waiting.append(call)
        self._wake.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Writes the last numbers of records."""
        self._is_closing = True
        self._wake.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY_S):
                    await self._wake.wait()
            self._wake.clear()
            is_last = self._is_closing  # it may be closed while it saves
            await self._save()

    async def _save(self) -> None:
        waiting, self._waiting = self._waiting, []
        now = {name: astuple(life) for name, life in self._known.items()}
        error = None
        if now != self._saved:
            # Ready-made bytes: what is remembered changes while the thread writes.
            data = pack_checked(PEERS, self._known)
            error = await self._write(data)
            if error is None:
                self._saved = now
        for call in waiting:
            call(error)

    async def _write(self, data: bytes) -> OSError | None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, write_file, self._path, data)
        except OSError as error:
            problem = f"{self._path}: can't be written: {error.strerror or error}"
            if problem != self.problem:
                logger.warning("%s", problem)
            self.problem = problem
            return error
        self.problem = None
        return None


def _boot(life: Life) -> Sequence[int]:
    return life.incarnation, life.boot, life.nonce
