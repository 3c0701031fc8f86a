"""`amcast sim`: one simulated run."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..check import check_run
from ..core import UsageError
from ..protocols import protocol
from ..sim import (
    PRESETS,
    CpuCost,
    FaultPlan,
    PlanSize,
    Scenario,
    parse_kinds,
    random_plan,
    scenario,
    simulate,
)
from ..sim.fuzz import violations_of
from ..trace import write_run
from ._node_runs import replay_nodes
from ._output import (
    EXIT_CODES,
    FAIL,
    UNKNOWN,
    ClientRegionOption,
    JsonOption,
    coloured,
    console,
    errors,
    line,
    print_json,
    show_breach,
    show_verdicts,
    show_violations,
)
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
    parse_options,
    parse_workload,
)
from ._summary import show_summary, summary

if TYPE_CHECKING:
    from ..netsim import NodeScenario

_MESSAGES = 200


def register(app: typer.Typer) -> None:
    @app.command("sim")
    def sim(
        name: Annotated[str, typer.Option("--protocol", "-p", help="See `amcast protocols`.")] = "fastcast",
        groups: Annotated[int, typer.Option(help="Number of groups.", min=1)] = 2,
        replicas: Annotated[
            int | None, typer.Option(help="Processes per group; the protocol's usual number if not given.")
        ] = None,
        clients: Annotated[int, typer.Option(help="Number of clients.", min=1)] = 4,
        messages: Annotated[
            int | None, typer.Option(help=f"Messages by all clients together; {_MESSAGES} if not given.", min=1)
        ] = None,
        workload: WorkloadOption = "micro",
        workload_option: WorkloadOptions = None,
        destinations: Annotated[str, typer.Option(help="Groups a message goes to: 2, or 1-3.")] = USUAL_DESTINATIONS,
        targets: TargetsOption = 0,
        global_share: GlobalOption = None,
        payload: Annotated[int, typer.Option(help="Bytes of payload.")] = USUAL_PAYLOAD,
        outstanding: Annotated[int, typer.Option(help="Messages that a client has in flight.", min=1)] = 1,
        interval_us: Annotated[
            int, typer.Option(help="Open loop: mean time between a client's messages. Set if there are faults.", min=0)
        ] = 0,
        rate: RateOption = None,
        network: Annotated[str, typer.Option(help=f"One of {', '.join(PRESETS)}.")] = "lan",
        client_region: ClientRegionOption = None,
        fifo: Annotated[bool, typer.Option("--fifo/--no-fifo", help="Whether links keep messages in order.")] = True,
        cpu_us: Annotated[
            float, typer.Option(help="CPU time to receive or send a message; 0: machines are infinitely fast.", min=0)
        ] = 0,
        faults: Annotated[
            str, typer.Option(help="Random faults of these kinds: all, none, or crash,partition,...")
        ] = "none",
        plan: Annotated[Path | None, typer.Option(help="A fault plan (JSON) instead of random faults.")] = None,
        save_plan: Annotated[Path | None, typer.Option(help="Write the fault plan into this new file.")] = None,
        batch: Annotated[
            int, typer.Option(help="How many messages of a client to the same groups may be ordered as one.")
        ] = 1,
        option: Annotated[
            list[str] | None, typer.Option("--option", "-o", help="An option of the protocol, as name=value.")
        ] = None,
        sync_us: Annotated[int, typer.Option(help="How long the disk takes to sync.", min=0)] = 0,
        seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
        scenario_file: Annotated[
            Path | None,
            typer.Option("--scenario", help="Replay a whole scenario (JSON); other options are ignored."),
        ] = None,
        out: Annotated[Path | None, typer.Option(help="Write the run into this new folder.")] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Simulate a run, check it, and write its trace.

        Examples:

        [bold]amcast sim -p fastcast --groups 4 --network wan --out runs/one[/bold]

        [bold]amcast sim -p basecast --faults crash,loss --seed 7[/bold]

        [bold]amcast sim -p fastcast --network wan --client-region R2[/bold]

        [bold]amcast sim -p flexcast --network aws --workload gtpcc -w locality=0.95[/bold]

        [bold]amcast sim -p fastcast -o wrong_guesses=true --destinations 2[/bold]
        """
        if out is not None and out.exists() and any(out.iterdir() if out.is_dir() else [out]):
            raise UsageError(f"{out} exists: nothing is overwritten, choose another folder")
        if scenario_file is not None:
            nodes = read_node_scenario(scenario_file)
            if nodes is not None:
                replay_nodes(nodes, as_json)
            made = read_scenario(scenario_file)
        else:
            settings: dict[str, Any] = {} if replicas is None else {"replicas": replicas}
            if rate is not None and interval_us:
                raise UsageError("--rate and --interval-us say the same: give one of the two")
            load = parse_workload(workload, workload_option, destinations, payload, targets, global_share)
            made = scenario(
                name,
                network,
                groups=groups,
                clients=clients,
                client_region=client_region,
                messages=messages_of(load, messages, _MESSAGES),
                workload=load,
                outstanding=outstanding,
                interval_us=interval_us or interval_of(rate, clients),
                batch=batch,
                options=parse_options(option or []),
                sync_us=sync_us,
                fifo=fifo,
                cpu=CpuCost(round(cpu_us * 1000), round(cpu_us * 1000)),
                seed=seed,
                **settings,
            )
            made = with_faults(made, faults, plan)
        if save_plan is not None:
            write_plan(save_plan, made.plan)
        run_scenario(made, out, as_json)


