"""What all commands share: consoles, exit codes, JSON, progress bars, and options of several commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text, TextType

if TYPE_CHECKING:
    from ..check import Report, Verdict, Violation

PASS, FAIL, USAGE, UNKNOWN = 0, 1, 2, 3
STOPPED = 130  # by Ctrl-C: 128 + SIGINT, as in shells
EXIT_CODES: Mapping[Verdict, int] = {"pass": PASS, "fail": FAIL, "unknown": UNKNOWN}
_VIOLATIONS_SHOWN = 10  # of each run; --json has all
COLOURS: Mapping[str, str] = {"pass": "green", "fail": "red", "unknown": "yellow"}


# What a terminal would obey instead of showing it: control characters, overrides of the direction of writing, and
# halves of characters, which can't be printed at all. A Python escape stands for each.
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, kept: str = "") -> str:
    """A text from anywhere, safe for a terminal. Line ends are escaped as well, unless they are kept."""
    return _INVISIBLE.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


class SafeConsole(Console):
    """Shows every text as it is: strings have no markup here. `line` makes what has colours."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(visible(text, kept="\n\t"), **settings)


def line(*parts: str | tuple[str, str] | Text) -> Text:
    """One line of texts, of texts with a style, and of lines."""
    made = Text()
    for part in parts:
        if isinstance(part, Text):
            made.append_text(part)
        elif isinstance(part, tuple):
            made.append(visible(part[0]), part[1])
        else:
            made.append(visible(part))
    return made


console = SafeConsole()
errors = SafeConsole(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
ClientRegionOption = Annotated[
    str | None,
    typer.Option(help="The region of the network in which all clients are; all regions in turn if not given."),
]
MasterOption = Annotated[str | None, typer.Option(help="Spark master; local[*] if not given.", metavar="URL")]
RemoteOption = Annotated[str | None, typer.Option(help="Spark Connect endpoint, sc://host:port.", metavar="URL")]


def print_json(document: Any) -> None:
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=2)
    sys.stdout.write(_plain_json(encoded) + "\n")


def json_line(document: Any) -> str:
    return _plain_json(msgspec.json.encode(document))


def _plain_json(encoded: bytes) -> str:
    """JSON escapes some control characters only. The others occur in strings alone, where an escape means the same."""
    return _INVISIBLE.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", encoded.decode())


def coloured(verdict: str) -> Text:
    return Text(verdict, COLOURS[verdict])


def table(*columns: str, title: TextType | None = None) -> Table:
    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column)
    return made


def progress(quiet: bool = False) -> Progress:
    """A progress bar on stderr, removed when done. It is not shown if stderr is not a terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=errors,
        transient=True,
        disable=quiet or not errors.is_terminal,
    )


@contextmanager
def without_words(quiet: bool) -> Iterator[None]:
    """If quiet, nothing is printed for people meanwhile."""
    console.quiet = quiet
    try:
        yield
    finally:
        console.quiet = False


@contextmanager
def saying(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is being done now. It is not shown if stderr is not a terminal."""
    if quiet or not errors.is_terminal:
        yield lambda what: None
        return
    with errors.status("starting Spark ...") as status:
        yield lambda what: status.update(line(f"{what} ..."))


def show_breach(what: str, explanation: str) -> None:
    console.print()
    console.print(line((what, "red"), ": ", explanation))


def show_entries(document: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in keys:
        console.print(line(f"{key.replace('_', ' ')}: ", (str(document[key]), "bold")), soft_wrap=True)


def show_violation(violation: Violation) -> None:
    console.print(line((violation.property, "red"), ": ", violation.explanation))


def show_verdicts(report: Report) -> None:
    made = table("property", "verdict", "")
    told: dict[str, str] = {}  # reasons, and of which property they were told first
    for name, verdict in report.properties.items():
        reason = report.reasons.get(name, "")
        first = told.setdefault(reason, name)
        made.add_row(name, coloured(verdict), reason if first == name or not reason else f"as {first}")
    console.print(made)


def show_violations(violations: Sequence[Violation]) -> None:
    for violation in violations[:_VIOLATIONS_SHOWN]:
        show_breach(violation.property, violation.explanation)
    if len(violations) > _VIOLATIONS_SHOWN:
        console.print(f"\n... and {len(violations) - _VIOLATIONS_SHOWN} more")
