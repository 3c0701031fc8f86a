"""`amcast fuzz`: random schedules with faults until something breaks."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..check import space_time_svg, space_time_text
from ..core import UsageError
from ..protocols import protocol, select
from ..sim import Scenario, parse_kinds, simulate
from ..sim.fuzz import Finding, FuzzResult, fuzz_one, fuzz_scenario, shrink, violations_of
from ..trace import write_run
from ..workload import KINDS
from ._node_runs import describe_node_finding, draw_node_scenario, finding_fields, fuzz_nodes, node_kinds
from ._output import FAIL, JsonOption, coloured, console, line, print_json, progress, show_breach, show_entries, table
from ._parse import WorkloadOptions, parse_workload, parse_workloads

if TYPE_CHECKING:  # a command that needs no nodes starts without importing them
    from multiprocessing.queues import SimpleQueue

    from ..netsim import NodeFinding, NodeFuzzResult


class Driver(StrEnum):
    PROCESS = "process"
    NODE = "node"


class Job(msgspec.Struct, frozen=True):
    protocol: str
    seed: int
    kinds: tuple[str, ...]
    replicas: int | None
    groups: int | None
    driver: Driver = Driver.PROCESS
    durability: str | None = None
    workload: tuple[str, ...] = ()  # its name and its options, as given; none: the microbenchmark, drawn as well

    def options(self) -> str:
        """What to add to `amcast fuzz` to draw the same schedules."""
        sizes = "".join(f" --{name} {value}" for name in ("replicas", "groups") if (value := getattr(self, name)))
        mode = "" if self.durability is None else f" --durability {self.durability}"
        load = f" --workload {self.workload[0]}" if self.workload else ""
        load += "".join(f" -w {option}" for option in self.workload[1:])
        return f"{sizes}{mode}{load}" + (" --driver node" if self.driver is Driver.NODE else "")


def register(app: typer.Typer) -> None:
    @app.command("fuzz")
    def fuzz(
        name: Annotated[str, typer.Option("--protocol", "-p", help="One protocol, or all.")] = "all",
        seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 200,
        first_seed: Annotated[int, typer.Option(help="The first one.")] = 0,
        driver: Annotated[
            Driver, typer.Option(help="Protocol processes alone, or whole nodes with their disks and connections.")
        ] = Driver.PROCESS,
        faults: Annotated[str, typer.Option(help="Kinds of faults: all, none, or some, as crash,loss")] = "all",
        durability: Annotated[
            str | None, typer.Option(help="Of nodes: sync, async or memory; drawn for each seed if not given.")
        ] = None,
        replicas: Annotated[int | None, typer.Option(help="Processes per group.", min=1)] = None,
        groups: Annotated[int | None, typer.Option(help="Groups; drawn for each seed if not given.", min=1)] = None,
        workload: Annotated[
            str | None,
            typer.Option(
                help=f"Of {', '.join(KINDS)}; messages to groups that are drawn if not given.", metavar="NAME"
            ),
        ] = None,
        workload_option: WorkloadOptions = None,
        jobs: Annotated[int, typer.Option(help="Processes to use; all cores if 0.", min=0)] = 0,
        keep_going: Annotated[bool, typer.Option(help="Do not stop at the first violation.")] = False,
        out: Annotated[Path, typer.Option(help="Where a counterexample is written.")] = Path("counterexamples"),
        resume: Annotated[
            Path | None, typer.Option(help="A file that remembers which seeds are done: they are not run again.")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Run many seeds with random faults; shrink and explain the first that breaks a protocol.

        A seed decides topology, load, network, timing and faults. Everything must be delivered once the faults stop. A
        counterexample is shrunk, drawn, and written with its scenario, so that it can be replayed.

        Examples:

        [bold]amcast fuzz --protocol fastcast --seeds 2000 --faults all[/bold]

        [bold]amcast fuzz --protocol basecast --replicas 5 --faults crash,partition[/bold]

        [bold]amcast fuzz --protocol byzcast --faults all,byzantine[/bold]

        [bold]amcast fuzz -p flexcast --workload gtpcc[/bold]   with transactions of TPC-C

        [bold]amcast fuzz --driver node -p oam --faults power-loss --durability sync[/bold]
        """
        is_node = driver is Driver.NODE
        specs = [spec for spec in select(name) if name != "all" or not (is_node and spec.orders_operations)]
        names = [spec.name for spec in specs]
        if durability is not None and driver is not Driver.NODE:
            raise UsageError("processes alone have one kind of disk: use --durability with --driver node")
        load = _workload_of(workload, workload_option or [], is_node)
        kinds = node_kinds(faults) if is_node else parse_kinds(faults)
        draw = draw_node_scenario if is_node else _draw_scenario
        for each in names:  # raises what is wrong, before anything starts
            draw(Job(each, first_seed, kinds, replicas, groups, driver, durability, load))
        results = []
        for each in names:
            todo = [
                Job(each, seed, kinds, replicas, groups, driver, durability, load)
                for seed in range(first_seed, first_seed + seeds)
            ]
            done = Done(resume, todo[0], faults)
            results.append(_fuzz_protocol(each, done.left(todo), done, faults, jobs, keep_going, out, as_json))
        if as_json:
            print_json(results[0] if len(results) == 1 else results)
        if any(result["violations"] for result in results):
            raise typer.Exit(FAIL)


