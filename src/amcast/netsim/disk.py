"""A file system in memory that knows what is durable: a power loss keeps that, and of the rest a part.

What was written is in the kernel until the file is synced, and names are until their folder is synced. When the power
fails, each sector of a file may be as it was after any of the writes since the last sync, and so may the file's size:
later sectors may be there and earlier ones not. Names reach the disk in the order of their changes. A kill of a program
loses nothing.
"""

from __future__ import annotations

import errno
import os
from pathlib import PurePath
from random import Random

_PAGE = 4_096  # bytes that the kernel writes together
_SECTOR = 512  # bytes that a disk writes as a whole or not at all


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
        """The kernel writes whole pages, also what a failed sync had left in them."""
        for offset, data in self.pending:
            _apply(self.durable, offset, data)
            if data:
                start = offset // _PAGE * _PAGE
                end = -(-(offset + len(data)) // _PAGE) * _PAGE
                _write(self.durable, start, bytes(self.data[start:end]))
        del self.durable[len(self.data) :]
        self.pending.clear()

    def forget_pending(self) -> None:
        """After a failed sync the kernel takes the pages for clean: no later sync writes them, unless they change."""
        self.pending = [change for change in self.pending if change[1] is None]

    def lose_power(self, rng: Random) -> None:
        if self.pending:
            self.durable = _after_power_loss(self.durable, self.pending, rng)
            self.pending.clear()
        self.data = bytearray(self.durable)
        self.holder = None


def _after_power_loss(durable: bytearray, pending: list[tuple[int, bytes | None]], rng: Random) -> bytearray:
    """Of each sector, the disk has the version after some of the writes; of the size, too."""
    count = len(pending)
    style = rng.choice(("none", "all", "first", "any", "any"))
    same = {"none": 0, "all": count, "first": rng.randint(0, count)}.get(style)
    versions: dict[int, bytearray] = {}

    def version(number: int) -> bytearray:
        if number not in versions:
            versions[number] = bytearray(durable)
            for change in pending[:number]:
                _apply(versions[number], *change)
        return versions[number]

    size = len(version(rng.randint(0, count) if same is None else same))
    found = bytearray(size)
    for start in range(0, size, _SECTOR):
        piece = version(rng.randint(0, count) if same is None else same)[start : min(size, start + _SECTOR)]
        found[start : start + len(piece)] = piece
    return found


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
    def __init__(self, rng: Random, evidence: PurePath) -> None:
        self.evidence = evidence  # a folder that is always written, and of which nothing is lost
        self.removed: dict[PurePath, bytes] = {}  # what programs removed from it
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
        if old.parent == new.parent:
            self.folder(new.parent).link(new.name, entry, old.name)
            return
        # A file system has one journal for all folders: a file that moves is never in both, nor in none.
        for path in (new, old):
            self.folder(path.parent).sync()
        self.folder(new.parent).link(new.name, entry)
        self.folder(old.parent).unlink(old.name)
        for path in (new, old):
            self.folder(path.parent).sync()

    def unlink(self, path: PurePath) -> None:
        file = self.file(path)
        if self.evidence in path.parents:
            self.removed[path] = bytes(file.data)
        self.folder(path.parent).unlink(path.name)

    # -- space and failures

    def take_room(self, size: int, path: PurePath | str) -> None:
        if self.room is not None and size > 0 and self.evidence not in PurePath(path).parents:
            if size > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            self.room -= size

    def fail_sync(self) -> bool:
        if self.failing_syncs:
            self.failing_syncs -= 1
            return True
        return False

    # -- what happens to disks

    def lose_power(self) -> None:
        kept = self.copy_of(self.evidence)
        self._root.lose_power(self._rng)
        if kept is not None:
            self.replace(self.evidence, kept)

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

    def bytes_under(self, path: PurePath, prefix: str = "") -> int:
        """What the files have below those names in the folder `path` that begin with `prefix`."""
        found = self.entry(path)
        if not isinstance(found, Folder):
            return 0
        return sum(_size(entry) for name, entry in found.names.items() if name.startswith(prefix))


def _size(entry: File | Folder) -> int:
    return len(entry.data) if isinstance(entry, File) else sum(map(_size, entry.names.values()))


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
