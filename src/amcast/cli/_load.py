"""`amcast load`: messages of a workload on a real cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ..core import UsageError
from ..workload import Gtpcc
from ._cluster import DEFAULT_DIR, DirOption
from ._credentials import TokenFileOption, TokenOption, local_cluster
from ._output import FAIL, JsonOption, coloured, console, line, print_json, progress, show_breach, table
from ._parse import (
    USUAL_DESTINATIONS,
    USUAL_PAYLOAD,
    GlobalOption,
    RateOption,
    TargetsOption,
    WorkloadOption,
    WorkloadOptions,
    interval_of,
    messages_of,
    parse_workload,
)

if TYPE_CHECKING:  # the command imports it when it needs it: other commands start faster
    from ..net.client.load import LoadResult
    from ..net.client.totals import TotalsReport
    from ..net.client.trunk import Credentials
    from ..net.local import LocalCluster

_MESSAGES = 10_000


def register(app: typer.Typer) -> None:
    @app.command("load")
    def load(
        folder: DirOption = DEFAULT_DIR,
        clients: Annotated[int, typer.Option(help="Number of clients.", min=1)] = 4,
        connections: Annotated[
            int | None,
            typer.Option(help="Connections to each node that all clients share; one for each if not given.", min=1),
        ] = None,
        messages: Annotated[
            int | None, typer.Option(help=f"Messages by all clients together; {_MESSAGES:,} if not given.", min=1)
        ] = None,
        workload: WorkloadOption = "micro",
        workload_option: WorkloadOptions = None,
        destinations: Annotated[str, typer.Option(help="Groups a message goes to: 2, or 1-3.")] = USUAL_DESTINATIONS,
        targets: TargetsOption = 0,
        global_share: GlobalOption = None,
        payload: Annotated[int, typer.Option(help="Bytes of payload.")] = USUAL_PAYLOAD,
        outstanding: Annotated[int, typer.Option(help="Messages that a client has in flight.", min=1)] = 16,
        rate: RateOption = None,
        seed: Annotated[int, typer.Option(help="Same seed, same messages of each client.")] = 1,
        client_region: Annotated[
            str | None, typer.Option(help="The region of the emulated network (`up --network`) in which clients are.")
        ] = None,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Multicast messages of a workload on a running cluster, and measure throughput and latency at the client.

        With --rate, latency counts from when a message was due, however late it left. Where the cluster runs TPC-C
        and the workload is gtpcc, the totals of all warehouses are compared in the end. Exit codes: 0, or 1 if they do
        not fit together.

        Examples:

        [bold]amcast load --messages 100000 --clients 16 --destinations 1-2[/bold]

        [bold]amcast load --clients 64 --connections 1[/bold]   all share a connection to each node

        [bold]amcast load --client-region R2[/bold]   on a cluster with [bold]--network wan[/bold]

        [bold]amcast load --rate 500 --messages 5000[/bold]   an open loop

        [bold]amcast load --workload gtpcc[/bold]   `up --app amcast.net.node.tpcc:Tpcc`
        """
        from ..net.client.load import run_load
        from ..net.client.totals import read_totals
        from ..net.node.tpcc import TPCC_APP

        cluster = local_cluster(folder, token, token_file)
        made = parse_workload(workload, workload_option, destinations, payload, targets, global_share)
        credentials = _placed(cluster, client_region)
        with progress(quiet=as_json) as bar:
            messages = messages_of(made, messages, _MESSAGES)
            task = bar.add_task("messages", total=messages, note="")
            result = asyncio.run(
                run_load(
                    cluster.config,
                    clients=clients,
                    messages=messages,
                    outstanding=outstanding,
                    interval_us=interval_of(rate, clients),
                    connections=connections,
                    workload=made,
                    seed=seed,
                    credentials=credentials,
                    history=cluster.history_folder,
                    progress=lambda done: bar.update(task, completed=done),
                )
            )
        has_totals = isinstance(made, Gtpcc) and cluster.config.app == TPCC_APP
        report = asyncio.run(read_totals(cluster.config, credentials)) if has_totals else None
        if as_json:
            application = None if report is None else msgspec.to_builtins(report)
            print_json({**msgspec.to_builtins(result), "workload": made.title(), "application": application})
        else:
            show_load(result)
            if report is not None:
                _show_totals(report)
        raise typer.Exit(FAIL if report is not None and report.problems else 0)


def _placed(cluster: LocalCluster, region: str | None) -> Credentials:
    """With which clients connect that are in this region of the emulated network."""
    if region is None:
        return cluster.credentials()
    latency = cluster.config.latency()
    if latency is None:
        raise UsageError("this cluster emulates no distances: start one with --network, or leave out --client-region")
    latency.check_region(region)
    return msgspec.structs.replace(cluster.credentials(), region=region)


def show_load(result: LoadResult) -> None:
    from ..trace.latency import AT, CLIENT

    made = table("messages", "seconds", "messages/s", "p50 ms", "p99 ms", "max ms", title=f"latency {AT[CLIENT]}")
    latency = {name: f"{value / 1e3:.2f}" for name, value in result.latency_us.items()}
    rate = f"{result.rate:,.0f}"
    made.add_row(f"{result.messages:,}", f"{result.seconds:.2f}", rate, latency["p50"], latency["p99"], latency["max"])
    console.print(made, highlight=False)


def _show_totals(report: TotalsReport) -> None:
    orders = sum(each.orders for each in report.totals.values())
    payments = sum(each.payments for each in report.totals.values())
    told = f"application tpcc, {orders:,} orders and {payments:,} payments: invariants "
    console.print(line(told, coloured("fail" if report.problems else "pass")))
    for problem in report.problems:
        show_breach("application", problem)
