"""Runs of whole nodes in the simulator, for `amcast fuzz --driver node` and `amcast sim --scenario`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec
import typer

from ..check import Violation
from ..core import UsageError
from ._output import FAIL, PASS, coloured, console, line, print_json, show_breach, show_entries, show_violation, table

if TYPE_CHECKING:  # a command that needs no nodes starts without importing them
    from ..netsim import NodeFinding, NodeFuzzResult, NodeResult, NodeScenario


class NodeJob(Protocol):
    @property
    def protocol(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def kinds(self) -> tuple[str, ...]: ...
    @property
    def replicas(self) -> int | None: ...
    @property
    def groups(self) -> int | None: ...
    @property
    def durability(self) -> str | None: ...


def node_kinds(text: str) -> tuple[str, ...]:
    from ..netsim import parse_node_kinds

    return parse_node_kinds(text)


def draw_node_scenario(job: NodeJob) -> NodeScenario:
    from ..net.disk.records import Durability
    from ..netsim import fuzz_node_scenario

    modes = [str(mode) for mode in Durability]
    if job.durability is not None and job.durability not in modes:
        raise UsageError(f"there is no durability '{job.durability}': use one of {', '.join(modes)}")
    durability = None if job.durability is None else Durability(job.durability)
    return fuzz_node_scenario(job.protocol, job.seed, job.kinds, job.replicas, job.groups, durability)


def fuzz_nodes(job: NodeJob) -> NodeFuzzResult:
    from ..netsim import fuzz_one_node

    return fuzz_one_node(draw_node_scenario(job))


def finding_fields(seed: int, violation: Violation, faults: list[str], folder: Path, unshrunk: str) -> dict[str, Any]:
    """What is said of every counterexample, whatever was simulated. Its folder holds the shrunk scenario."""
    return {
        "seed": seed,
        "property": violation.property,
        "messages": violation.messages,
        "processes": violation.processes,
        "explanation": violation.explanation,
        "faults": faults,
        "scenario": str(folder / "scenario.json"),
        "replay": f"amcast sim --scenario {folder / 'scenario.json'}",
        "replay_unshrunk": unshrunk,
    }


def describe_node_finding(finding: NodeFinding, folder: Path, unshrunk: str, as_json: bool) -> dict[str, Any]:
    """Shrinks a finding, writes it down, and says how to see it again."""
    from ..netsim import shrink_node, simulate_nodes

    small = shrink_node(finding.scenario)
    result = simulate_nodes(small, records_log=True)
    violation = result.violations[0]
    try:
        folder.mkdir(parents=True)
        (folder / "scenario.json").write_bytes(msgspec.json.format(msgspec.json.encode(small), indent=2))
        (folder / "log.txt").write_text("\n".join(result.log) + "\n")
    except OSError as error:
        raise UsageError(f"can't write the counterexample to {folder}: {error.strerror}") from error
    document = {
        **finding_fields(finding.seed, violation, small.plan.describe(), folder, unshrunk),
        "log": str(folder / "log.txt"),
    }
    if not as_json:
        _show_finding(document)
    return document


def _show_finding(document: dict[str, Any]) -> None:
    show_breach(f"seed {document['seed']} breaks {document['property']}", document["explanation"])
    _show_faults(document["faults"])
    show_entries(document, ("log", "replay", "replay_unshrunk"))


def _show_faults(faults: list[str]) -> None:
    made = table("fault plan")
    for fault in faults or ["no faults needed"]:
        made.add_row(fault)
    console.print(made)


def replay_nodes(made: NodeScenario, as_json: bool) -> NoReturn:
    """Runs, judges and reports; ends the program with the verdict's exit code."""
    from ..netsim import simulate_nodes

    made.check()
    result = simulate_nodes(made)
    document = _document(result)
    if as_json:
        print_json(document)
    else:
        _show_faults(document["faults"])
        console.print(
            line(
                f"{result.messages} messages, {result.acknowledged} acknowledged, {result.boots} starts of nodes,"
                f" {result.end_us / 1e6:.2f} s: ",
                coloured(document["verdict"]),
            )
        )
        for violation in result.violations:
            show_violation(violation)
    raise typer.Exit(FAIL if result.violations else PASS)


def _document(result: NodeResult) -> dict[str, Any]:
    return {
        "protocol": result.scenario.protocol,
        "seed": result.scenario.seed,
        "messages": result.messages,
        "acknowledged": result.acknowledged,
        "deliveries": result.deliveries,
        "starts": result.boots,
        "end_us": result.end_us,
        "digest": result.digest,
        "faults": result.scenario.plan.describe(),
        "verdict": "fail" if result.violations else "pass",
        "violations": msgspec.to_builtins(list(result.violations)),
    }
