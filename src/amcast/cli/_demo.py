"""`amcast demo`: the main job in one command: a run with faults, written, verified on Spark, and reported."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ..sim import Scenario, scenario, simulate
from ..sim.faults import CrashLeader, CutLeader, FaultPlan, Lossy
from ..trace import write_run
from ..workload import Micro
from ._output import EXIT_CODES, coloured, console, worst
from ._report import make_report, report_page
from ._summary import show_summary, summary


def register(app: typer.Typer) -> None:
    @app.command("demo")
    def demo(
        out: Annotated[Path, typer.Option(help="Runs and reports are written into new folders in here.")] = Path("."),
        seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
        master: Annotated[str | None, typer.Option(help="Spark master; local[*] if not given.", metavar="URL")] = None,
    ) -> None:
        """Run FastCast over three regions while leaders crash and links fail; verify the trace on Spark; report.

        Example: [bold]amcast demo --seed 2[/bold]
        """
        started = time.monotonic()
        made = demo_scenario(seed)
        console.print("Four groups of three replicas, spread over three regions 70 to 144 ms apart, FastCast.")
        console.print("While twelve clients multicast to one, two or three groups:")
        for line in made.plan.describe(made.topology()):
            console.print(f"  {line}", highlight=False)
        folder = new_folder(out / "runs", "demo")
        result = simulate(made)
        write_run(folder, result.info, result.recorder)
        console.print()
        show_summary(summary(result, result.run()))
        console.print(f"\nThe run is in {folder}. Verifying it on Spark, and drawing the report ...", highlight=False)
        written = make_report([str(folder)], new_folder(out / "reports", "demo"), master, None, quiet=False)
        verdict = worst([found.verdict for found in written.reports])
        held = sum(each == "pass" for found in written.reports for each in found.properties.values())
        count = sum(len(found.properties) for found in written.reports)
        console.print(f"\nverdict: {coloured(verdict)}, {held} of {count} properties hold", highlight=False)
        seconds = time.monotonic() - started
        console.print(
            f"report: [bold]{report_page(written)}[/bold]  ({seconds:.0f} s)", highlight=False, soft_wrap=True
        )
        raise typer.Exit(EXIT_CODES[verdict])


def demo_scenario(seed: int) -> Scenario:
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
    return msgspec.structs.replace(made, plan=plan)


def new_folder(parent: Path, name: str) -> Path:
    """The first of name-1, name-2... that does not exist: nothing is overwritten."""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
