"""A file system in memory that knows what is durable: a power loss keeps that, and of the rest a part.

What was written is in the kernel until the file is synced, and names are until their folder is synced. When the power
fails, each page that was written may have reached the disk or not, in any order, and the last one may be torn. Names
reach the disk in the order of their changes. A kill of a program loses nothing.
"""

from __future__ import annotations

import errno
import os
from pathlib import PurePath
from random import Random

_PAGE = 512  # what a disk writes in one go


class File:
    """`data` is what programs read; `durable` is what the disk has, to which `pending` was not applied yet."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []  # writes; None for data: cut or filled up to this size
        self.holder: object | None = None  # the open file that holds the lock

    def write(self, offset: int, data: bytes) -> None:
        _write(self.data, offset, data)
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        _truncate(self.data, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        for offset, data in self.pending:
            _apply(self.durable, offset, data)
        self.pending.clear()

    def forget_pending(self) -> None:
        """After a failed sync the kernel takes the pages for clean: no later sync writes them."""
        self.pending.clear()

    def lose_power(self, rng: Random) -> None:
        odds = rng.choice((0.0, 0.5, 0.9, 1.0))
        for offset, data in self.pending:
            if data is None:
                if rng.random() < odds:
                    _truncate(self.durable, offset)
                continue
            for start, piece in _pages(offset, data):
                if rng.random() < odds:
                    _write(self.durable, start, piece if rng.random() < 0.9 else piece[: rng.randrange(len(piece) + 1)])
        self.pending.clear()
        self.data = bytearray(self.durable)
        self.holder = None


def _pages(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    pieces = []
    start = 0
    while start < len(data):
        end = min(len(data), start + _PAGE - (offset + start) % _PAGE)
        pieces.append((offset + start, data[start:end]))
        start = end
    return pieces


def _write(target: bytearray, offset: int, data: bytes) -> None:
    if offset > len(target):
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


def _truncate(target: bytearray, size: int) -> None:
    if size < len(target):
        del target[size:]
    else:
        target.extend(bytes(size - len(target)))


def _apply(target: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        _truncate(target, offset)
    else:
        _write(target, offset, data)


class Folder:
    def __init__(self) -> None:
        self.names: dict[str, File | Folder] = {}
        self.durable: dict[str, File | Folder] = {}
        self._pending: list[tuple[str, File | Folder | None, str | None]] = []  # name, what it is now, its old name

    def link(self, name: str, entry: File | Folder, old: str | None = None) -> None:
        """`old`: it had this name before, and loses it in the same moment."""
        self._change((name, entry, old))

    def unlink(self, name: str) -> None:
        self._change((name, None, None))

    def _change(self, change: tuple[str, File | Folder | None, str | None]) -> None:
        _rename(self.names, change)
        self._pending.append(change)

    def sync(self) -> None:
        for change in self._pending:
            _rename(self.durable, change)
        self._pending.clear()

    def lose_power(self, rng: Random) -> None:
        for change in self._pending[: rng.randint(0, len(self._pending))]:
            _rename(self.durable, change)
        self._pending.clear()
        self.names = dict(self.durable)
        for entry in self.names.values():
            entry.lose_power(rng)


def _rename(names: dict[str, File | Folder], change: tuple[str, File | Folder | None, str | None]) -> None:
    name, entry, old = change
    if old is not None:
        names.pop(old, None)
    if entry is None:
        names.pop(name, None)
    else:
        names[name] = entry


class Disk:
    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._root = Folder()
        self.room: int | None = None  # bytes until the disk is full; none: it has enough
        self.failing_syncs = 0

    # -- names

    def entry(self, path: PurePath) -> File | Folder | None:
        found: File | Folder | None = self._root
        for part in path.parts[1:]:
            if not isinstance(found, Folder):
                return None
            found = found.names.get(part)
        return found

    def file(self, path: PurePath) -> File:
        found = self.entry(path)
        if found is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if isinstance(found, Folder):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return found

    def folder(self, path: PurePath) -> Folder:
        found = self.entry(path)
        if found is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if not isinstance(found, Folder):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return found

    def mkdir(self, path: PurePath) -> None:
        at = self._root
        for part in path.parts[1:]:
            entry = at.names.get(part)
            if entry is None:
                self.take_room(1, path)
                entry = Folder()
                at.link(part, entry)
            if not isinstance(entry, Folder):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            at = entry

    def create(self, path: PurePath) -> File:
        folder = self.folder(path.parent)
        self.take_room(1, path)
        made = File()
        folder.link(path.name, made)
        return made

    def rename(self, old: PurePath, new: PurePath) -> None:
        entry = self.entry(old)
        if entry is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(old))
        if old.parent != new.parent:
            raise NotImplementedError("nodes rename files within a folder")
        self.folder(new.parent).link(new.name, entry, old.name)

    def unlink(self, path: PurePath) -> None:
        self.file(path)
        self.folder(path.parent).unlink(path.name)

    # -- space and failures

    def take_room(self, size: int, path: PurePath | str) -> None:
        if self.room is not None and size > 0:
            if size > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            self.room -= size

    def fail_sync(self) -> bool:
        if self.failing_syncs:
            self.failing_syncs -= 1
            return True
        return False

    # -- what happens to disks

    def lose_power(self, survives: PurePath) -> None:
        """`survives` is a folder of which nothing is lost."""
        kept = self.copy_of(survives)
        self._root.lose_power(self._rng)
        if kept is not None:
            self.replace(survives, kept)

    def sync_all(self) -> None:
        """As the kernel does sooner or later, and an orderly shutdown of the machine does."""
        _sync(self._root)

    def copy_of(self, path: PurePath) -> Folder | None:
        """A backup: what programs would read there now."""
        found = self.entry(path)
        if not isinstance(found, Folder):
            return None
        return _copy(found)

    def replace(self, path: PurePath, backup: Folder | None) -> None:
        """Restores a backup, or removes the folder if there is none."""
        if self.entry(path.parent) is None:
            self.mkdir(path.parent)
        parent = self.folder(path.parent)
        if backup is not None:
            parent.link(path.name, _copy(backup))
        elif path.name in parent.names:
            parent.unlink(path.name)
        _sync(self._root)

    def files_under(self, path: PurePath) -> list[tuple[PurePath, File]]:
        found = self.entry(path)
        return [] if not isinstance(found, Folder) else _files(path, found)


def _copy(folder: Folder) -> Folder:
    copied = Folder()
    for name, entry in folder.names.items():
        if isinstance(entry, Folder):
            copied.link(name, _copy(entry))
        else:
            file = File()
            file.data = bytearray(entry.data)
            copied.link(name, file)
    _sync(copied)
    return copied


def _sync(folder: Folder) -> None:
    folder.sync()
    for entry in folder.names.values():
        if isinstance(entry, Folder):
            _sync(entry)
        else:
            entry.sync()
            entry.durable = bytearray(entry.data)


def _files(path: PurePath, folder: Folder) -> list[tuple[PurePath, File]]:
    found: list[tuple[PurePath, File]] = []
    for name, entry in sorted(folder.names.items()):
        if isinstance(entry, Folder):
            found += _files(path / name, entry)
        else:
            found.append((path / name, entry))
    return found
