"""What is wrong with a run of whole nodes: what was acknowledged and lost, delivered twice, or in another order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..check import Violation, check_run
from ..core import GroupId, MessageId, ProcessId, message_name
from ..description import describe
from ..net.trace.collect import Expected, collect
from ..protocols import protocol
from ..trace import Run, RunInfo, read_run
from .application import Execution
from .clients import Asked, Sender
from .faults import LOSE_DISK

_DROPPED = "dropped by the limit of"

if TYPE_CHECKING:
    from .run import NodeSimulation


def judge(simulation: NodeSimulation, raw: Path, out: Path) -> tuple[tuple[Violation, ...], Run | None]:
    found = [Violation(what, [], [], explanation) for what, explanation in simulation.problems]
    found += _lost(simulation)
    found += _differing(simulation)
    executions = _executions(simulation)
    found += _wrong_results(simulation, executions)
    found += _wrong_reads(simulation, executions)
    found += _wrong_queries(simulation, executions)
    found += _not_linearizable(simulation)
    complete = simulation.reader is not None and simulation.reader.is_done
    collect(raw, out, partial(_describe, simulation, complete), partial(_expected, simulation))
    run = read_run(out)
    report = check_run(run)
    found += report.violations
    if not found and report.verdict != "pass" and not _lost_evidence(simulation) and len(run.multicasts):
        found.append(Violation("evidence", [], [], f"nothing is amiss, but the verdict is {report.verdict}: {report}"))
    return tuple(found), run


def judge_bounded(simulation: NodeSimulation, raw: Path, out: Path) -> tuple[Violation, ...]:
    """Judges a trace of which nodes dropped the beginning. The run must say so, and nothing may fail by it."""
    complete = simulation.reader is not None and simulation.reader.is_done
    collect(raw, out, partial(_describe, simulation, complete), partial(_expected, simulation))
    run = read_run(out)
    report = check_run(run)
    found = [replace(violation, property=f"bounded-{violation.property}") for violation in report.violations]
    if report.verdict == "pass" or not any(_DROPPED in word for word in run.info.missing):
        explanation = f"a part of the trace was dropped, the verdict is {report.verdict}, missing: {run.info.missing}"
        found.append(Violation("bounded-evidence", [], [], explanation))
    strange = [word for word in run.info.missing if _DROPPED not in word]
    if strange and not _lost_evidence(simulation):
        found.append(Violation("bounded-evidence", [], [], f"nobody dropped this: {strange}"))
    return tuple(found)


def _expected(simulation: NodeSimulation) -> dict[ProcessId, Expected]:
    ids = simulation.scenario.config().ids()
    positions = {} if simulation.reader is None else simulation.reader.positions
    return {ids[name]: Expected(node.boots_counted(), positions.get(name)) for name, node in simulation.nodes.items()}


def _lost_evidence(simulation: NodeSimulation) -> bool:
    """Whether a folder that counts boots was lost or set back: then nobody knows whether traces are missing."""
    return any(isinstance(fault, LOSE_DISK) for fault in simulation.scenario.plan.faults)


def _describe(simulation: NodeSimulation, complete: bool, sent: Iterable[tuple[ProcessId, GroupId]]) -> RunInfo:
    scenario = simulation.scenario
    config = scenario.config()
    topology = config.topology()
    return describe(
        config.spec(),
        config.replica_config(),
        topology,
        sent,
        run_id=f"{scenario.protocol}-node-{scenario.seed}",
        seed=scenario.seed,
        complete=complete,
        correct=topology.processes if complete else (),
        has_wire=False,
        driver="simulated nodes",
    )


def _lost(simulation: NodeSimulation) -> list[Violation]:
    """Messages that were acknowledged, and can't be had from a destination although it should still keep them."""
    reader = simulation.reader
    if reader is None or not reader.is_done:
        return []
    found = []
    delivered = {group: [message.id for _, message in rows] for group, rows in reader.delivered.items()}
    for group, first in reader.first.items():
        end = first + len(delivered[group])
        if first > max(0, end - simulation.scenario.keep_messages):
            explanation = f"{group} keeps its deliveries from {first} to {end} only"
            found.append(Violation("retention", [], [], explanation))
    for sender in simulation.senders:
        for id_ in sorted(sender.acknowledged):
            for group in sender.sent[id_]:
                count = delivered[group].count(id_)
                if count > 1 or (count == 0 and reader.first[group] == 0):
                    explanation = f"{message_name(id_)} was acknowledged, and is {count} times in the log of {group}"
                    found.append(Violation("acknowledged", [id_], [], explanation))
    return found


Executions = dict[tuple[str, MessageId], Execution]  # by group and message


def _executions(simulation: NodeSimulation) -> Executions:
    """What the members of each group did, each message by any of them: `_differing` compares them."""
    found: Executions = {}
    for name, node in simulation.nodes.items():
        for id_, execution in node.executions.items():
            found[name.partition(".")[0], id_] = execution
    return found


def _wrong_results(simulation: NodeSimulation, executions: Executions) -> list[Violation]:
    """Answers to calls that are not those of the execution of the message, or of one with the same key."""
    found = []
    for sender in simulation.senders:
        executed = dict(executions)
        for id_, key in sender.keys.items():
            for group in sender.sent[id_]:
                same = [other for other, its in sender.keys.items() if its == key and (group, other) in executions]
                if len(same) > 1:
                    explanation = f"{group} executed {' and '.join(map(message_name, same))}, which have the same key"
                    found.append(Violation("key", same, [], explanation))
                if same:
                    executed[group, id_] = executions[group, same[0]]
        for id_ in sorted(sender.acknowledged):
            found += _wrong_answers(simulation, sender, id_, executed)
    return found


