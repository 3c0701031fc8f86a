"""The command line. Exit code 0 if all targets are met, 1 otherwise.

python -m bench.cluster [--only NAME] [--quick] [--json] [--out FOLDER]    amcast and its peers
python -m bench.cluster --soak                                             five minutes at 80 % of the maximum
python -m bench.cluster --recovery                                         a killed replica with a long log
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench._figures import Figure

from ._children import BrokenError, exit_on_signals, file_system
from ._comparisons import COMPARISONS, Found
from ._measure import QUICK, Progress, Results, Sizes, measure_all
from ._recovery import measure_recovery
from ._report import draw, figure_rows, measurement_rows, table, to_json
from ._soak import measure_soak
from ._systems import missing


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    exit_on_signals()
    try:
        with tempfile.TemporaryDirectory(prefix="amcast-bench-") as name:
            folder = Path(name)
            if options.soak or options.recovery:
                run = measure_soak if options.soak else measure_recovery
                figures = run(sizes, folder, _progress)
                document: dict[str, Any] = {"quick": options.quick, "figures": [each.to_json() for each in figures]}
                text = table(figure_rows(figures))
            else:
                results, figures, absent = compare(options.only or list(COMPARISONS), sizes, folder, _progress)
                document = to_json(results, figures, absent, options.quick)
                text = _text(results, figures, absent, file_system(folder))
                if options.out is not None:
                    options.out.mkdir(parents=True, exist_ok=True)
                    draw(results, options.out / "cluster.svg")
    except KeyboardInterrupt:
        _progress("stopped")
        return 130
    except (BrokenError, TimeoutError) as error:
        _progress(f"broken off: {error}")
        return 1
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        print("small sizes: not figures to quote\n" + text if options.quick else text)
    return 1 if any(figure.ok is False for figure in figures) or not figures else 0


def compare(
    names: Sequence[str], sizes: Sizes, folder: Path, progress: Progress
) -> tuple[Results, list[Figure], dict[str, str]]:
    """The results, the figures that follow from them, and why a system is missing: not installed, or broken down."""
    wanted = [measurement for name in names for measurement in COMPARISONS[name][0]]
    reasons = {system: missing(system) for system, _ in wanted}
    absent = {system: reason for system, reason in reasons.items() if reason is not None}
    for system, reason in absent.items():
        progress(f"{system}: {reason}")
    present = [measurement for measurement in wanted if measurement[0] not in absent]
    results, broken = measure_all(present, sizes, folder, progress)
    found = Found(results)
    return results, [figure for name in names for figure in COMPARISONS[name][1](found)], absent | broken


def _text(results: Results, figures: Sequence[Figure], absent: dict[str, str], disk: str) -> str:
    parts = [
        table(measurement_rows(results)),
        table(figure_rows(figures)),
        "\n".join(
            [
                "Three replicas, 64 bytes, best of the rounds; shape: sessions x outstanding messages of each.",
                "Sessions share one connection to each node; those of amcast-apart and of the peers have one each.",
                "CPU us: a message, user and system time of all servers and the load.",
                f"Systems called sync and etcd wait for the disk ({disk}); all others keep everything in memory.",
                "PySyncObj has no clients: its load runs in the leader. It has no mode that waits for the disk.",
                *(f"{system} did not run (to the end): {reason}" for system, reason in absent.items()),
            ]
        ),
    ]
    return "\n\n".join(parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description="Measures amcast against its peers.")
    names = ", ".join(COMPARISONS)
    parser.add_argument("--only", action="append", choices=list(COMPARISONS), metavar="NAME", help=names)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="draw cluster.svg there")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--soak", action="store_true", help="64 clients at 80 %% of the maximum for five minutes")
    other.add_argument("--recovery", action="store_true", help="kill a replica with a million messages in its log")
    return parser


def _progress(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
