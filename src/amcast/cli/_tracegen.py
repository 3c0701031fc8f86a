"""`amcast tracegen`: traces of any size, correct or with violations that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .._extras import require
from ._output import JsonOption, console, errors, print_json


def register(app: typer.Typer) -> None:
    @app.command("tracegen")
    def tracegen(
        out: Annotated[Path, typer.Argument(help="The new run folder.")],
        deliveries: Annotated[int, typer.Option(help="About how many deliveries.", min=1)] = 1_000_000,
        groups: Annotated[int, typer.Option(help="Number of groups.", min=1)] = 16,
        replicas: Annotated[int, typer.Option(help="Processes per group.", min=1)] = 3,
        destinations: Annotated[int, typer.Option(help="Groups that a message goes to, at most.", min=1)] = 2,
        skew: Annotated[float, typer.Option(help="Popularity of the n-th group is 1 / n^skew.", min=0)] = 0.0,
        rate: Annotated[int, typer.Option(help="Messages a second.", min=1)] = 100_000,
        in_flight_us: Annotated[int, typer.Option(help="How long a message is in flight, at most.", min=1)] = 2_000,
        damage: Annotated[
            list[str] | None,
            typer.Option(help="A violation to put in, such as cycle3 or swap-replica; may be repeated."),
        ] = None,
        seed: Annotated[int, typer.Option(help="Same seed, same bytes.", min=0)] = 0,
        as_json: JsonOption = False,
    ) -> None:
        """Generate a trace for benchmarks and tests of checkers.

        Examples:

        [bold]amcast tracegen runs/big --deliveries 10000000[/bold]

        [bold]amcast tracegen runs/bad --damage cycle3 && amcast check runs/bad[/bold]
        """
        require("spark", "amcast tracegen")
        from ..pipeline import TraceSpec, generate_trace

        spec = TraceSpec(
            deliveries=deliveries,
            groups=groups,
            replicas=replicas,
            destinations=destinations,
            skew=skew,
            rate=rate,
            in_flight_us=in_flight_us,
            damages=tuple(damage or ()),
            seed=seed,
            run_id=out.name,
        )
        with errors.status("generating ..."):
            info = generate_trace(out, spec)
        if as_json:
            print_json({"out": str(out), "run_id": info.run_id, "messages": spec.messages, "damages": spec.damages})
        else:
            console.print(f"{out}: {spec.messages} messages; verify it with: amcast check {out}", highlight=False)
