"""Linearizability: the checker agrees with one that tries every order, and finds and explains what is wrong."""

from __future__ import annotations

from random import Random

from amcast.check.linear.judge import Judged, judge
from amcast.trace import RunInfo
from amcast.trace.names import Names
from amcast.trace.operations import operation_problems
from tests.check import linear_oracle as oracle

HISTORIES = 2_000
NAMES = Names(RunInfo(run_id="r", protocol="p", seed=0, complete=True, groups=(), correct=()))


def judged(rows: list[oracle.Row]) -> Judged:
    operations = oracle.operations_of(rows)
    assert operation_problems(operations) == []
    return judge(operations, NAMES)


def test_it_agrees_with_a_checker_that_tries_every_order() -> None:
    verdicts: dict[str, list[bool]] = {kind: [] for kind in oracle.KINDS}
    for seed in range(HISTORIES):
        random = Random(seed)
        kind = oracle.KINDS[seed % len(oracle.KINDS)]
        rows = oracle.random_history(random, kind, random.randint(2, 6))
        if random.random() < 0.6:
            rows = oracle.damaged(random, rows)
        found = judged(rows)
        wanted = oracle.has_order(rows)
        assert (found.failed == 0, found.undecided) == (wanted, []), f"seed {seed}: {rows}"
        verdicts[kind].append(wanted)
    for kind, answers in verdicts.items():
        assert 0.1 < sum(answers) / len(answers) < 0.95, f"{kind}: good and bad ones are tried"
