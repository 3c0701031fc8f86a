"""`amcast demo`: the main job in one command: a run with faults, written, verified and reported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ..sim import scenario
from ..sim.faults import CrashLeader, CutLeader, FaultPlan, Lossy
from ..workload import Micro
from ._output import console
from ._sim import run_scenario


def register(app: typer.Typer) -> None:
    @app.command("demo")
    def demo(
        out: Annotated[Path, typer.Option(help="Runs are written into new folders in here.")] = Path("runs"),
        seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
    ) -> None:
        """Run FastCast over three regions while leaders crash and links fail, then verify the trace.

        Example: [bold]amcast demo --seed 2[/bold]
        """
        made = scenario(
            "fastcast",
            "wan",
            groups=4,
            clients=12,
            messages=600,
            outstanding=2,
            workload=Micro(1, 3, 64),
            seed=seed,
        )
        plan = FaultPlan(
            (
                CrashLeader(1_000_000, 1, 2_000_000),
                Lossy(2_000_000, 0.05, 1_000_000),
                CutLeader(4_000_000, 2, 2_000_000),
            )
        )
        console.print("Four groups of three replicas, spread over three regions 70 to 144 ms apart.\n")
        run_scenario(msgspec.structs.replace(made, plan=plan), new_folder(out, "demo"), as_json=False)


def new_folder(parent: Path, name: str) -> Path:
    """The first of name-1, name-2... that does not exist: nothing is overwritten."""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
