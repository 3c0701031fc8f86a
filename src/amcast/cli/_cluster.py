"""`amcast node`, `up`, `down`, `collect`, `status`, `logs`, `load`: a real cluster, on this machine or on many."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..core import UsageError
from ._credentials import ConfigOption, TokenFileOption, TokenOption, local_cluster
from ._output import JsonOption, console, errors, json_line, line, print_json, progress, table, visible
from ._parse import (
    USUAL_DESTINATIONS,
    USUAL_PAYLOAD,
    GlobalOption,
    TargetsOption,
    WorkloadOption,
    WorkloadOptions,
    parse_options,
    parse_workload,
)

if TYPE_CHECKING:  # the commands import it when they need it: other commands start faster
    from ..net.client.load import LoadResult
    from ..net.client.trunk import Credentials
    from ..net.local import LocalCluster
    from ..net.trace.collect import CollectReport
    from ..net.wire.control import Status

DirOption = Annotated[Path, typer.Option("--dir", "-d", help="The cluster's folder.")]
DEFAULT_DIR = Path(".amcast")


def file_of_cluster(name: str, given: Path | None) -> Path:
    """The file of this name that the nodes of this folder's cluster read, unless another one was named.

    A command that took ./tokens.toml while the nodes read .amcast/tokens.toml would seem to work, and change nothing.
    """
    own = DEFAULT_DIR / name
    return given or (own if own.exists() else Path(name))


AppOption = Annotated[
    str, typer.Option(help="The application in each process: module:Factory, or path/file.py:Factory.")
]
TRACE_BYTES = 1_000_000_000  # as in `Limits`, which takes long to import
_LEFT_MAX = 10
_COLUMNS = ("process", "role", "delivered", "lag", "app lag", "msg/s", "links", "clients", "MB", "address")
_ROLES = {"down": "red", "leader": "bold"}
_LOOK_S = 0.2  # between two looks for new lines of a log


def register(app: typer.Typer) -> None:
    @app.command("node")
    def node(
        config: Annotated[Path, typer.Option(help="The cluster's configuration.")],
        id_: Annotated[str, typer.Option("--id", help="Which process to run, as g1.p0.")],
        app: AppOption = "",
        hold_at: Annotated[
            int | None,
            typer.Option(help="Hold the application before this position, until `amcast skip` is used.", min=0),
        ] = None,
        insecure: Annotated[
            bool, typer.Option("--insecure", help="Listen without TLS where others may reach it: in a closed network.")
        ] = False,
    ) -> None:
        """Run one process of a cluster until it is told to stop.

        Log lines go to stderr, as JSON. SIGTERM and Ctrl-C stop it in good order; kill -9 loses nothing that was
        acknowledged.

        Examples:

        [bold]amcast node --config cluster.toml --id g1.p0[/bold]

        [bold]amcast node --config cluster.toml --id g1.p0 --app bank:Bank[/bold]
        """
        from ..net.app_loading import absolute_app
        from ..net.config import load_config
        from ..net.run import run_node

        found = load_config(config)
        if app:
            found = msgspec.structs.replace(found, app=absolute_app(app))
        run_node(msgspec.structs.replace(found, insecure=True) if insecure else found, id_, hold_at=hold_at)

    @app.command("up")
    def up(
        context: typer.Context,
        name: Annotated[str, typer.Option("--protocol", "-p", help="See `amcast protocols`.")] = "fastcast",
        groups: Annotated[int, typer.Option(help="Number of groups.", min=1)] = 2,
        replicas: Annotated[
            int | None, typer.Option(help="Processes per group; the protocol's usual number if not given.")
        ] = None,
        network: Annotated[
            str, typer.Option(help="Delays added to links: none, or a network of `amcast sim`, such as wan.")
        ] = "none",
        durability: Annotated[
            str, typer.Option(help="When a record counts: sync, on disk; async, in the kernel; memory, at once.")
        ] = "sync",
        trace: Annotated[bool, typer.Option("--trace/--no-trace", help="Record what is delivered.")] = True,
        trace_wire: Annotated[bool, typer.Option("--trace-wire", help="Also record wire messages.")] = False,
        trace_bytes: Annotated[
            int, typer.Option(help="Of each process: above it the oldest trace is dropped; 0: all is kept.", min=0)
        ] = TRACE_BYTES,
        tls: Annotated[bool, typer.Option("--tls", help="Mutual TLS, with certificates made for it.")] = False,
        tokens: Annotated[
            bool, typer.Option("--tokens", help="TLS, and clients need tokens; the operator's is in operator.token.")
        ] = False,
        metrics: Annotated[bool, typer.Option("--metrics", help="A Prometheus port for each process.")] = False,
        app: AppOption = "",
        placement: Annotated[
            str,
            typer.Option(
                help="geopaxos: who moves objects to where they are used; affinity, module:Factory or"
                " path/file.py:Factory."
            ),
        ] = "",
        hold_at: Annotated[
            str, typer.Option(help="As g1=7: hold g1's application before position 7, until `amcast skip` is used.")
        ] = "",
        option: Annotated[
            list[str] | None, typer.Option("--option", "-o", help="An option of the protocol, as name=value.")
        ] = None,
        folder: DirOption = DEFAULT_DIR,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Start a whole cluster on this machine, in the background.

        If the folder has a cluster already, that one is started again. Options that say something else about it are an
        error.

        Examples:

        [bold]amcast up --protocol fastcast --groups 2[/bold]

        [bold]amcast up -p basecast --groups 3 --network wan --durability memory -d /tmp/wan[/bold]

        [bold]amcast up --trace-bytes 0[/bold]   keeps the whole trace, for a study

        [bold]amcast up --app bank:Bank[/bold]   with the class Bank of bank.py in each process

        [bold]amcast up -p geopaxos --groups 3 --network aws --placement affinity[/bold]
        """
        from ..net.app_loading import absolute_app, load_policy, make_application
        from ..net.config import Limits
        from ..net.disk.records import Durability
        from ..net.local import CONFIG, LocalCluster, plan

        if (folder / CONFIG).exists():
            _check_same(folder, {each: value for each, value in context.params.items() if _is_given(context, each)})
        else:
            if durability not in list(Durability):
                raise UsageError(f"there is no durability '{durability}': choose one of {', '.join(Durability)}")
            config = plan(
                folder,
                name,
                groups,
                replicas,
                network=network,
                durability=Durability(durability),
                trace=trace or trace_wire,
                trace_wire=trace_wire,
                limits=Limits(trace_bytes=trace_bytes),
                tls=tls or tokens,
                tokens=tokens,
                metrics=metrics,
                app=absolute_app(app),
                options=_with_placement(parse_options(option or []), placement),
            )
            load_policy(config)
            make_application(config, config.process[0].id)  # what is wrong with it is said here, and not in logs
            LocalCluster.create(folder, config)
        cluster = local_cluster(folder, token, token_file)
        cluster.hold_at = _parse_hold(hold_at, cluster.config.topology().groups)
        start_cluster(cluster, as_json)
        statuses = asyncio.run(cluster.statuses())
        if as_json:
            print_json(_document(cluster, statuses))
        else:
            _show(cluster, statuses)
            console.print()
            console.print(line(_hint(cluster, folder)), soft_wrap=True)

    @app.command("down")
    def down(
        folder: DirOption = DEFAULT_DIR,
        collect: Annotated[
            Path | None, typer.Option(help="Make a run folder of the trace, for `amcast check`.")
        ] = None,
        purge: Annotated[
            bool, typer.Option("--purge", help="Delete the data too, and all else that `amcast up` made.")
        ] = False,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """End a cluster that `amcast up` started. Its data stays: `amcast up` goes on where it ended.

        With --purge, what `amcast up` made is removed; other files in the folder stay.

        Examples:

        [bold]amcast down --collect runs/one && amcast check runs/one[/bold]

        [bold]amcast down --purge[/bold]
        """
        cluster = local_cluster(folder, token, token_file)
        report = collect_run(cluster, collect, as_json) if collect is not None else None
        cluster.stop()
        if as_json:
            left = cluster.remove() if purge else []
            run = None if report is None else {"folder": str(collect), **asdict(report)}
            print_json({"ended": cluster.names, "run": run, "purged": purge, "left": left})
            return
        ended = f"{len(cluster.names)} processes ended"
        if not purge:
            where = _where(folder)
            kept = f"{folder} keeps their data: `amcast up{where}` goes on, `amcast down --purge{where}` deletes it"
            console.print(line(f"{ended}; {kept}"), soft_wrap=True)
            return
        left = cluster.remove()
        console.print(f"{ended}, and their data is deleted")
        if left:
            more = f" and {len(left) - _LEFT_MAX} more" if len(left) > _LEFT_MAX else ""
            console.print(line(f"left in {folder}: {', '.join(left[:_LEFT_MAX])}{more}"), soft_wrap=True)

    @app.command("collect")
    def collect_live(
        out: Annotated[Path, typer.Argument(help="The run folder to write.")],
        folder: DirOption = DEFAULT_DIR,
        every: Annotated[float, typer.Option(help="Seconds between two looks at the trace.", min=0.1)] = 1.0,
        as_json: JsonOption = False,
    ) -> None:
        """Turn the trace of a running cluster into a run folder that grows, for `amcast watch`.

        It ends when all processes of the cluster have ended, or on Ctrl-C. The run counts as cut short. It holds also
        what nodes drop of their traces later, to stay within `--trace-bytes` of `amcast up`.

        Examples:

        [bold]amcast collect runs/live & amcast watch runs/live[/bold]
        """
        from ..net.local import LocalCluster
        from ..net.trace.collect import Collector

        cluster = LocalCluster(folder)
        collector = Collector(
            cluster.trace_folder, out, partial(cluster.run_info, False), cluster.expected, cluster.history_folder
        )
        try:
            while any(cluster.pid(name) is not None for name in cluster.names):
                report = collector.step()
                if errors.is_terminal:
                    errors.print(f"{report.deliveries:,} deliveries", end="\r", highlight=False)
                time.sleep(every)
        finally:
            report = collector.finish()
            if as_json:
                print_json({"folder": str(out), **asdict(report)})
            else:
                _show_collected(report, out)

    @app.command("status")
    def status(
        config: ConfigOption = None,
        folder: DirOption = DEFAULT_DIR,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Leaders, lag and throughput of a cluster.

        Examples:

        [bold]amcast status[/bold]

        [bold]amcast status -d /tmp/wan --json[/bold]

        [bold]amcast status --config cluster.toml[/bold]
        """
        cluster = local_cluster(folder, token, token_file, config)
        statuses, rates = asyncio.run(_statuses_and_rates(cluster))
        if as_json:
            print_json(_document(cluster, statuses, rates))
        else:
            _show(cluster, statuses, rates)
        if any(each is None for each in statuses.values()):
            raise typer.Exit(1)

    @app.command("logs")
    def logs(
        name: Annotated[str, typer.Argument(help="A process, as g1.p0.")],
        lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last lines to show.", min=1)] = 50,
        follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
        folder: DirOption = DEFAULT_DIR,
        as_json: Annotated[
            bool, typer.Option("--json", help="Every line is a JSON object: what is none becomes its `text`.")
        ] = False,
    ) -> None:
        """Show the end of the log file of a process of a local cluster.

        Examples:

        [bold]amcast logs g1.p0 -n 20[/bold]

        [bold]amcast logs g1.p0 -f[/bold]
        """
        from ..net.local import LocalCluster

        cluster = LocalCluster(folder)
        cluster.config.process_named(name)
        path = cluster.log_file(name)
        if not path.exists():
            raise UsageError(f"{name} has logged nothing yet: {path} does not exist")
        with path.open(errors="replace") as log:
            for each in deque(log, maxlen=lines):
                _write_line(each, as_json)
            while follow:
                each = log.readline()
                if each:
                    _write_line(each, as_json)
                else:
                    sys.stdout.flush()
                    time.sleep(_LOOK_S)

    @app.command("load")
    def load(
        folder: DirOption = DEFAULT_DIR,
        clients: Annotated[int, typer.Option(help="Number of clients.", min=1)] = 4,
        connections: Annotated[
            int | None,
            typer.Option(help="Connections to each node that all clients share; one for each if not given.", min=1),
        ] = None,
        messages: Annotated[int, typer.Option(help="Messages by all clients together.", min=1)] = 10_000,
        workload: WorkloadOption = "micro",
        workload_option: WorkloadOptions = None,
        destinations: Annotated[str, typer.Option(help="Groups a message goes to: 2, or 1-3.")] = USUAL_DESTINATIONS,
        targets: TargetsOption = 0,
        global_share: GlobalOption = None,
        payload: Annotated[int, typer.Option(help="Bytes of payload.")] = USUAL_PAYLOAD,
        outstanding: Annotated[int, typer.Option(help="Messages that a client has in flight.", min=1)] = 16,
        client_region: Annotated[
            str | None, typer.Option(help="The region of the emulated network (`up --network`) in which clients are.")
        ] = None,
        token: TokenOption = "",
        token_file: TokenFileOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Multicast random messages on a running cluster, and measure throughput and latency at the client.

        Examples:

        [bold]amcast load --messages 100000 --clients 16 --destinations 1-2[/bold]

        [bold]amcast load --clients 64 --connections 1[/bold]   all share a connection to each node

        [bold]amcast load --client-region R2[/bold]   on a cluster with [bold]--network wan[/bold]
        """
        from ..net.client.load import run_load

        cluster = local_cluster(folder, token, token_file)
        with progress(quiet=as_json) as bar:
            task = bar.add_task("messages", total=messages, note="")
            result = asyncio.run(
                run_load(
                    cluster.config,
                    clients=clients,
                    messages=messages,
                    outstanding=outstanding,
                    connections=connections,
                    workload=parse_workload(workload, workload_option, destinations, payload, targets, global_share),
                    credentials=_placed(cluster, client_region),
                    history=cluster.history_folder,
                    progress=lambda done: bar.update(task, completed=done),
                )
            )
        if as_json:
            print_json(msgspec.to_builtins(result))
        else:
            show_load(result)


def _write_line(text: str, as_json: bool) -> None:
    text = text.rstrip("\n")
    sys.stdout.write((_json_of(text) if as_json else visible(text)) + "\n")


def _json_of(text: str) -> str:
    """Nodes log JSON. What Python or the system writes there is none, such as a traceback."""
    try:
        return json_line(msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.DecodeError, RecursionError):
        return json_line({"text": text})


def _placed(cluster: LocalCluster, region: str | None) -> Credentials:
    """With which clients connect that are in this region of the emulated network."""
    if region is None:
        return cluster.credentials()
    latency = cluster.config.latency()
    if latency is None:
        raise UsageError("this cluster emulates no distances: start one with --network, or leave out --client-region")
    latency.check_region(region)
    return msgspec.structs.replace(cluster.credentials(), region=region)


def _is_given(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def _parse_hold(text: str, groups: tuple[int, ...]) -> dict[int, int]:
    """`g1=7`; several with commas between."""
    found = {}
    for part in filter(None, text.split(",")):
        group, _, position = part.strip().partition("=")
        if not (group.startswith("g") and group[1:].isdigit() and position.isdigit()):
            raise UsageError(f"--hold-at {part.strip()}: write a group and a position, as g1=7")
        if int(group[1:]) not in groups:
            raise UsageError(f"--hold-at {part.strip()}: there is no group {group}")
        found[int(group[1:])] = int(position)
    return found


def _with_placement(options: dict[str, Any], placement: str) -> dict[str, Any]:
    """A policy in a file is found wherever nodes are started."""
    from ..net.app_loading import absolute_app

    named = placement or options.get("placement")
    return {**options, "placement": absolute_app(named)} if isinstance(named, str) and named else options


def _check_same(folder: Path, given: dict[str, Any]) -> None:
    """An existing cluster is started as it is: whoever asks for another one must hear it."""
    from ..net.app_loading import absolute_app
    from ..net.local import LocalCluster

    config = LocalCluster(folder).config
    members = [len(config.topology().members(group)) for group in config.topology().groups]
    is_now = {
        "name": ("protocol", config.protocol),
        "groups": ("groups", len(members)),
        "replicas": ("replicas", members[0]),
        "network": ("network", config.network),
        "durability": ("durability", str(config.durability)),
        "trace": ("trace", config.trace),
        "trace_wire": ("trace-wire", config.trace_wire),
        "trace_bytes": ("trace-bytes", config.limits.trace_bytes),
        "tls": ("tls", config.tls is not None),
        "tokens": ("tokens", config.tokens is not None),
        "metrics": ("metrics", any(entry.metrics for entry in config.process)),
        "app": ("app", config.app or "none"),
    }
    if "app" in given:
        given["app"] = absolute_app(given["app"])
    differences = [
        f"its {is_now[each][0]} is {_shown(is_now[each][1])}, not {_shown(value)}"
        for each, value in given.items()
        if each in is_now and value != is_now[each][1]
    ]
    options = _with_placement(parse_options(given.get("option") or []), given.get("placement", ""))
    for each, value in options.items():
        if each not in config.options or config.options[each] != value:
            set_to = f"is {config.options[each]}" if each in config.options else "is not set"
            differences.append(f"its option {each} {set_to}, not {value}")
    if differences:
        raise UsageError(
            f"there is a cluster in {folder} already, and it differs: {'; '.join(differences)}. Leave these options "
            f"out, use another folder (-d), or delete that cluster with all its data: "
            f"`amcast down --purge{_where(folder)}`"
        )


def _shown(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _where(folder: Path) -> str:
    """The option that names the folder: a command that is shown must not reach for another cluster."""
    return "" if folder == DEFAULT_DIR else f" -d {folder}"


def _hint(cluster: LocalCluster, folder: Path) -> str:
    """What to type next, as it works for this cluster."""
    where, end = _where(folder), f"`amcast down{_where(folder)}` ends it"
    if cluster.config.spec().orders_operations:  # its messages are operations, which programs make
        return f"`amcast load{where}` tries it out, {end}"
    groups = ",".join(f"g{group}" for group in cluster.config.topology().groups[:2])
    return f"`amcast send {groups} hello{where}` multicasts, {end}"


def start_cluster(cluster: LocalCluster, quiet: bool) -> None:
    """Starts the processes that do not run. If a cluster that was down does not become ready, it is stopped again."""
    was_down = not cluster.running()
    with progress(quiet=quiet) as bar:
        task = bar.add_task("processes", total=len(cluster.names), note="")
        try:
            cluster.start_missing()
            asyncio.run(cluster.wait_until_ready(progress=lambda ready: bar.update(task, completed=ready)))
        except BaseException:
            if was_down:
                cluster.stop()
            raise


def collect_run(cluster: LocalCluster, out: Path, quiet: bool = False) -> CollectReport:
    """Stops the cluster, and writes its trace as a run folder."""
    if out.exists():
        raise UsageError(f"{out} exists: nothing is overwritten, choose another folder")
    cluster.trace_folder  # noqa: B018 - if there is no trace it raises, before anything is stopped
    complete = asyncio.run(cluster.drain())
    cluster.stop()
    report = cluster.collect(out, complete)
    if not quiet:
        _show_collected(report, out, "" if complete else ", cut short")
    return report


def _show_collected(report: CollectReport, out: Path, state: str = "") -> None:
    what = f"{report.deliveries:,} deliveries of {report.multicasts:,} messages in {out}{state}"
    console.print(line(what), highlight=False, soft_wrap=True)
    for each in report.missing:
        errors.print(line(f"evidence is missing: {each}"), style="yellow", soft_wrap=True)


def show_load(result: LoadResult) -> None:
    from ..trace.latency import AT, CLIENT

    made = table("messages", "seconds", "messages/s", "p50 ms", "p99 ms", "max ms", title=f"latency {AT[CLIENT]}")
    latency = {name: f"{value / 1e3:.2f}" for name, value in result.latency_us.items()}
    rate = f"{result.rate:,.0f}"
    made.add_row(f"{result.messages:,}", f"{result.seconds:.2f}", rate, latency["p50"], latency["p99"], latency["max"])
    console.print(made, highlight=False)


async def _statuses_and_rates(cluster: LocalCluster) -> tuple[dict[str, Status | None], dict[str, float]]:
    """Asks twice, half a second apart: the difference between the deliveries is the throughput."""
    before = await cluster.statuses()
    await asyncio.sleep(0.5)
    after = await cluster.statuses()
    rates: dict[str, float] = {}
    for name, status in after.items():
        earlier = before[name]
        if status is not None and earlier is not None and status.uptime_s > earlier.uptime_s:
            rates[name] = (status.delivered - earlier.delivered) / (status.uptime_s - earlier.uptime_s)
    return after, rates


def _lags(statuses: dict[str, Status | None]) -> dict[str, int]:
    """How many deliveries each process is behind the foremost of its group."""
    first: dict[str, int] = {}
    for status in statuses.values():
        if status is not None:
            first[status.group] = max(first.get(status.group, 0), status.delivered)
    return {name: first[s.group] - s.delivered for name, s in statuses.items() if s is not None}


def _show(cluster: LocalCluster, statuses: dict[str, Status | None], rates: dict[str, float] | None = None) -> None:
    lags = _lags(statuses)
    rows: list[dict[str, str]] = []
    for name, status in statuses.items():
        address = cluster.config.process_named(name).address
        if status is None:
            rows.append({"process": name, "role": "down", "address": address})
            continue
        applied = status.application
        row = {
            "process": name,
            "role": "leader" if status.is_leader else "follower",
            "delivered": f"{status.delivered:,}",
            "lag": f"{lags[name]:,}",
            "app lag": "" if applied is None else f"{status.delivered - applied:,}",
            "msg/s": "" if rates is None else f"{rates.get(name, 0):,.0f}",
            "links": f"{sum(status.peers.values())}/{len(status.peers)}",
            "clients": str(status.clients),
            "MB": f"{status.rss_mb:.0f}",
            "address": address,
        }
        rows.append(row)
    widths = _fitting(rows, None if not console.is_terminal else console.width)
    console.print(
        line(("  ".join(name.ljust(width) for name, width in widths.items()).rstrip(), "bold")), soft_wrap=True
    )
    for row in rows:
        cells = [(row.get(name, ""), width) for name, width in widths.items()]
        shown = [(text.ljust(width + 2), _ROLES.get(text, "")) for text, width in cells]
        console.print(line(*shown[:-1], cells[-1][0]), highlight=False, soft_wrap=True)
    for name, status in statuses.items():
        if status is None:
            if words := cluster.last_words(name):
                errors.print(line((name, "red"), " said last: ", words), soft_wrap=True)
            continue
        for news in (*([status.problem] if status.problem else []), *status.warnings):
            errors.print(line((status.name, "yellow"), ": ", news), soft_wrap=True)


def _fitting(rows: list[dict[str, str]], room: int | None) -> dict[str, int]:
    """The columns that have anything in them, and how wide they are; two spaces come between them.

    On a narrow terminal the least important are left out, and no address is cut.
    """
    names = [name for name in _COLUMNS if any(row.get(name) for row in rows)]
    widths = {name: max(len(name), *(len(row.get(name, "")) for row in rows)) for name in names}
    for least in ("MB", "clients", "links", "msg/s"):
        if room is not None and sum(widths.values()) + 2 * (len(widths) - 1) > room:
            widths.pop(least, None)
    return widths


def _document(
    cluster: LocalCluster, statuses: dict[str, Status | None], rates: dict[str, float] | None = None
) -> dict[str, Any]:
    lags = _lags(statuses)
    processes = []
    for name, status in statuses.items():
        entry: dict[str, Any] = {
            "id": name,
            "address": cluster.config.process_named(name).address,
            "up": status is not None,
        }
        if status is not None:
            fields = {each: getattr(status, each) for each in status.__struct_fields__ if each != "name"}
            entry |= fields | {"lag": lags[name]}
            if rates is not None:
                entry["rate"] = rates.get(name, 0.0)
        else:
            entry["last_words"] = cluster.last_words(name)
        processes.append(entry)
    return {"folder": str(cluster.folder), "protocol": cluster.config.protocol, "processes": processes}
