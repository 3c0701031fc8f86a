"""The command line of `python -m bench`: prints a table, or JSON. Exit code 0 if all targets are met, 1 otherwise."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from . import checker, event_loop, operations, simulator
from ._figures import QUICK, Figure, Progress, Sizes

MEASURES: dict[str, Callable[[Sizes, Progress], list[Figure]]] = {
    "event-loop": event_loop.measure,
    "fastcast-run": simulator.measure_run,
    "linear": simulator.measure_linear,
    "checker": checker.measure,
    "operations": operations.measure,
    "protocols": simulator.measure_protocols,
}

_VERDICTS = {True: "[green]met[/]", False: "[red]missed[/]", None: "[dim]for information[/]"}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    errors = Console(stderr=True, highlight=False)
    figures: list[Figure] = []
    try:
        for name in options.only or MEASURES:
            figures += MEASURES[name](QUICK if options.quick else Sizes(), _progress(errors, name))
    except KeyboardInterrupt:
        errors.print("stopped")
        return 130
    if options.json:
        print(json.dumps([figure.to_json() for figure in figures], indent=2))
    else:
        _show(figures, options.quick)
    return 1 if any(figure.ok is False for figure in figures) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures amcast in CPU time.")
    parser.add_argument("--only", action="append", choices=list(MEASURES), metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _progress(errors: Console, name: str) -> Progress:
    return lambda what: errors.print(f"[dim]{name}: {what}[/]")


def _show(figures: list[Figure], quick: bool) -> None:
    title = "amcast benchmarks" + (", small sizes: not figures to quote" if quick else "")
    table = Table("measure", "reached", "target", "verdict", title=title, title_justify="left")
    for figure in figures:
        reached = f"{_number(figure.reached)} {figure.unit}"
        table.add_row(figure.name, reached, _target(figure), _VERDICTS[figure.ok])
    console = Console(highlight=False)
    console.print(table)
    for figure in figures:
        console.print(f"[bold]{figure.name}[/]: {figure.detail}")


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"{'at most' if figure.is_limit else 'at least'} {_number(figure.target)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
