"""`amcast demo`: runs a real cluster and a simulated one, verifies both runs on Spark, and writes a report."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from .._extras import require
from ..check import worst
from ..sim import Scenario, scenario, simulate
from ..sim.faults import CrashLeader, CutLeader, FaultPlan, Lossy
from ..trace import write_run
from ..workload import Micro
from ._cluster import collect_run, start_cluster
from ._load import show_load
from ._output import (
    EXIT_CODES,
    JsonOption,
    MasterOption,
    coloured,
    console,
    line,
    print_json,
    progress,
    without_words,
)
from ._report import make_report, report_page
from ._summary import show_summary, summary

if TYPE_CHECKING:
    from ..net.client.load import LoadResult
    from ..net.local import LocalCluster
    from ..pipeline.report import Written

_CLUSTER_MESSAGES = 5_000


def register(app: typer.Typer) -> None:
    @app.command("demo")
    def demo(
        out: Annotated[Path, typer.Option(help="Runs and reports are written into new folders in here.")] = Path("."),
        seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
        master: MasterOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Run FastCast on a real cluster and in the simulator while leaders crash; verify both on Spark; report.

        Examples:

        [bold]amcast demo --seed 2[/bold]
        """
        require("report", "amcast demo")
        with without_words(as_json):
            runs, written = _demo(out, seed, master, as_json)
        verdict = worst([found.verdict for found in written.reports])
        if as_json:
            print_json({"runs": runs, "verdict": verdict, "report": str(report_page(written))})
        raise typer.Exit(EXIT_CODES[verdict])


def _demo(out: Path, seed: int, master: str | None, quiet: bool) -> tuple[list[str], Written]:
    started = time.monotonic()
    cluster_run = real_run(new_folder(out / "runs", "cluster"), quiet)
    simulated = simulated_run(new_folder(out / "runs", "demo"), seed)
    runs = [str(cluster_run), str(simulated)]
    console.print(f"\nThe runs are in {' and '.join(runs)}.", highlight=False, soft_wrap=True)
    console.print("Verifying them on Spark, and drawing the report ...")
    written = make_report(runs, new_folder(out / "reports", "demo"), master, None, quiet=quiet)
    verdict = worst([found.verdict for found in written.reports])
    held = sum(each == "pass" for found in written.reports for each in found.properties.values())
    count = sum(len(found.properties) for found in written.reports)
    console.print()
    console.print(line("verdict: ", coloured(verdict), f", {held} of {count} properties hold"))
    seconds = time.monotonic() - started
    console.print(line("report: ", (str(report_page(written)), "bold"), f"  ({seconds:.0f} s)"), soft_wrap=True)
    return runs, written


def real_run(out: Path, quiet: bool = False) -> Path:
    """Two groups of three processes on this machine, under load, while the leader of one is killed and comes back."""
    from ..net.config import Limits
    from ..net.local import LocalCluster, plan

    whole = Limits(trace_bytes=0)
    console.print("A real cluster on this machine: two groups of three processes, FastCast, every vote on disk.")
    with tempfile.TemporaryDirectory(prefix="amcast-demo-") as scratch:
        folder = Path(scratch) / "cluster"
        cluster = LocalCluster.create(folder, plan(folder, "fastcast", trace=True, trace_wire=True, limits=whole))
        try:
            start_cluster(cluster, quiet)
            show_load(asyncio.run(_load_and_kill(cluster, quiet)))
            collect_run(cluster, out, quiet)
        finally:
            cluster.stop()
    return out


async def _load_and_kill(cluster: LocalCluster, quiet: bool) -> LoadResult:
    from ..net.client.load import run_load

    victim = next(name for name, status in (await cluster.statuses()).items() if status and status.is_leader)
    with progress(quiet) as bar:
        task = bar.add_task("messages", total=_CLUSTER_MESSAGES, note="")
        loading = asyncio.create_task(
            run_load(
                cluster.config,
                clients=8,
                messages=_CLUSTER_MESSAGES,
                outstanding=8,
                workload=Micro(1, 2, 64),
                progress=lambda done: bar.update(task, completed=done),
            )
        )
        await asyncio.sleep(1)
        cluster.kill(victim)
        console.print(f"  {victim}, a leader, was killed after a second; it is started again a second later")
        await asyncio.sleep(1)
        cluster.start([victim])
        return await loading


def simulated_run(out: Path, seed: int) -> Path:
    made = demo_scenario(seed)
    console.print("\nA simulated one: four groups of three, over three regions 70 to 144 ms apart, FastCast.")
    console.print("While twelve clients multicast to one, two or three groups:")
    for fault in made.plan.describe(made.topology()):
        console.print(f"  {fault}", highlight=False)
    result = simulate(made)
    write_run(out, result.info, result.recorder)
    show_summary(summary(result, result.run()))
    return out


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
    """The first of name-1, name-2, ... that does not exist."""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
