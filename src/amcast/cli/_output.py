"""What all commands share: consoles, exit codes, JSON, progress bars, and options of several commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import TextType

from ..check import Report, Verdict

PASS, FAIL, USAGE, UNKNOWN = 0, 1, 2, 3
STOPPED = 130  # by Ctrl-C: 128 + SIGINT, as in shells
EXIT_CODES: Mapping[Verdict, int] = {"pass": PASS, "fail": FAIL, "unknown": UNKNOWN}
COLOURS: Mapping[str, str] = {"pass": "green", "fail": "red", "unknown": "yellow"}

console = Console()
errors = Console(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
MasterOption = Annotated[str | None, typer.Option(help="Spark master; local[*] if not given.", metavar="URL")]
RemoteOption = Annotated[str | None, typer.Option(help="Spark Connect endpoint, sc://host:port.", metavar="URL")]


def print_json(document: Any) -> None:
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=2)
    sys.stdout.write(encoded.decode() + "\n")


def coloured(verdict: str) -> str:
    return f"[{COLOURS[verdict]}]{verdict}[/{COLOURS[verdict]}]"


def table(*columns: str, title: TextType | None = None) -> Table:
    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column)
    return made


def progress(quiet: bool = False) -> Progress:
    """A progress bar on stderr, removed when done. It is not shown if stderr is not a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=errors,
        transient=True,
        disable=quiet or not errors.is_terminal,
    )


@contextmanager
def saying(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is being done now. It is not shown if stderr is not a terminal."""
    if quiet or not errors.is_terminal:
        yield lambda what: None
        return
    with errors.status("starting Spark ...") as status:
        yield lambda what: status.update(f"{what} ...")


def show_report(report: Report, violations_max: int = 10) -> None:
    made = table("property", "verdict", "")
    for name, verdict in report.properties.items():
        made.add_row(name, coloured(verdict), report.reasons.get(name, ""))
    console.print(made)
    for violation in report.violations[:violations_max]:
        console.print(f"\n[red]{violation.property}[/red]: {escape(violation.explanation)}", highlight=False)
    if len(report.violations) > violations_max:
        console.print(f"\n... and {len(report.violations) - violations_max} more")
