"""`amcast protocols`: what there is."""

from __future__ import annotations

import typer

from ..protocols import installed
from ._output import JsonOption, console, errors, line, print_json, table

_FIELDS = ("name", "title", "paper", "survives", "replicas", "delays", "claims")


def register(app: typer.Typer) -> None:
    @app.command("protocols")
    def protocols(as_json: JsonOption = False) -> None:
        """List the protocols: what they survive, how many message delays they take, what they claim.

        Those of other packages (entry points `amcast.protocols`) come last; one that can't be used is named on stderr.

        Examples:

        [bold]amcast protocols --json[/bold]
        """
        specs, problems = installed()
        for problem in problems:
            errors.print(f"warning: {problem}", soft_wrap=True, highlight=False)
        if as_json:
            print_json([{field: getattr(spec, field) for field in _FIELDS} for spec in specs])
            return
        made = table("name", "survives", "delays", "genuine")
        for spec in specs:
            delays = ", ".join(f"{case} {count}" for case, count in spec.delays.items())
            made.add_row(line((spec.name, "bold")), spec.survives, delays, spec.genuineness)
        console.print(made)
