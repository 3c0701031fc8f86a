"""Installs amcast without extras into a fresh environment, and uses it there: `make light`.

It builds the wheel, installs it with pip at the pinned versions, measures what that brought, and runs the commands and
the first programs of the README in an empty folder. Whatever needs an extra must say so in one line.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_MB = 120

_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What works without extras. `amcast` stands for the installed one.
WORKS = (
    "amcast --help",
    "amcast --version",
    "amcast protocols",
    "amcast schema --json",
    "amcast hops --protocol skeen",
    "amcast sim --protocol fastcast --faults crash,loss --seed 7 --out runs/sim",
    "amcast check runs/sim --json",
    "amcast sweep -p skeen --messages 10 --seeds 1 --out studies/one",
    "amcast fuzz --protocol fastcast --seeds 3 --faults all",
    "amcast fuzz --driver node --protocol skeen --seeds 1",
    "amcast up --protocol fastcast --groups 2 --tls",
    "amcast send g1,g2 hello",
    "amcast load --messages 200 --destinations 1-2",
    "amcast tail g2 -n 1",
    "amcast status --json",
    "amcast down --collect runs/real",
    "amcast check runs/real",
)
# What needs an extra, and which.
NEEDS = {
    "amcast report runs/sim": "spark and matplotlib: pip install 'amcast[report]'",
    "amcast demo": "spark and matplotlib: pip install 'amcast[report]'",
    "amcast check runs/sim --engine spark": "spark: pip install 'amcast[spark]'",
    "amcast sweep --engine spark": "spark: pip install 'amcast[spark]'",
    "amcast swarm --seeds 10": "spark: pip install 'amcast[spark]'",
    "amcast watch runs/sim": "spark: pip install 'amcast[spark]'",
    "amcast import trace --out runs/theirs": "spark: pip install 'amcast[spark]'",
    "amcast tracegen runs/big": "spark: pip install 'amcast[spark]'",
}


class LightError(Exception):
    """What went wrong, for people."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="amcast-light-") as scratch:
        try:
            _check(Path(scratch))
        except LightError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


def _check(scratch: Path) -> None:
    python, seconds, mb = install(scratch)
    print(f"installed: {mb:.1f} MB in {seconds:.0f} s")
    if mb >= LIMIT_MB:
        raise LightError(f"{mb:.1f} MB, and the limit is {LIMIT_MB} MB: what is large belongs to an extra")
    play = scratch / "play"
    play.mkdir()
    try:
        for command in WORKS:
            _run(command, python, play)
            print(f"works: {command}")
    finally:
        _execute([str(python.with_name("amcast")), "down", "--purge"], play)  # nothing runs on after a failure
    for number, program in enumerate(first_programs(), 1):
        _finished([str(python), "-c", program], f"program {number} of the README", play)
        print(f"works: program {number} of the README")
    for command, words in NEEDS.items():
        _run_without(command, words, python, play)
        print(f"says what it needs: {command}")


def install(scratch: Path) -> tuple[Path, float, float]:
    """The interpreter of a fresh environment with amcast in it, the seconds that pip took, and the size in MB."""
    build = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", str(scratch)]
    _finished([*build, str(ROOT)], "building the wheel", ROOT)
    (wheel,) = scratch.glob("amcast-*.whl")
    _finished([sys.executable, "-m", "venv", str(scratch / "venv")], "making an environment", scratch)
    python = scratch / "venv" / "bin" / "python"
    (packages,) = (scratch / "venv" / "lib").glob("python*/site-packages")
    pins = scratch / "pins.txt"
    pins.write_text("\n".join(pinned((ROOT / "requirements.txt").read_text())))
    before, started = _bytes_in(packages), time.perf_counter()
    _finished([str(python), "-m", "pip", "install", "-qq", "-c", str(pins), str(wheel)], "installing", scratch)
    return python, time.perf_counter() - started, (_bytes_in(packages) - before) / 1e6


def pinned(requirements: str) -> Iterator[str]:
    """Pins without hashes: a wheel that was built a moment ago has none, and pip wants all or nothing."""
    for line in requirements.splitlines():
        if line and not line.startswith((" ", "#")):
            yield line.removesuffix("\\").strip()


def first_programs() -> list[str]:
    """A first multicast, and a client of a real cluster."""
    return _PYTHON_BLOCK.findall((ROOT / "README.md").read_text())[:2]


def _bytes_in(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _run(command: str, python: Path, folder: Path) -> None:
    _finished(_program(command, python), command, folder)


def _run_without(command: str, words: str, python: Path, folder: Path) -> None:
    done = _execute(_program(command, python), folder)
    lines = done.stderr.splitlines()
    if done.returncode != 2 or len(lines) != 1 or not lines[0].lower().endswith(f"needs {words}"):
        raise LightError(f"{command} should say that it needs {words}; exit code {done.returncode}:\n{done.stderr}")


def _program(command: str, python: Path) -> list[str]:
    return [str(python.with_name("amcast")), *command.split()[1:]]


def _finished(program: list[str], what: str, folder: Path) -> None:
    done = _execute(program, folder)
    if done.returncode:
        raise LightError(f"{what} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")


def _execute(program: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Without this folder's modules; in wide lines, so that one line stays one."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        program, cwd=folder, env={**environment, "COLUMNS": "300"}, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
