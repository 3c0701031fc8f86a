"""`amcast hops`: message delays, measured."""

from __future__ import annotations

from typing import Annotated

import typer

from ..protocols import select
from ..sim.hops import measure_hops
from ._output import FAIL, JsonOption, console, line, print_json, table


def register(app: typer.Typer) -> None:
    @app.command("hops")
    def hops(
        name: Annotated[str, typer.Option("--protocol", "-p", help="One protocol, or all.")] = "all",
        as_json: JsonOption = False,
    ) -> None:
        """Measure message delays in a network where every message takes one unit of time.

        It is the latency at the last replica: from multicast to the last delivery at a destination. `local` is one
        destination group, `global` two. Of geopaxos it counts from the leaders that order an operation, to the last
        execution in their groups. Exit code 1 if a protocol takes longer than it claims.

        Examples:

        [bold]amcast hops --protocol fastcast[/bold]
        """
        measured = [row for spec in select(name) for row in measure_hops(spec)]
        if as_json:
            print_json(measured)
        else:
            made = table("protocol", "case", "delays", "claimed")
            for row in measured:
                colour = "green" if row.delays == row.claimed else "red"
                made.add_row(row.protocol, row.case, line((f"{row.delays:g}", colour)), str(row.claimed))
            console.print(made)
        if any(row.delays != row.claimed for row in measured):
            raise typer.Exit(FAIL)
