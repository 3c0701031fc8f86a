"""`amcast swarm`: thousands of random schedules as one Spark job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._extras import require
from ..core import UsageError
from ..protocols import protocol, select
from ._fuzz import Driver
from ._output import (
    FAIL,
    JsonOption,
    MasterOption,
    RemoteOption,
    coloured,
    console,
    line,
    print_json,
    progress,
    show_breach,
    show_entries,
    table,
)

if TYPE_CHECKING:
    from ..pipeline.swarm import Found, Plan, SwarmResult, SwarmSpec

_SHOWN_MAX = 20


def register(app: typer.Typer) -> None:
    @app.command("swarm")
    def swarm(
        name: Annotated[str, typer.Option("--protocol", "-p", help="One protocol, or all.")] = "all",
        seeds: Annotated[int, typer.Option(help="How many seeds each cell runs.", min=1)] = 1000,
        first_seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
        driver: Annotated[
            Driver, typer.Option(help="Protocol processes alone, or whole nodes with their disks and connections.")
        ] = Driver.PROCESS,
        faults: Annotated[
            list[str] | None,
            typer.Option(help="Kinds of faults: all, none, or crash,partition,...; each repetition adds a cell."),
        ] = None,
        replicas: Annotated[str, typer.Option(help="Processes per group, such as 3 or 3,5.")] = "",
        groups: Annotated[str, typer.Option(help="Groups, such as 2 or 2,4; drawn for each seed if not given.")] = "",
        master: MasterOption = None,
        remote: RemoteOption = None,
        out: Annotated[
            Path | None, typer.Option(help="Keep results here; the same command again goes on where it stopped.")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Run every seed of every cell on Spark, check each run, and bring back the schedules that break a protocol.

        A cell is a protocol with a size of groups and kinds of faults; `amcast fuzz` runs one cell, on this machine.
        Counterexamples are shrunk in the task that found them. Exit codes: 0 all runs pass, 1 some do not.

        Examples:

        [bold]amcast swarm --protocol all --seeds 10000 --replicas 3,5 --out runs/swarm[/bold]

        [bold]amcast swarm -p fastcast --seeds 50000 --master spark://host:7077[/bold]

        [bold]amcast swarm --driver node --seeds 50000 --out runs/nodes[/bold]

        Stop it, and the same command goes on.
        """
        require("spark", "amcast swarm")
        from ..pipeline.swarm import SwarmSpec, make_cells

        names = [spec.name for spec in select(name)]
        sizes, counts = _numbers(replicas, "--replicas"), _numbers(groups, "--groups")
        cells = make_cells(names, faults or ["all"], sizes, counts, str(driver))
        spec = SwarmSpec(cells, seeds, first_seed)
        started = time.perf_counter()
        result = _run(spec, out, master, remote, quiet=as_json)
        document = _document(result, out, time.perf_counter() - started)
        if as_json:
            print_json(document)
        else:
            _show(document)
        if result.violations:
            raise typer.Exit(FAIL)


def _run(spec: SwarmSpec, out: Path | None, master: str | None, remote: str | None, quiet: bool) -> SwarmResult:
    from ..pipeline.spark import running_spark
    from ..pipeline.swarm import run_swarm

    known = _known_plan(spec, out)
    run_seconds = [] if known else _probe(spec)  # raises what is wrong, before Spark starts
    with running_spark(master, remote, "amcast swarm") as spark, progress(quiet) as bar:
        plan = known or _plan(spec, run_seconds, spark)
        bar_task = bar.add_task("schedules", total=spec.seeds * len(spec.cells), note="")
        violations = 0

        def show(result: Any) -> None:
            nonlocal violations
            violations += sum(part.violations for part in result.totals)
            note = f"{violations} violation(s)" if violations else ""
            bar.update(bar_task, advance=sum(part.schedules for part in result.totals), note=note)

        return run_swarm(spark, plan, out, show)


