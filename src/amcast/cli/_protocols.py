"""`amcast protocols`: what there is."""

from __future__ import annotations

import typer

from ..protocols import PROTOCOLS
from ._output import JsonOption, console, print_json, table


def register(app: typer.Typer) -> None:
    @app.command("protocols")
    def protocols(as_json: JsonOption = False) -> None:
        """List the protocols: what they survive, how many message delays they take, what they claim.

        Example: [bold]amcast protocols --json[/bold]
        """
        if as_json:
            print_json(
                [
                    {
                        "name": spec.name,
                        "title": spec.title,
                        "paper": spec.paper,
                        "survives": spec.survives,
                        "replicas": spec.replicas,
                        "delays": spec.delays,
                        "claims": spec.claims,
                    }
                    for spec in PROTOCOLS.values()
                ]
            )
            return
        made = table("name", "survives", "delays", "genuine")
        for spec in PROTOCOLS.values():
            delays = ", ".join(f"{case} {count}" for case, count in spec.delays.items())
            made.add_row(
                f"[bold]{spec.name}[/bold]",
                spec.survives,
                delays,
                spec.genuineness,
            )
        console.print(made)