def run_scenario(made: Scenario, out: Path | None, as_json: bool) -> None:
    """Runs, checks, writes and reports; ends the program with the verdict's exit code."""
    status = errors.status("simulating ...") if errors.is_terminal and not as_json else None
    if status:
        status.start()
    try:
        result = simulate(made)
    finally:
        if status:
            status.stop()
    run = result.run()
    report = check_run(run)
    problems = violations_of(result, report)
    if out is not None:
        write_run(out, result.info, result.recorder)
    document = summary(result, run) | {
        "out": None if out is None else str(out),
        "faults": made.plan.describe(made.topology()),
        **report.to_json(),
    }
    extra = [v for v in problems if v.property in ("liveness", "invariant", "application")]
    document["violations"] += msgspec.to_builtins(extra)
    if as_json:
        print_json(document)
    else:
        _show(document, report, extra, out)
    if extra:
        raise typer.Exit(FAIL if any(v.property != "liveness" for v in extra) else UNKNOWN)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _show(document: dict[str, Any], report: Any, extra: list[Any], out: Path | None) -> None:
    show_summary(document)
    for fault in document["faults"]:
        console.print(f"  {fault}", highlight=False)
    console.print()
    console.print(line("verdict: ", coloured(report.verdict)))
    show_verdicts(report)
    if document["application"] is not None:
        told = document["application"]
        verdict = coloured("fail" if told["problems"] else "pass")
        console.print(line(f"application {told['name']}, {told['executed']:,} executions: invariants ", verdict))
    show_violations(report.violations)
    for violation in extra:
        show_breach(violation.property, violation.explanation)
    if out is not None:
        console.print(f"\nrun written to {out}; verify it again with: amcast check {out}", highlight=False)


def with_faults(made: Scenario, faults: str, plan_file: Path | None) -> Scenario:
    if plan_file is not None:
        plan = read_json(plan_file, FaultPlan, "fault plan")
    else:
        # Long enough for elections in this network, and spread over the time that the load takes.
        unit = made.paxos.tick_us * made.paxos.election_ticks
        size = PlanSize(window_us=10 * unit, last_us=4 * unit, faults_max=8)
        plan = random_plan(made.topology(), parse_kinds(faults), size, Random(f"plan/{made.seed}"))
    if plan.faults and not made.interval_us:
        # A closed loop would be done before the first fault: spread the load over the time of the faults.
        made = msgspec.structs.replace(made, interval_us=max(1, plan.end_us() * made.clients // made.messages))
    made = msgspec.structs.replace(made, plan=plan)
    made.check()
    return made


def write_plan(path: Path, plan: FaultPlan) -> None:
    if path.exists():
        raise UsageError(f"{path} exists: nothing is overwritten, choose another name")
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror}") from error


def read_scenario(path: Path) -> Scenario:
    fields = read_json(path, dict[str, Any], "scenario")
    workload = fields.get("workload")
    if isinstance(workload, dict):
        workload.setdefault("kind", "micro")  # as in files from the time when there was no other
    try:
        made = msgspec.convert(fields, Scenario, str_keys=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is no scenario: {error}") from error
    protocol(made.protocol)
    made.check()
    return made


def read_node_scenario(path: Path) -> NodeScenario | None:
    """None if it is a scenario of processes alone."""
    fields = read_json(path, dict[str, Any], "scenario")
    if fields.get("driver") != "node":
        return None
    from ..netsim import NodeScenario

    made: NodeScenario = read_json(path, NodeScenario, "scenario")
    return made


def read_json(path: Path, kind: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no {what}: {error}") from error
