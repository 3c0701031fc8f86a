"""What is wrong with a run of whole nodes: what was acknowledged and lost, delivered twice, or in another order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..check import Violation, check_run
from ..core import GroupId, MessageId, ProcessId, message_name
from ..description import describe
from ..net.trace.collect import Expected, collect
from ..trace import Run, RunInfo, read_run
from .application import result_at
from .clients import Asked
from .faults import LOSE_DISK

if TYPE_CHECKING:
    from .run import NodeSimulation


def judge(simulation: NodeSimulation, raw: Path, out: Path) -> tuple[tuple[Violation, ...], Run | None]:
    found = [Violation(what, [], [], explanation) for what, explanation in simulation.problems]
    found += _lost(simulation)
    found += _differing(simulation)
    found += _wrong_results(simulation)
    found += _wrong_answers(simulation)
    complete = simulation.reader is not None and simulation.reader.is_done
    collect(raw, out, partial(_describe, simulation, complete), partial(_expected, simulation))
    run = read_run(out)
    report = check_run(run)
    found += report.violations
    if not found and report.verdict != "pass" and not _lost_evidence(simulation):
        found.append(Violation("evidence", [], [], f"nothing is amiss, but the verdict is {report.verdict}: {report}"))
    return tuple(found), run


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


def _wrong_results(simulation: NodeSimulation) -> list[Violation]:
    """Answers to calls that are not those of the execution at the message's position."""
    reader = simulation.reader
    if reader is None or not reader.is_done:
        return []
    expected: dict[tuple[str, MessageId], bytes] = {}
    for number in range(1, simulation.scenario.groups + 1):
        states: dict[int, int] = {}
        for name in simulation.scenario.members(number):
            states.update(simulation.nodes[name].applied)
        for position, message in reader.delivered[f"g{number}"]:
            if position in states:
                expected[f"g{number}", message.id] = result_at(position, states[position])
    found = []
    for sender in simulation.senders:
        for id_, results in sender.results.items():
            if tuple(results) != sender.sent[id_]:
                explanation = f"{message_name(id_)} went to {sender.sent[id_]}, and {tuple(results)} answered"
                found.append(Violation("result", [id_], [], explanation))
            for group, result in results.items():
                right = expected.get((group, id_), result)
                if result != right:
                    explanation = f"{group} answered {result!r} to {message_name(id_)}, and executed it as {right!r}"
                    found.append(Violation("result", [id_], [], explanation))
    return found


def _wrong_answers(simulation: NodeSimulation) -> list[Violation]:
    """Answers to queries that are older than what a client knew before, or newer than what there was, or of no state.

    A position that a client knew is that of a message which was acknowledged, or what an earlier query showed.
    """
    positions = _positions(simulation)
    states = _states(simulation)
    known: dict[str, tuple[int, str]] = {}  # of each group: the least that a query must show, and why
    wanted: dict[Asked, tuple[int, str]] = {}  # the same, when each query began
    for kind, subject, sent in simulation.history.events:
        if not isinstance(subject, Asked):
            for group, position in positions.get(subject, {}).items():
                if position >= known.get(group, (0, ""))[0]:
                    known[group] = position + 1, f"{message_name(subject)} was acknowledged at position {position}"
            continue
        group = subject.group
        if kind == "begin":
            wanted[subject] = known.get(group, (0, ""))
            continue
        assert subject.answer is not None
        position, state = subject.answer
        least, why = wanted[subject]
        if position < least and not subject.is_local:
            return [Violation("query", [], [], f"a query showed {group} at position {position}, after {why}")]
        if position > sum(group in groups for groups in simulation.history.sent[:sent]):
            return [Violation("query", [], [], f"a query showed {group} at position {position}: so many were not sent")]
        if state != states[group].get(position, state):
            return [Violation("query", [], [], f"a query showed a state of {group} that it never had at {position}")]
        if position > known.get(group, (0, ""))[0] and not subject.is_local:
            known[group] = position, f"a query showed position {position}"
    return []


def _positions(simulation: NodeSimulation) -> dict[MessageId, dict[str, int]]:
    """Where messages were delivered, as far as it can still be found out: in the logs, or in answers to calls."""
    found: dict[MessageId, dict[str, int]] = {}
    delivered = {} if simulation.reader is None else simulation.reader.delivered
    for group, rows in delivered.items():
        for position, message in rows:
            found.setdefault(message.id, {})[group] = position
    for sender in simulation.senders:
        for id_, results in sender.results.items():
            for group, result in results.items():
                if result is not None:
                    found.setdefault(id_, {}).setdefault(group, int(result.split()[0]))
    return found


def _states(simulation: NodeSimulation) -> dict[str, dict[int, int]]:
    """Of each group: the state of its application, by the next position that it applies."""
    states: dict[str, dict[int, int]] = {}
    for number in range(1, simulation.scenario.groups + 1):
        of_group = states[f"g{number}"] = {0: 0}
        for name in simulation.scenario.members(number):
            of_group.update({position + 1: state for position, state in simulation.nodes[name].applied.items()})
    return states


def _differing(simulation: NodeSimulation) -> list[Violation]:
    """Applications of a group that were in different states at the same position."""
    found = []
    for group in range(1, simulation.scenario.groups + 1):
        known: dict[int, tuple[str, int]] = {}
        for name in simulation.scenario.members(group):
            for position, state in simulation.nodes[name].applied.items():
                other, other_state = known.setdefault(position, (name, state))
                if state != other_state:
                    explanation = f"after position {position} the applications of {other} and {name} differ"
                    found.append(Violation("application", [], [], explanation))
                    break
    return found
