"""What `amcast up` made in a folder, so that `amcast down` can remove that and nothing else.

The folder may be one in which a user works. So the paths that were not there before are listed in a file when the
cluster is made. Only listed paths are removed, never through a symbolic link, and folders only if nothing is left in
them, except for the data of processes: what is in there is theirs.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from ..core import UsageError

LIST = "made.json"


def absent(folder: Path, places: Iterable[str]) -> list[str]:
    """Which of these paths in the folder do not exist yet, each after the folders above it that do not either."""
    missing: dict[str, None] = {}
    for place in places:
        path = PurePosixPath(place)
        for each in (*reversed(path.parents), path):
            if not os.path.lexists(folder / each):
                missing[str(each)] = None
    return list(missing)


def write_list(folder: Path, made: Iterable[str]) -> None:
    (folder / LIST).write_bytes(msgspec.json.encode([*made, LIST]))


def remove_made(folder: Path, places: Iterable[str], trees: Sequence[str]) -> list[str]:
    """Removes what the list names, and returns what is left at the top of the folder.

    The list is believed only if all that it names is among `places`. `trees` are folders that are removed with all that
    is in them.
    """
    try:
        listed = msgspec.json.decode((folder / LIST).read_bytes(), type=list[str])
    except FileNotFoundError:
        return sorted(os.listdir(folder))  # made by an earlier version: nobody knows what was there before
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{folder / LIST} can't be read, so nothing is removed: {error}") from error
    known = {str(path) for place in (*places, LIST) for path in (place, *PurePosixPath(place).parents)}
    for each in listed:
        if each not in known or ".." in PurePosixPath(each).parts or each.startswith("/"):
            raise UsageError(f"{folder / LIST} names {each!r}, which is not of this cluster, so nothing is removed")
    for each in reversed(listed):  # a folder after what is in it
        if each != ".":
            _remove(folder, PurePosixPath(each), each in trees)
    if "." in listed:
        with suppress(OSError):
            folder.rmdir()
    return sorted(os.listdir(folder)) if folder.exists() else []


def _remove(folder: Path, path: PurePosixPath, is_tree: bool) -> None:
    """Leaves what can't be removed, such as a folder that is not empty. Links are not ours: they stay too."""
    try:
        above = open_folder(folder, path.parent)
    except OSError:
        return
    try:
        mode = os.stat(path.name, dir_fd=above, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and is_tree:
            shutil.rmtree(path.name, ignore_errors=True, dir_fd=above)
        elif stat.S_ISDIR(mode):
            os.rmdir(path.name, dir_fd=above)
        elif not stat.S_ISLNK(mode):
            os.unlink(path.name, dir_fd=above)
    except OSError:
        return
    finally:
        os.close(above)


def open_folder(folder: Path, below: PurePosixPath) -> int:
    """Opens a folder inside a folder. Raises OSError if one of the folders in between is a symbolic link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(folder, flags)
    for part in below.parts:
        try:
            inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def open_own(folder: Path, place: str, flags: int) -> int:
    """Opens a file of this user in a folder inside a folder, which is made if it is missing. Follows no links."""
    path = PurePosixPath(place)
    try:
        if flags & os.O_CREAT:
            (folder / path.parent).mkdir(mode=0o700, exist_ok=True)
        above = open_folder(folder, path.parent)
        try:
            if os.fstat(above).st_uid != os.geteuid():
                raise UsageError(f"{folder / path.parent} belongs to another user: remove it, or use another folder")
            return os.open(path.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=above)
        finally:
            os.close(above)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise UsageError(f"{folder / place} goes through a symbolic link: remove it") from error
        raise