def _numbers(text: str, option: str) -> list[int | None]:
    """The numbers of a list such as "3,5"; one None if it is empty."""
    if not text:
        return [None]
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option} {text}: write numbers with commas between, such as 3,5") from error
    if min(values) < 1:
        raise UsageError(f"{option} {text}: numbers are 1 or more")
    return list(values)


def _known_plan(spec: SwarmSpec, out: Path | None) -> Plan | None:
    from ..pipeline.swarm.store import SwarmStore

    return None if out is None else SwarmStore(out).plan(spec)


def _probe(spec: SwarmSpec) -> list[float]:
    from ..pipeline.swarm import probe_cell

    return [probe_cell(cell, spec.first_seed, time.perf_counter) for cell in spec.cells]


def _plan(spec: SwarmSpec, run_seconds: list[float], spark: Any) -> Plan:
    from ..pipeline.spark import is_connect
    from ..pipeline.swarm import make_plan

    # Spark Connect does not say how many cores there are; a plan for 8 keeps a small cluster busy.
    cores = 8 if is_connect(spark) else spark.sparkContext.defaultParallelism
    return make_plan(spec, run_seconds, cores)


def _document(result: SwarmResult, out: Path | None, seconds: float) -> dict[str, Any]:
    cells = []
    for totals, cell in zip(result.cells, result.spec.cells, strict=True):
        described = {"protocol": cell.protocol, "replicas": cell.replicas or protocol(cell.protocol).replicas}
        counts = {key: getattr(totals, key) for key in totals.__struct_fields__ if key != "cell"}
        cells.append({**described, "groups": cell.groups, "driver": cell.driver, "faults_kinds": cell.faults, **counts})
    schedules = sum(totals.schedules for totals in result.cells)
    return {
        "verdict": "fail" if result.violations else "pass",
        "schedules": schedules,
        "seconds": round(seconds, 3),
        "resumed_waves": result.resumed,
        "cells": cells,
        "violation_count": result.violations,
        "violations": [_violation(result.spec, one, out) for one in result.found],
    }


def _violation(spec: SwarmSpec, one: Found, out: Path | None) -> dict[str, Any]:
    from ..pipeline.swarm.store import SwarmStore

    cell = spec.cells[one.cell]
    file = None if out is None else str(SwarmStore(out).scenario_file(spec, one))
    return {
        "protocol": cell.protocol,
        "seed": one.seed,
        "property": one.property,
        "messages": one.messages,
        "processes": one.processes,
        "explanation": one.explanation,
        "faults": one.faults,
        "replay": cell.replay(one.seed),
        "replay_shrunk": None if file is None else f"amcast sim --scenario {file}",
        "scenario": one.scenario,
        "shrunk": one.shrunk,
    }


def _show(document: dict[str, Any]) -> None:
    made = table("protocol", "replicas", "faults", "schedules", "injected", "messages", "deliveries", "")
    for cell in document["cells"]:
        kinds = (
            ("nodes, " if cell["driver"] == Driver.NODE else "")
            + cell["faults_kinds"]
            + (f", {cell['groups']} groups" if cell["groups"] else "")
        )
        counts = (f"{cell[key]:,}" for key in ("schedules", "faults", "messages", "deliveries"))
        verdict = line(coloured("fail"), f" {cell['violations']:,}") if cell["violations"] else coloured("pass")
        made.add_row(cell["protocol"], str(cell["replicas"]), kinds, *counts, verdict)
    console.print(made)
    for one in document["violations"][:_SHOWN_MAX]:
        show_breach(f"{one['protocol']}, seed {one['seed']} breaks {one['property']}", one["explanation"])
        for fault in one["faults"]:
            console.print(line(f"  {fault}"))
        show_entries(one, [key for key in ("replay", "replay_shrunk") if one[key]])
    more = document["violation_count"] - min(_SHOWN_MAX, len(document["violations"]))
    if more > 0:
        console.print(f"\n... and {more} more")
    rate = document["schedules"] / max(document["seconds"], 0.001)
    console.print(f"{document['schedules']:,} schedules in {document['seconds']:.0f} s, {rate:,.0f} a second")
