"""`amcast errata`: published algorithms as published, and what breaks them."""

from __future__ import annotations

from typing import Annotated

import typer

from ..check import space_time_text
from ..errata import ERRATA, Replay, erratum, replay
from ..trace import Run
from ._output import FAIL, JsonOption, coloured, console, line, print_json, show_violation


def register(app: typer.Typer) -> None:
    @app.command("errata")
    def errata(
        name: Annotated[str | None, typer.Argument(help="One erratum; all if not given.")] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Replay the flaws of published algorithms: as published, the schedule, the violation, the mend.

        Each schedule is played twice: the published algorithm must fail as described, and the mended one must not. Exit
        code 1 if one of them does otherwise.

        Examples:

        [bold]amcast errata flexcast-ack-per-group[/bold]

        [bold]amcast errata --json[/bold]
        """
        replayed = [replay(each) for each in (ERRATA if name is None else (erratum(name),))]
        if as_json:
            print_json([made for made, _ in replayed])
        else:
            for made, run in replayed:
                _show(made, run if name is not None else None)
        if not all(made.holds for made, _ in replayed):
            raise typer.Exit(FAIL)


def _show(made: Replay, run: Run | None) -> None:
    console.print()
    console.print(line((made.name, "bold"), f"  {made.paper}"))
    for title, words in (("published", made.published), ("problem", made.problem), ("mend", made.mend)):
        console.print(line((f"{title}:", "dim"), f" {words}"))
    if run is not None:
        console.print(line(("schedule:", "dim")))
        for step in made.schedule:
            console.print(f"  {step}", highlight=False)
    for violation in made.violations[:1]:
        show_violation(violation)
        if run is not None and violation.processes:
            console.print(space_time_text(run, violation), highlight=False)
    verdict = coloured("fail" if made.mended else "pass")
    console.print(line(("the mended protocol on the same schedule:", "dim"), " ", verdict))
