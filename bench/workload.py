"""Tables of gTPC-C at 100 million transactions: how long they take to draw and to check, and in how much memory.

    python -m bench.workload [--json] [--transactions MILLIONS] [--folder DIR]

Memory is that of all processes together, Java's too, looked at twice a second; it must stay below 6 GB. `make
bench-workload` runs it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ._figures import Figure

_MEMORY_GB = 6.0
_LOOK_S = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.workload", description=__doc__.splitlines()[0])
    parser.add_argument("--transactions", type=float, default=100, metavar="MILLIONS")
    parser.add_argument("--folder", type=Path, help="where the tables are kept; a temporary one if not given")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="amcast-workload-"))
    try:
        figures = measure(folder / "gtpcc", round(options.transactions * 1e6))
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps([figure.to_json() for figure in figures], indent=2))
    else:
        for figure in figures:
            limit = "" if figure.target is None else f" (at most {figure.target:g}: {'ok' if figure.ok else 'missed'})"
            print(f"{figure.name:16} {figure.reached:10.1f} {figure.unit:3} {figure.detail}{limit}")
    return 0 if all(figure.ok is not False for figure in figures) else 1


def measure(folder: Path, transactions: int) -> list[Figure]:
    what = f"{transactions:,} transactions"
    make_s, make_gb = _run("make", "gtpcc", "--out", str(folder), "--transactions", str(transactions))
    describe_s, describe_gb = _run("describe", str(folder), "--json")
    size_gb = sum(file.stat().st_size for file in folder.rglob("*.parquet")) / 1e9
    return [
        Figure("workload-make", make_s, "s", what),
        Figure("workload-check", describe_s, "s", f"{what}, all frequencies as stated"),
        Figure("workload-memory", max(make_gb, describe_gb), "GB", "all processes", _MEMORY_GB, is_limit=True),
        Figure("workload-size", size_gb, "GB", "on disk"),
    ]


def _run(*arguments: str) -> tuple[float, float]:
    """Seconds, and the most memory. What it prints is shown only if it fails."""
    begun, most = time.perf_counter(), 0.0
    command = [sys.executable, "-c", "from amcast.cli import main; main()", "workload", *arguments]
    with tempfile.TemporaryFile() as told:
        with subprocess.Popen(command, stdout=told, stderr=told) as program:
            while program.poll() is None:
                most = max(most, _memory_gb(program.pid))
                time.sleep(_LOOK_S)
        if program.returncode:
            told.seek(0)
            raise SystemExit(told.read().decode())
    return time.perf_counter() - begun, most


def _memory_gb(root: int) -> float:
    """Of a process and all that it started. One that ends meanwhile has none."""
    parents: dict[int, int] = {}
    memory: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        pid = int(status.parent.name)
        parents[pid] = int(fields["PPid"])
        memory[pid] = int(fields.get("VmRSS", "0 kB").split()[0])
    return sum(memory[pid] for pid in memory if _descends(pid, root, parents)) / 1e6


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid and pid != root:
        pid = parents.get(pid, 0)
    return pid == root


if __name__ == "__main__":
    sys.exit(main())