def _draw_scenario(job: Job) -> Scenario:
    drawn = fuzz_scenario(job.protocol, job.seed, job.kinds, job.replicas, job.groups)
    if not job.workload:
        return drawn
    made = msgspec.structs.replace(drawn, workload=parse_workload(job.workload[0], list(job.workload[1:])))
    made.check()
    return made


def _workload_of(name: str | None, options: list[str], is_node: bool) -> tuple[str, ...]:
    """As jobs have it. Options without a workload are refused; so is what a fuzz can't draw."""
    if parse_workloads(name, options) is None or name is None:
        return ()
    if is_node or name not in KINDS:
        raise UsageError(f"a fuzz of processes has the workloads {', '.join(KINDS)}: leave out --workload {name}")
    return (name, *options)


def _run_job(job: Job) -> FuzzResult | NodeFuzzResult:
    return fuzz_nodes(job) if job.driver is Driver.NODE else fuzz_one(_draw_scenario(job))


def _run_jobs(todo: list[Job], jobs: int) -> Iterator[FuzzResult | NodeFuzzResult]:
    """In the order of seeds, so that the first finding is the same however many cores there are."""
    if not todo:
        return
    workers = min(jobs or os.cpu_count() or 1, len(todo))
    if workers == 1:
        yield from map(_run_job, todo)
        return
    context = multiprocessing.get_context()
    cores: SimpleQueue[int | None] = context.SimpleQueue()
    for core in _cores_of(workers):
        cores.put(core)
    # Jobs of nodes take half a second each: small pieces, so that no worker waits long for the last one.
    chunk = 2 if todo[0].driver is Driver.NODE else 16
    pool = ProcessPoolExecutor(workers, context, _stay_on_core, (cores,))
    try:
        yield from pool.map(_run_job, todo, chunksize=min(chunk, max(1, len(todo) // (workers * 4))))
    except BaseException:  # Ctrl-C, or a finding ends the search: nobody wants the rest
        for worker in list(pool._processes.values()):
            worker.terminate()
        raise
    finally:
        # Waits: a pool that is still ending when the program exits would write to a pipe that is closed by then.
        pool.shutdown(cancel_futures=True)


def _cores_of(workers: int) -> list[int | None]:
    """One for each worker if there are as many; else the operating system chooses."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [*cores] if workers == len(cores) else [None] * workers


def _stay_on_core(cores: SimpleQueue[int | None]) -> None:
    """Of the threads that simulate nodes one runs at a time: a hand-over to another core would only cost time."""
    core = cores.get()
    if core is not None:
        os.sched_setaffinity(0, {core})


class Done:
    """Remembers in a file up to which seed a fuzz has come, so that a long one can be stopped and goes on there."""

    def __init__(self, path: Path | None, job: Job, faults: str) -> None:
        self._path = path
        self._key = f"{job.protocol} from {job.seed} --faults {faults}{job.options()}"
        self._next: dict[str, int] = {}
        if path is not None and path.exists():
            try:
                self._next = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UsageError(f"{path} does not say which seeds are done: {error}") from error

    def left(self, todo: list[Job]) -> list[Job]:
        return [job for job in todo if job.seed >= self._next.get(self._key, job.seed)]

    def add(self, seed: int) -> None:
        """All seeds up to this one are done."""
        if self._path is None:
            return
        self._next[self._key] = seed + 1
        draft = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(self._next), indent=2))
            draft.replace(self._path)
        except OSError as error:
            raise UsageError(f"can't write {self._path}: {error.strerror}") from error


def _fuzz_protocol(
    name: str, todo: list[Job], done: Done, faults: str, jobs: int, keep_going: bool, out: Path, as_json: bool
) -> dict[str, Any]:
    totals = {"seeds": 0, "messages": 0, "deliveries": 0, "wire_messages": 0, "faults_injected": 0}
    findings: list[Finding | NodeFinding] = []
    unknown: Counter[str] = Counter()  # of how many schedules each property is unknown
    with progress(as_json) as bar:
        task = bar.add_task(f"fuzzing {name}", total=len(todo), note="")
        for result in _run_jobs(todo, jobs):
            totals["seeds"] += 1
            totals["messages"] += result.messages
            totals["deliveries"] += result.deliveries
            totals["wire_messages"] += result.wire_messages
            totals["faults_injected"] += result.faults
            bar.update(task, advance=1, note=f"{totals['faults_injected']} faults")
            unknown.update(result.unknown if isinstance(result, FuzzResult) else ())
            if result.finding is not None:
                findings.append(result.finding)
                if not keep_going:
                    break
            done.add(result.seed)
    violations = [_describe(finding, todo[0], faults, out, as_json) for finding in findings]
    document = {
        "protocol": name,
        "replicas": (todo and todo[0].replicas) or protocol(name).replicas,
        **totals,
        "unknown": dict(unknown),
    }
    if not as_json:
        _show_totals(document, len(violations))
    return {**document, "violations": violations}


def _show_totals(document: dict[str, Any], violations: int) -> None:
    verdict = coloured("fail" if violations else "pass")
    counts = (
        f", groups of {document['replicas']}: {document['seeds']} schedules, {document['faults_injected']} faults, "
        f"{document['messages']} messages, {document['deliveries']} deliveries: "
    )
    more = f", {violations} violation(s)" if violations else ""
    more += "".join(f", {name} unknown in {count} of them" for name, count in document["unknown"].items())
    console.print(line((document["protocol"], "bold"), counts, verdict, more))


def _describe(finding: Finding | NodeFinding, job: Job, faults: str, out: Path, as_json: bool) -> dict[str, Any]:
    """Shrinks a finding, writes it down, and says how to see it again."""
    unshrunk = (
        f"amcast fuzz --protocol {finding.scenario.protocol} --seeds 1 --first-seed {finding.seed}"
        f" --faults {faults}{job.options()}"
    )
    if not isinstance(finding, Finding):
        return describe_node_finding(finding, new_folder(out, finding), unshrunk, as_json)
    small = shrink(finding.scenario)
    result = simulate(small)
    run = result.run()
    violation = violations_of(result)[0]
    folder = _write(out, finding, small, result, run, violation)
    faults_left = small.plan.describe(small.topology())
    document = {
        **finding_fields(finding.seed, violation, faults_left, folder, unshrunk),
        "diagram": str(folder / "diagram.svg"),
    }
    if not as_json:
        _show_finding(document, space_time_text(run, violation))
    return document


def new_folder(out: Path, finding: Finding | NodeFinding) -> Path:
    """One that does not exist yet."""
    folder = out / f"{finding.scenario.protocol}-{finding.seed}"
    number = 2
    while folder.exists():
        folder = out / f"{finding.scenario.protocol}-{finding.seed}-{number}"
        number += 1
    return folder


def _write(out: Path, finding: Finding, small: Any, result: Any, run: Any, violation: Any) -> Path:
    folder = new_folder(out, finding)
    try:
        folder.mkdir(parents=True)
        encoded = msgspec.json.format(msgspec.json.encode(small), indent=2)
        (folder / "scenario.json").write_bytes(encoded)
        (folder / "diagram.svg").write_text(space_time_svg(run, violation))
    except OSError as error:
        raise UsageError(f"can't write the counterexample to {folder}: {error.strerror}") from error
    write_run(folder / "run", result.info, result.recorder)
    return folder


def _show_finding(document: dict[str, Any], diagram: str) -> None:
    show_breach(f"seed {document['seed']} breaks {document['property']}", document["explanation"])
    made = table("fault plan, shrunk")
    for fault in document["faults"] or ["no faults needed"]:
        made.add_row(fault)
    console.print(made)
    console.print(diagram, highlight=False)
    show_entries(document, ("diagram", "replay", "replay_unshrunk"))
