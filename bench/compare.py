"""This version against an earlier one, on real clusters: `python -m bench.compare BASE`.

    python -m bench.compare ba3c4eb [--shapes 1x1,64x16] [--rounds 15] [--seconds 0.7] [--system amcast] [--json]

BASE is a commit. Clusters of both versions are up at once and get short loads in turn, first one and then the other in
every other round, so that whatever else the machine does hits both alike. Each version runs with its own source, nodes
and load; libraries are those of this environment. Ratios (this version's figure by that of BASE) are medians of the
ratios of the rounds, with their quartiles. The CPU time of a message, of all nodes and the load, is the steadier one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from .cluster._children import BrokenError, exit_on_signals
from .cluster._jobs import Shape

_ROOT = Path(__file__).resolve().parent.parent
_SHAPES = "1x1,64x1,64x16,1x64"


class Load(NamedTuple):
    rate: float
    cpu_us: float  # a message


class Ratio(NamedTuple):
    """Over the rounds: the median, and the quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


class Version:
    """The cluster of one version, in processes of its own; they end when the input of the first one is closed."""

    def __init__(self, source: Path, system: str) -> None:
        path = os.pathsep.join([str(source / "src"), str(source)])
        self._child = subprocess.Popen(
            # -P: this file's own folder is not on the path, where it would hide the version's
            [sys.executable, "-P", str(_ROOT / "bench" / "_one_version.py"), system],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=source,
            env=os.environ | {"PYTHONPATH": path},
            text=True,
            start_new_session=True,  # Ctrl-C reaches only the comparison
        )

    def load(self, shape: Shape, seconds: float) -> Load:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            print(shape.sessions, shape.outstanding, seconds, file=self._child.stdin, flush=True)
        answer = self._child.stdout.readline().split()
        if not answer:
            raise BrokenError(f"a cluster ended (code {self._child.wait()})")
        return Load(*map(float, answer))

    def end(self) -> None:
        self._child.communicate()  # closes its input and waits


@contextlib.contextmanager
def source_of(commit: str) -> Iterator[Path]:
    """A folder with the source of a commit."""
    found = subprocess.run(["git", "archive", commit, "src", "bench"], cwd=_ROOT, capture_output=True)
    if found.returncode:
        raise BrokenError(found.stderr.decode().strip())
    with tempfile.TemporaryDirectory(prefix="amcast-compare-") as folder:
        with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def measure(
    base: Path, shapes: Sequence[Shape], rounds: int, seconds: float, system: str = "amcast"
) -> dict[Shape, list[tuple[Load, Load]]]:
    """For each shape and round: this version, and the one before."""
    found: dict[Shape, list[tuple[Load, Load]]] = {shape: [] for shape in shapes}
    with contextlib.ExitStack() as ends:
        versions = []
        for source in (_ROOT, base):
            versions.append(Version(source, system))
            ends.callback(versions[-1].end)
        for number in range(-1, rounds):
            for shape in shapes:
                order = versions if number % 2 else versions[::-1]
                loads = {version: version.load(shape, seconds) for version in order}
                if number >= 0:  # the first round warms up
                    found[shape].append((loads[versions[0]], loads[versions[1]]))
            _progress(f"round {number + 1} of {rounds}")
    return found


def ratio(now: Sequence[float], before: Sequence[float]) -> Ratio:
    ratios = [a / b for a, b in zip(now, before, strict=True)]
    low, _, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return Ratio(median(ratios), low, high)


def rows_of(found: dict[Shape, list[tuple[Load, Load]]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for shape, rounds in found.items():
        now, before = zip(*rounds, strict=True)
        rows.append(
            {
                "shape": str(shape),
                "rate": ratio([each.rate for each in now], [each.rate for each in before]),
                "cpu": ratio([each.cpu_us for each in now], [each.cpu_us for each in before]),
                "rates": [median(each.rate for each in version) for version in (now, before)],
                "cpu_us": [median(each.cpu_us for each in version) for version in (now, before)],
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    exit_on_signals()
    try:
        with source_of(options.base) as base:
            found = measure(base, options.shapes, options.rounds, options.seconds, options.system)
    except KeyboardInterrupt:
        _progress("stopped")
        return 130
    except BrokenError as error:
        _progress(f"broken off: {error}")
        return 1
    rows = rows_of(found)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(f"{row['shape']}: rate {row['rate']}, CPU a message {row['cpu']}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="Measures against an earlier commit.")
    parser.add_argument("base", metavar="BASE", help="a commit, such as v0.1.0 or HEAD~20")
    parser.add_argument("--shapes", type=_shapes, default=_SHAPES, help="sessions x outstanding of each (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.7, help="of one load (%(default)s)")
    parser.add_argument("--system", default="amcast", help="a cluster of bench.cluster, such as amcast-sync")
    parser.add_argument("--json", action="store_true")
    return parser


def _shapes(text: str) -> list[Shape]:
    return [Shape(*map(int, each.split("x"))) for each in text.split(",")]


def _progress(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