def _wrong_answers(
    simulation: NodeSimulation, sender: Sender, id_: MessageId, executed: Executions
) -> Iterator[Violation]:
    name, groups = message_name(id_), sender.sent[id_]
    poisoned = {group for group in groups if _is_poisoned(simulation, sender, group, id_)}
    if id_ in sender.refused and not poisoned:
        yield Violation("result", [id_], [], f"{name} was refused without a cause: {sender.refused[id_]}")
    for group in groups:
        if (group, id_) not in executed and group not in poisoned:
            yield Violation("result", [id_], [], f"{name} was acknowledged, and no member of {group} executed it")
    results = sender.results.get(id_)
    if results is None:
        return
    answer = tuple(results)
    is_enough = len(answer) == 1 and protocol(simulation.scenario.protocol).orders_operations
    if answer != groups and not is_enough:
        yield Violation("result", [id_], [], f"{name} went to {groups}, and {answer} answered")
    for group, result in results.items():
        if (group, id_) in executed and result != executed[group, id_].result:
            right = executed[group, id_].result
            yield Violation("result", [id_], [], f"{group} answered {result!r} to {name}, and executed it as {right!r}")


def _is_poisoned(simulation: NodeSimulation, sender: Sender, group: str, id_: MessageId) -> bool:
    """Whether the group has skipped the message, or one with the same key before it could be executed."""
    poisoned = simulation.nodes[f"{group}.p0"].poison.id
    return poisoned is not None and (
        id_ == poisoned or (id_ in sender.keys and sender.keys.get(poisoned) == sender.keys[id_])
    )


def _wrong_reads(simulation: NodeSimulation, executions: Executions) -> list[Violation]:
    """What groups told each other before they executed a message, and is not their state before that message."""
    found = []
    for name, node in simulation.nodes.items():
        for id_, execution in node.executions.items():
            for group, told in execution.reads.items():
                other = executions.get((group, id_))
                if other is not None and told != other.told:
                    what = f"{told!r} for {message_name(id_)}, and was at {other.told!r}"
                    found.append(Violation("exchange", [id_], [], f"{group} told {name} {what}"))
    return found


def _wrong_queries(simulation: NodeSimulation, executions: Executions) -> list[Violation]:
    """Answers to queries that are older than what a client knew before, or newer than what there was, or of no state.

    What a client knew: that a message was acknowledged, and what an earlier query showed. Queries show how many
    messages a group has executed.
    """
    numbers, states = _numbers(simulation, executions), _states(executions)
    known: dict[str, tuple[int, str]] = {}  # of each group: the least that a query must show, and why
    wanted: dict[Asked, tuple[int, str]] = {}  # the same, when each query began
    for kind, subject, sent in simulation.history.events:
        if not isinstance(subject, Asked):
            for group, number in numbers.get(subject, {}).items():
                if number >= known.get(group, (0, ""))[0]:
                    known[group] = number + 1, f"{message_name(subject)}, number {number}, was acknowledged"
            continue
        group = subject.group
        if kind == "begin":
            wanted[subject] = known.get(group, (0, ""))
            continue
        assert subject.answer is not None
        shown, state = subject.answer
        least, why = wanted[subject]
        if shown < least and not subject.is_local:
            return [Violation("query", [], [], f"a query showed {shown} messages of {group}, after {why}")]
        if shown > sum(group in groups for groups in simulation.history.sent[:sent]):
            return [Violation("query", [], [], f"a query showed {shown} messages of {group}: so many were not sent")]
        if state != states.get((group, shown), state):
            return [Violation("query", [], [], f"a query showed a state of {group} that it never had after {shown}")]
        if shown > known.get(group, (0, ""))[0] and not subject.is_local:
            known[group] = shown, f"a query showed {shown}"
    return []


def _not_linearizable(simulation: NodeSimulation) -> list[Violation]:
    """Of operations on objects, if the protocol orders these: by what clients were answered alone."""
    nothing = RunInfo(run_id="answers", protocol="any", seed=0, complete=True, groups=(), correct=())
    return list(check_run(simulation.history.recorder.run(nothing)).violations)


def _numbers(simulation: NodeSimulation, executions: Executions) -> dict[MessageId, dict[str, int]]:
    """The how-manieth message of each group it was; of one with a key, the one that was executed for it."""
    found: dict[MessageId, dict[str, int]] = {}
    for (group, id_), execution in executions.items():
        found.setdefault(id_, {})[group] = execution.number
    for sender in simulation.senders:
        for id_, key in sender.keys.items():
            for other, its in sender.keys.items():
                if its == key and other != id_:
                    found[id_] = {**found.get(other, {}), **found.get(id_, {})}
    return found


def _states(executions: Executions) -> dict[tuple[str, int], int]:
    """By group, and how many messages it has executed."""
    return {(group, execution.number + 1): execution.after for (group, _), execution in executions.items()}


def _differing(simulation: NodeSimulation) -> list[Violation]:
    """Members of a group that executed a message in different ways."""
    found = []
    for group in range(1, simulation.scenario.groups + 1):
        known: dict[MessageId, tuple[str, Execution]] = {}
        for name in simulation.scenario.members(group):
            for id_, execution in simulation.nodes[name].executions.items():
                other, other_execution = known.setdefault(id_, (name, execution))
                if execution != other_execution:
                    explanation = f"{other} and {name} executed {message_name(id_)} in different ways"
                    found.append(Violation("application", [id_], [], explanation))
                    break
    return found
