"""`amcast workload`: tables of a workload, of any size, and whether they are as stated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from .._extras import require
from ..core import PRESETS, UsageError
from ..workload import Gtpcc, Social
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
    table,
)
from ._parse import WorkloadOptions, parse_workload

if TYPE_CHECKING:
    from ..pipeline.workloads import GtpccTables, SocialTables
    from ..pipeline.workloads.description import Description

Kind = Literal["gtpcc", "social"]


def register(app: typer.Typer) -> None:
    workload = typer.Typer(
        help="Tables of a workload, of any size: draw them, and check that they are as stated.\n\n"
        "Example:\n\n[bold]amcast workload make gtpcc --out big --transactions 100000000[/bold]",
        no_args_is_help=True,
    )
    app.add_typer(workload, name="workload")

    @workload.command("make")
    def make(
        kind: Annotated[Kind, typer.Argument(help="gtpcc: transactions. social: users and their followers.")],
        out: Annotated[Path, typer.Option(help="The new folder.", metavar="DIR")],
        workload_option: WorkloadOptions = None,
        groups: Annotated[int | None, typer.Option(help="Number of groups; 12, or 16 of social.", min=1)] = None,
        transactions: Annotated[int | None, typer.Option(help="Of gtpcc; a million if not given.", min=1)] = None,
        clients: Annotated[int | None, typer.Option(help="Of gtpcc; 240 if not given.", min=1)] = None,
        network: Annotated[
            str | None, typer.Option(help=f"Of gtpcc, how far warehouses are apart: {', '.join(PRESETS)}; aws.")
        ] = None,
        seed: Annotated[int | None, typer.Option(help="Of gtpcc: same seed, same rows; 1.", min=0)] = None,
        master: MasterOption = None,
        remote: RemoteOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Draw the tables of a workload on Spark, as Parquet files. The rows do not depend on the number of tasks.

        Examples:

        [bold]amcast workload make gtpcc --out big --transactions 100000000 -w locality=0.95[/bold]

        [bold]amcast workload make social --out users --groups 64 -w users=1000000[/bold]
        """
        require("spark", "amcast workload make")
        given = {"groups": groups, "transactions": transactions, "clients": clients, "network": network, "seed": seed}
        plan = _plan(kind, workload_option, {name: value for name, value in given.items() if value is not None})
        from ..pipeline.spark import running_spark
        from ..pipeline.workloads import GtpccTables, make_gtpcc, make_social

        with running_spark(master, remote, "amcast workload") as spark:
            if isinstance(plan, GtpccTables):
                with _telling("blocks", plan.blocks, as_json) as tell:
                    make_gtpcc(spark, out, plan, tell)
            else:
                with _telling("blocks of users", plan.workload.graph().blocks, as_json) as tell:
                    make_social(spark, out, plan, tell)
        if as_json:
            print_json({"out": str(out), "plan": msgspec.to_builtins(plan)})
        else:
            console.print(line(f"{out}: check it with: amcast workload describe {out}"), soft_wrap=True)

    @workload.command("describe")
    def describe(
        folder: Annotated[Path, typer.Argument(help="A folder of `amcast workload make`.", metavar="DIR")],
        master: MasterOption = None,
        remote: RemoteOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Count what is in the tables of a workload, and compare it with what is stated.

        Each frequency has a chi-square or an exact test; one fails if what was found had come by chance less than once
        in a million times. Exit codes: 0 all are as stated, 1 one is not.

        Examples:

        [bold]amcast workload describe big[/bold]

        [bold]amcast workload describe users --json[/bold]
        """
        require("spark", "amcast workload describe")
        from ..pipeline.spark import running_spark
        from ..pipeline.workloads import GtpccTables, describe_tables, read_plan

        plan = read_plan(folder)
        blocks = plan.blocks if isinstance(plan, GtpccTables) else plan.workload.graph().blocks
        with running_spark(master, remote, "amcast workload") as spark, _telling("blocks", blocks, as_json) as tell:
            found = describe_tables(spark, folder, tell)
        if as_json:
            print_json({"verdict": found.verdict, **msgspec.to_builtins(found)})
        else:
            _show(found)
        raise typer.Exit(FAIL if found.verdict == "fail" else 0)


def _plan(kind: Kind, options: list[str] | None, given: dict[str, Any]) -> GtpccTables | SocialTables:
    from ..pipeline.workloads import GtpccTables, SocialTables

    workload = parse_workload(kind, options)
    if isinstance(workload, Gtpcc):
        made = GtpccTables(workload=workload, **given)
        made.check()
        return made
    assert isinstance(workload, Social)
    foreign = [f"--{name}" for name in given if name != "groups"]
    if foreign:
        raise UsageError(f"{foreign[0]} is for gtpcc: a graph has -w users=1000000, -w graph_seed=3 and others")
    graph = SocialTables(workload=workload, **given)
    graph.check()
    return graph


@contextmanager
def _telling(what: str, count: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    with progress(quiet) as bar:
        task = bar.add_task(what, total=count, note="")
        yield lambda done: bar.update(task, advance=done)


def _show(found: Description) -> None:
    rows = ", ".join(f"{count:,} rows of {name}" for name, count in found.rows.items())
    console.print(line((found.plan.workload.title(), "bold"), f", {found.plan.groups} groups: {rows}"))
    made = table("frequency", "stated", "found", "p", "verdict")
    for each in found.findings:
        made.add_row(each.name, each.stated, each.found, f"{each.p_value:.2g}", coloured(each.verdict))
    console.print(made, highlight=False)
    for name, value in found.facts.items():
        counts = value.items() if isinstance(value, dict) else [("", value)]
        told = ", ".join(f"{key}: {count:,}" if key else f"{count:,}" for key, count in counts)
        console.print(line(f"{name.replace('_', ' ')}: {told}"), soft_wrap=True)
