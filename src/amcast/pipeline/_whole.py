"""Files and folders that appear whole or not at all: they are filled beside their place and renamed.

Whatever stops the program, Ctrl-C or the end of the power, a name stands for all of it or for what was there before.
"""

from __future__ import annotations

import os
import re
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
    """An empty folder to fill. It becomes `target` if nothing goes wrong, and leaves no trace if something does."""
    refuse_occupied(target, what)
    made = [parent for parent in (target.parent, *target.parent.parents) if not parent.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
            # One level below, because the scratch folder itself is closed to other users and what is in it is not.
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
            raise UsageError(f"{target}: can't write the {what} there: {error.strerror or error}") from error
        raise


def refuse_occupied(target: Path, what: str) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"{target} exists and is not a folder: choose another place for the {what}")
    if target.is_dir() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty: remove it, or choose another place for the {what}")


def free_place(root: Path, run_ids: list[str]) -> Path:
    """`reports/<run_id>`, with a number behind it if that is taken."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_ids[0]).strip(".-") or "run"
    if len(run_ids) > 1:
        name += f"-and-{len(run_ids) - 1}-more"
    place, number = root / name, 1
    while place.exists() or place.is_symlink():
        number += 1
        place = root / f"{name}-{number}"
    return place
