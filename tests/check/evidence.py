"""Is a counterexample one? Each kind of evidence is held against the rows of the run."""

from __future__ import annotations

from amcast.check import Violation
from amcast.trace import FINAL, NULL, Run
from tests.check.oracle import Oracle


def assert_evidence(run: Run, violation: Violation) -> None:
    oracle = Oracle(run)
    assert all(type(number) is int for number in (*violation.messages, *violation.processes))
    assert violation.explanation
    _CHECKS[violation.property](oracle, violation.messages, violation.processes)


def _positions(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    (process,) = processes
    if not messages:  # it was handed a position that nobody delivered
        known = {pos for p in oracle._replicas(process) for pos, _ in oracle.positions[p]}
        assert any(set(range(*gap)) - known for gap in oracle._excused(process))
        return
    (message,) = messages
    positions = [pos for p, _, pos, *_ in oracle.rows if p == process]
    here = [pos for p, _, pos, msg, *_ in oracle.rows if (p, msg) == (process, message)]
    assert any(positions.count(pos) > 1 or (pos > 0 and pos - 1 not in positions) or pos < 0 for pos in here)


def _integrity(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    (message,), (process,) = messages, processes
    rows = [row for row in oracle.rows if row[0] == process and row[3] == message]
    group = oracle.group_of.get(process)
    wrong_place = bool(rows) and group not in oracle.dst.get(message, ())
    wrong_group = any(row[4] != group for row in rows)
    again = any([row[1] for row in rows].count(kind) > 1 for kind in (0, 1))
    assert wrong_place or wrong_group or again or oracle.run.multicasts.msg.tolist().count(message) > 1


def _validity(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    (message,) = messages
    assert processes
    for process in processes:
        assert process in oracle.info.correct
        assert oracle.group_of[process] in oracle.dst[message]
        assert message not in oracle.held[process]


def _agreement(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    witness, *others = processes
    assert any(row[:2] == (witness, FINAL) and row[3] == messages[0] for row in oracle.rows)
    _validity(oracle, messages, others)


def _replicas(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    one, other = (oracle.held[process] for process in processes)
    assert oracle.group_of[processes[0]] == oracle.group_of[processes[1]]
    if len(messages) == 1:  # one ends before the other
        assert one == other[: len(one)]
        assert other[len(one)] == messages[0]
        assert oracle.info.complete
        assert set(processes) <= set(oracle.info.correct)
    else:
        at = next(at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
        assert [one[at], other[at]] == messages


def _acyclic(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    assert len(messages) == len(processes) == len(set(messages)) >= 2
    for process, first, then in zip(processes, messages, [*messages[1:], messages[0]], strict=True):
        log = oracle.ordered[process]
        assert oracle.group_of[process] in oracle.dst[then]
        assert first in log
        assert then not in log[: log.index(first)]


def _prefix(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    assert len(messages) == 2
    _acyclic(oracle, messages, processes)


def _timestamps(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    rows = [
        (p, msg, ts)
        for p, kind, _, msg, _, ts in oracle.rows
        if kind == FINAL and ts != NULL and p in processes and msg in messages
    ]
    given = {(msg, ts) for _, msg, ts in rows}
    if len(messages) == 1 and len(processes) == 2:
        assert len(given) > 1
    elif len(processes) == 2:
        assert len({ts for msg, ts in given}) < len(given)
    else:
        first, then = messages
        stamps = [(msg, ts) for _, msg, ts in rows]
        assert any(
            a[0] == first and b[0] == then and b[1] <= a[1] for i, a in enumerate(stamps) for b in stamps[i + 1 :]
        )


def _fifo(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    (earlier, later), (process,) = messages, processes
    log = oracle.ordered[process]
    assert oracle.sender[earlier] == oracle.sender[later]
    assert oracle.seq[earlier] < oracle.seq[later]
    assert oracle.group_of[process] in oracle.dst[earlier]
    assert earlier not in log[: log.index(later)]


def _genuine(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    row = (*processes, messages[0] if messages else NULL)
    assert row in oracle.spoken()
    assert not oracle.may_speak(*row)


def _minimality(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    (message,) = messages
    assert (*processes, message) in oracle.spoken()
    assert not set(processes) <= oracle.busy()


def _quasi_genuine(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    assert not messages
    assert tuple(processes) in {(src, dst) for src, dst, _ in oracle.spoken()}
    assert not set(processes) <= oracle.busy()


def _partially_genuine(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    (message,) = messages
    assert (*processes, message) in oracle.spoken()
    assert not oracle.may_speak_of_local(*processes, message)


def _local_order(oracle: Oracle, messages: list[int], processes: list[int]) -> None:
    (message,), (process,) = messages, processes
    assert (process, message) in oracle.late_guesses()


_CHECKS = {
    "positions": _positions,
    "integrity": _integrity,
    "validity": _validity,
    "agreement": _agreement,
    "replicas": _replicas,
    "prefix": _prefix,
    "acyclic": _acyclic,
    "timestamps": _timestamps,
    "fifo": _fifo,
    "genuine": _genuine,
    "minimality": _minimality,
    "quasi-genuine": _quasi_genuine,
    "partially-genuine": _partially_genuine,
    "local-order": _local_order,
}
