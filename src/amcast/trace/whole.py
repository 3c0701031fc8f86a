"""Files and folders that appear whole or not at all: they are filled under another name, then renamed.

Whenever the program is stopped, by Ctrl-C or a power cut, a name stands for the whole new content or for the old one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core import UsageError


def write_whole(target: Path, content: bytes) -> None:
    """Replaces the file."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".", delete=False) as draft:
        try:
            draft.write(content)
            draft.flush()
            os.fsync(draft.fileno())
            os.replace(draft.name, target)
        except BaseException:
            os.unlink(draft.name)
            raise


@contextmanager
def new_folder(target: Path, what: str) -> Iterator[Path]:
    """An empty folder to fill. When the block ends it is renamed to `target`; after an error nothing is left of it.

    `what` is the word for it in error messages, such as "report".
    """
    refuse_occupied(target, what)
    made = [parent for parent in (target.parent, *target.parent.parents) if not parent.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
            # A temporary folder is private to its user. The folder in it gets the usual permissions, and is renamed.
            draft = Path(scratch) / what
            draft.mkdir()
            yield draft
            refuse_occupied(target, what)
            os.rename(draft, target)
    except BaseException as error:
        for parent in made:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        if isinstance(error, OSError):
            raise cannot_write(target, what, error) from error
        raise


def cannot_write(target: Path, what: str, error: OSError) -> UsageError:
    return UsageError(f"{target}: can't write the {what} there: {error.strerror or error}")


def refuse_occupied(target: Path, what: str) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"{target} exists and is not a folder: choose another place for the {what}")
    if target.is_dir() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty: remove it, or choose another place for the {what}")
