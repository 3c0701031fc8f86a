"""Files with secrets or rights: written whole or not at all, closed to other users from the start, not overwritten."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from ...core import UsageError
from ..system import system

SECRET, PUBLIC = 0o600, 0o644
SECRET_FILE = "cluster.secret"
CRL_FILE = "ca.crl"
CA = "ca"


class Draft(NamedTuple):
    path: Path
    content: bytes
    mode: int
    replace: bool = False

    def __repr__(self) -> str:  # the content may be a key
        return f"Draft({str(self.path)!r})"


def write_all(drafts: Sequence[Draft]) -> None:
    """Writes all files. If one exists or can't be written, none of the new ones is left behind."""
    for draft in drafts:
        if not draft.replace and os.path.lexists(draft.path):
            raise _exists(draft.path)
    with ExitStack() as undo:
        try:
            for folder in dict.fromkeys(draft.path.parent for draft in drafts):
                _make_folder(folder)
            staged = [_stage(draft, undo) for draft in drafts]
            with ExitStack() as placed:
                for draft, scratch in zip(drafts, staged, strict=True):
                    _place(draft, scratch, placed)
                placed.pop_all()
        except FileExistsError as error:  # it was made since we looked
            raise _exists(Path(error.filename2)) from error
        except OSError as error:
            raise UsageError(f"can't write to {drafts[0].path.parent}: {error.strerror or error}") from error


def cert_and_key(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.crt", folder / f"{name}.key"


def read_file(path: Path, what: str, remedy: str) -> bytes:
    try:
        return system().read_file(path)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist: {what} is missing; {remedy}") from None
    except OSError as error:
        raise UsageError(f"can't read {path}, {what}: {error.strerror or error}") from error


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists: nothing is overwritten, use --force to replace it")


def _make_folder(folder: Path) -> None:
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: choose another place")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _stage(draft: Draft, undo: ExitStack) -> Path:
    # mkstemp makes files with mode 0600, so that other users can't read a key at any moment.
    handle, name = tempfile.mkstemp(dir=draft.path.parent, prefix=".")
    undo.callback(_remove, name)
    with open(handle, "wb") as scratch:
        scratch.write(draft.content)
        scratch.flush()
        os.fsync(handle)
    os.chmod(name, draft.mode)
    return Path(name)


def _place(draft: Draft, scratch: Path, placed: ExitStack) -> None:
    if draft.replace:
        os.replace(scratch, draft.path)
    else:
        os.link(scratch, draft.path)  # unlike a rename, it fails where there is a file
        placed.callback(_remove, draft.path)


def _remove(path: str | Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
