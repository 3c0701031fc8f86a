"""Linearizability: the checker agrees with one that tries every order, and finds and explains what is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from amcast.check import Report, check_run, space_time_svg, space_time_text
from amcast.check.linear._demands import Demands
from amcast.check.linear._history import parts_of
from amcast.check.linear._search import Budget, has_order
from amcast.check.linear._smallest import Dependencies
from amcast.check.linear.judge import Judged, judge
from amcast.trace import Recorder, Run, RunInfo
from amcast.trace.names import Names
from amcast.trace.operations import operation_problems
from tests.check import linear_oracle as oracle

HISTORIES = 2_000
INFO = RunInfo(run_id="r", protocol="p", seed=0, complete=True, groups=(), correct=())

# client, invoked, returned, operation, arguments, result (... if it was not recorded), objects
Called = tuple[int, int, int | None, str, list[Any], Any, Sequence[str]]


def run_of(*rows: Called, info: RunInfo = INFO) -> Run:
    recorder = Recorder()
    for client, invoked, returned, operation, arguments, result, objects in rows:
        told = None if result is ... else json.dumps(result)
        recorder.operation(client, invoked, returned, operation, json.dumps(arguments), told, objects)
    return recorder.run(info)


def judged(rows: list[oracle.Row]) -> Judged:
    operations = oracle.operations_of(rows)
    assert operation_problems(operations) == []
    return judge(operations, Names(INFO))


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


def test_what_must_precede_what_follows_from_what_was_read() -> None:
    """The example of `_demands.py`, and the same with a reader who makes it impossible."""
    rows = [
        oracle.Row(1, 0, 99, (("put", "x", (1,)),), (None,)),
        oracle.Row(2, 10, 19, (("put", "x", (3,)),), (None,)),
        oracle.Row(3, 20, 99, (("put", "y", (2,)),), (None,)),
        oracle.Row(4, 0, 99, (("get", "x", ()), ("get", "y", ())), (1, 2), True),
    ]
    (part,) = parts_of(oracle.operations_of(rows), np.arange(4))
    demands = Demands(part.operations)
    number = {(each.calls[0].verb, each.calls[0].arguments): at for at, each in enumerate(part.operations)}
    first, other = number["put", ("1",)], number["put", ("3",)]
    assert demands.before[first] == 1 << other
    assert not demands.is_contradictory

    impossible = [*rows, oracle.Row(5, 0, 5, (("get", "x", ()),), (1,))]
    (part,) = parts_of(oracle.operations_of(impossible), np.arange(5))
    assert Demands(part.operations).is_contradictory
    assert not oracle.has_order(impossible)


def test_a_history_in_which_hardly_anything_is_answered_is_decided() -> None:
    """Transactions of which nobody knows when they were done: a search that tried all their orders would not end."""
    for seed in range(20):
        random = Random(seed)
        rows = oracle.random_history(random, "unique-kv", 120)
        asked = [replace(row, invoked=0, returned=row.returned if random.random() < 0.3 else None) for row in rows]
        operations = oracle.operations_of(asked)
        for part in parts_of(operations, np.arange(len(operations))):
            assert has_order(part.operations, Budget(4 * len(asked))) is True, f"seed {seed}"


def test_the_order_of_rows_does_not_matter() -> None:
    for seed in range(60):
        random = Random(seed)
        rows = oracle.damaged(random, oracle.random_history(random, oracle.KINDS[seed % len(oracle.KINDS)], 6))
        found = judged(rows)
        random.shuffle(rows)
        assert judged(rows) == found


def test_what_is_left_out_is_not_what_makes_it_wrong() -> None:
    """Of a history with an order, any answers with all that they depend on have one."""
    for seed in range(1_500):
        random = Random(seed)
        rows = oracle.operations_of(oracle.random_history(random, oracle.KINDS[seed % len(oracle.KINDS)], 8))
        for part in parts_of(rows, np.arange(len(rows))):
            telling = [each for each in part.operations if each.tells]
            chosen = random.sample(telling, random.randint(0, len(telling)))
            left = Dependencies(part.operations).closed(chosen)
            assert has_order(left, Budget(100_000)) is True, f"seed {seed}: {chosen}"


# --------------------------------------------------------------------------------------- what is wrong, in words

NOISE: list[Called] = [
    (
        9,
        10 * number,
        10 * number + 5,
        "write" if number % 2 else "read",
        [number] if number % 2 else [],
        number - 1,
        ["z"],
    )
    for number in range(1, 60)
]

WRONG: dict[str, tuple[list[Called], int, str]] = {
    "a stale read": (
        [
            (1, 1000, 2000, "write", [5], None, ["x"]),
            (2, 2500, 3500, "write", [7], None, ["x"]),
            (2, 2600, 4100, "read", [], 7, ["x"]),
            (3, 4000, 5000, "read", [], 5, ["x"]),
        ],
        3,
        "c3 read x=5 (from 4.000 ms to 5.000 ms), although x=7 was written and acknowledged before"
        " (c2, from 2.500 ms to 3.500 ms)",
    ),
    "a value that comes back": (
        [
            (1, 1000, 9000, "write", [5], None, ["x"]),
            (2, 1000, 9000, "write", [7], None, ["x"]),
            (3, 1500, 2000, "read", [], 5, ["x"]),
            (3, 2500, 3000, "read", [], 7, ["x"]),
            (3, 3500, 4000, "read", [], 5, ["x"]),
        ],
        5,
        "c3 read x=5 (from 3.500 ms to 4.000 ms), although c3 read x=7 (from 2.500 ms to 3.000 ms); and 5 was there"
        " before 7: c3 read x=5 (from 1.500 ms to 2.000 ms), c3 read x=7 (from 2.500 ms to 3.000 ms)",
    ),
    "a lost acknowledged write": (
        [(1, 1000, 2000, "put", [5], None, ["x"]), (3, 4000, 5000, "get", [], None, ["x"])],
        2,
        "c3 read nothing from x (from 4.000 ms to 5.000 ms), although x=5 was written and acknowledged before"
        " (c1, from 1.000 ms to 2.000 ms)",
    ),
    "a lost update of a transaction": (
        [
            (1, 100, 200, "put", [0], None, ["x"]),
            (1, 1000, 2000, "transaction", [["get", "x"], ["put", "x", 1]], [0, None], ["x"]),
            (2, 1500, 3000, "transaction", [["get", "x"], ["put", "x", 2]], [0, None], ["x"]),
        ],
        3,
        "an update is lost, since both found x=0 and replaced it: c1 read x=0 and wrote x=1 (from 1.000 ms to"
        " 2.000 ms); c2 read x=0 and wrote x=2 (from 1.500 ms to 3.000 ms)",
    ),
    "a lost update of a counter": (
        [
            (1, 1000, 2000, "add", [5], None, ["x"]),
            (2, 1000, 2000, "add", [2], None, ["x"]),
            (3, 4000, 5000, "total", [], 5, ["x"]),
        ],
        3,
        "c3 found x at 5 (from 4.000 ms to 5.000 ms), although 7 had been added and acknowledged before",
    ),
    "a transaction that is seen in part": (
        [
            (1, 1000, 4000, "transaction", [["put", "x", 1], ["put", "y", 1]], [None, None], ["x", "y"]),
            (2, 1500, 3000, "transaction", [["get", "x"], ["get", "y"]], [1, None], ["x", "y"]),
        ],
        2,
        "c2 read x=1 and read nothing from y (from 1.500 ms to 3.000 ms): so it saw x=1 of the transaction of c1, and"
        " not yet y=1 of the same",
    ),
    "a value in the middle of a transaction": (
        [
            (1, 1000, 2000, "transaction", [["put", "x", 1], ["put", "x", 2]], [None, None], ["x"]),
            (2, 1500, 3000, "get", [], 1, ["x"]),
        ],
        2,
        "c2 read x=1 (from 1.500 ms to 3.000 ms), a value that c1 replaced in the same transaction: it was never there"
        " for others to see",
    ),
    "a value of a transaction that was undone": (
        [(1, 100, 200, "put", [5], None, ["x"]), (2, 1500, 3000, "get", [], 1, ["x"])],
        1,
        "c2 read x=1 (from 1.500 ms to 3.000 ms), although nobody wrote 1 to x",
    ),
    "a member that is gone": (
        [(1, 1000, 2000, "insert", [5], True, ["s"]), (3, 4000, 5000, "members", [], [], ["s"])],
        2,
        "c3 read s={} (from 4.000 ms to 5.000 ms), although 5 was inserted and acknowledged before (c1, until 2.000"
        " ms), and nobody removed it",
    ),
    "a list in another order": (
        [
            (1, 1000, 2000, "append", ["a"], None, ["s"]),
            (1, 3000, 4000, "append", ["b"], None, ["s"]),
            (3, 4000, 5000, "items", [], ["b", "a"], ["s"]),
        ],
        3,
        'c3 read s=["b", "a"] (from 4.000 ms to 5.000 ms), although "a" was appended and acknowledged before "b"',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_and_told_by_few_operations(name: str) -> None:
    rows, count, words = WRONG[name]
    report = check_run(run_of(*NOISE, *rows))
    assert report.properties == {"linearizability": "fail"}
    (violation,) = report.violations
    assert words in violation.explanation
    assert len(violation.operations) <= count
    assert any(each.is_bad for each in violation.operations)
    assert violation.processes == list(dict.fromkeys(each.client for each in violation.operations))


def test_few_of_many_operations_are_left() -> None:
    rows: list[Called] = []
    for number in range(200):
        rows.append((1, 100 * number, 100 * number + 50, "write", [number % 3], None, ["x"]))
        rows.append((2, 100 * number + 60, 100 * number + 90, "read", [], number % 3, ["x"]))
    rows[333] = (2, 16660, 16690, "read", [], 0, ["x"])  # 166 % 3 is 1
    (violation,) = check_run(run_of(*rows)).violations
    assert len(violation.operations) <= 3
    assert [each.what for each in violation.operations if each.is_bad] == ["read x=0"]
    assert "although x=1 was written and acknowledged before (c1, from 16.600 ms to 16.650 ms)" in violation.explanation


def test_a_wrong_answer_in_a_long_history_is_found_before_all_orders_are_tried() -> None:
    rows: list[Called] = []
    held = dict.fromkeys("abcdefgh", 0)
    for number in range(3_000):
        one, other = Random(number).sample(sorted(held), 2)
        steps = [["get", one], ["put", other, number]]
        told = [held[one] or None, None]
        held[other] = number
        rows.append((number % 20, 10 * number, 10 * number + 90, "transaction", steps, told, [one, other]))
    assert check_run(run_of(*rows)).verdict == "pass"
    client, invoked, returned, what, steps, _, objects = rows[2_000]
    rows[2_000] = (client, invoked, returned, what, steps, [rows[0][4][1][2] or None, None], objects)
    (violation,) = check_run(run_of(*rows)).violations
    assert len(violation.operations) <= 3


# -------------------------------------------------------------------------------------------------- unknown

WRITTEN: Called = (1, 1000, 2000, "write", [5], None, ["x"])
READ: Called = (2, 3000, 4000, "read", [], 5, ["x"])


def reason(report: Report) -> str:
    assert report.properties == {"linearizability": "unknown"}
    return report.reasons["linearizability"]


def test_nothing_passes_without_evidence() -> None:
    assert reason(check_run(run_of())) == "no operation was recorded"
    assert reason(check_run(run_of(WRITTEN))) == "no answer tells anything about a state"
    silent = (2, 3000, 4000, "read", [], ..., ["x"])
    assert reason(check_run(run_of(WRITTEN, silent))) == "answers whose results were not recorded: 1"
    assert check_run(run_of(WRITTEN, READ)).verdict == "pass"


def test_what_was_not_recorded_might_explain_anything() -> None:
    info = msgspec.structs.replace(INFO, missing=("no operations of c7",))
    for read in (READ, (*READ[:5], 6, ["x"])):
        assert "no operations of c7" in reason(check_run(run_of(WRITTEN, read, info=info)))


def test_an_operation_without_an_answer_may_have_happened_or_not() -> None:
    doubtful: Called = (1, 2500, None, "write", [7], ..., ["x"])
    for seen in (5, 7):
        read: Called = (2, 3000, 4000, "read", [], seen, ["x"])
        assert check_run(run_of(WRITTEN, doubtful, read)).verdict == "pass"
    back: Called = (2, 5000, 6000, "read", [], 5, ["x"])
    assert check_run(run_of(WRITTEN, doubtful, (2, 3000, 4000, "read", [], 7, ["x"]), back)).verdict == "fail"


def test_a_search_that_is_over_leaves_it_undecided() -> None:
    rows: list[Called] = [(n, 0, 1000, "cas", [n, n + 1], False, ["x"]) for n in range(3)]
    rows += [(n, 0, 1000, "write", [n % 9], None, ["x"]) for n in range(1500)]
    rows.append((7, 2000, 3000, "read", [], 77, ["x"]))
    assert "the budget was used up before an order of what was done with x" in reason(
        check_run(run_of(*rows), lambda: True)
    )


def test_a_claim_about_deliveries_is_unknown_where_there_are_none() -> None:
    info = msgspec.structs.replace(INFO, claims=("fifo", "linearizability", "sparkling"))
    report = check_run(run_of(WRITTEN, READ, info=info))
    assert report.properties == {"linearizability": "pass", "fifo": "unknown", "sparkling": "unknown"}


# ------------------------------------------------------------------------------------------------- diagrams


def test_bars_overlap_where_operations_do() -> None:
    rows, _, _ = WRONG["a transaction that is seen in part"]
    run = run_of(*rows, (4, 3500, None, "put", [9], ..., ["x"]), (5, 4100, 4200, "get", [], 9, ["x"]))
    (violation,) = check_run(run).violations
    lines = space_time_text(run, violation).splitlines()
    first, second = (next(line for line in lines if line.startswith(client)) for client in ("c1", "c2"))
    assert first.index("|") < second.index("|") < second.rindex("|") < first.rindex("|")
    assert "{get x=1; get y=null}!" in second
    assert max(map(len, lines)) <= 80


def test_the_svg_shows_every_operation_and_escapes_names() -> None:
    rows: list[Called] = [
        (1, 1000, 2000, "write", ["<b>"], None, ["a&b"]),
        (2, 2500, None, "write", ["<i>"], ..., ["a&b"]),
        (3, 4000, 5000, "read", [], None, ["a&b"]),
    ]
    run = run_of(*rows)
    (violation,) = check_run(run).violations
    root = ElementTree.fromstring(space_time_svg(run, violation))
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert 'write a&b="<b>"' in texts
    assert [text for text in texts if text in ("c1", "c3")] == ["c1", "c3"]
