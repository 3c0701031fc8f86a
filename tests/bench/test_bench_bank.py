"""A few rounds of the bank under faults (`make bank` runs many), and how its judge finds what is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.bank import History, Query, Total, Transfer, judge, run
from bench.bank import __main__ as cli
from bench.bank._judge import Saved, judge_replicas

ANN, BEN, BOX = "ann@g1", "ben@g2", "box@g2"


def good() -> History:
    """Ann has 100 and pays Ben 30 and 40; then her 50 are refused. A query overlaps the second payment."""
    history = History()
    history.transfers = [
        Transfer("", ANN, 100, "d1", 1, 2, True),
        Transfer(ANN, BEN, 30, "k1", 3, 5, True, [True]),
        Transfer(ANN, BOX, 40, "k2", 7, 12, True),
        Transfer(ANN, BEN, 50, "k3", 13, 14, False, [False]),
    ]
    history.queries = [
        Query("c1", ANN, 6, 6, 70),
        Query("c1", ANN, 8, 9, 30),  # the payment is on its way: 70 or 30
        Query("c2", BOX, 8, 9, 40),
        Query("c2", BOX, 10, 11, 40),
        Query("c1", ANN, 15, 16, 30),
        Query("c1", BEN, 15, 16, 30),
    ]
    history.totals = [Total("c1", 100), Total("c2", 100)]
    return history


def test_a_right_history_passes() -> None:
    assert judge(good()) == []
    assert good().balances() == {ANN: 30, BEN: 30, BOX: 40}


def total_is_wrong(history: History) -> None:
    history.totals.append(Total("c3", 99))


def acknowledged_is_not_seen(history: History) -> None:
    history.queries[0] = Query("c1", ANN, 6, 6, 100)


def shown_before_it_was_asked(history: History) -> None:
    history.queries[0] = Query("c1", ANN, 6, 6, 30)


def executed_twice(history: History) -> None:
    history.queries[-1] = Query("c1", BEN, 15, 16, 60)


def refused_and_executed(history: History) -> None:
    history.queries[-1] = Query("c1", BEN, 15, 16, 80)


def taken_back(history: History) -> None:
    history.queries[3] = Query("c2", BOX, 10, 11, 0)  # the payment has no answer yet, but 40 were read


def done_without_money(history: History) -> None:
    history.transfers[3].is_done = True
    history.transfers[3].repeated = []


def refused_with_money(history: History) -> None:
    history.transfers[3].amount = 30


def answered_in_two_ways(history: History) -> None:
    history.transfers[1].repeated.append(False)


def not_answered(history: History) -> None:
    history.transfers[3].is_done = None


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (total_is_wrong, "total: c3 read 99, and 100 were deposited"),
        (acknowledged_is_not_seen, "balance: c1 read 100 of ann@g1, which had 70"),
        (shown_before_it_was_asked, "balance: c1 read 30 of ann@g1, which had 70"),
        (executed_twice, "balance: c1 read 60 of ben@g2, which had 30"),
        (refused_and_executed, "balance: c1 read 80 of ben@g2, which had 30"),
        (taken_back, "balance: c2 read 0 of box@g2 after 40 was read"),
        (done_without_money, "transfer: 50 from ann@g1 to ben@g2 (k3): done, and the payer had 30 at most"),
        (refused_with_money, "transfer: 30 from ann@g1 to ben@g2 (k3): refused, and the payer had 30 at least"),
        (answered_in_two_ways, "answer: 30 from ann@g1 to ben@g2 (k1): first done, and when asked again refused"),
        (not_answered, "answer: 50 from ann@g1 to ben@g2 (k3): none"),
    ],
)
def test_a_wrong_history_is_told(spoil: Callable[[History], None], line: str) -> None:
    history = good()
    spoil(history)
    assert line in judge(history)


def test_a_transfer_without_an_answer_may_have_been_made_or_not() -> None:
    history = good()
    history.transfers[2].is_done = None
    history.queries = [Query("c1", ANN, 8, 9, 70), Query("c1", ANN, 10, 11, 30)]
    assert [line for line in judge(history) if line.startswith("balance")] == []


def test_replicas_of_a_group_are_compared_with_each_other_and_with_the_answers() -> None:
    right, balances = Saved(4, {ANN: 30}, b"keys"), {ANN: 30, BEN: 70}
    others = {"g2.p0": Saved(9, {BEN: 70}, b"")}
    assert judge_replicas({"g1.p0": right, "g1.p1": right, **others}, balances) == []

    def with_second(second: Saved | None) -> list[str]:
        return judge_replicas({"g1.p0": right, "g1.p1": second, **others}, balances)

    assert with_second(None) == ["replica: g1.p1 has saved no state"]
    assert with_second(Saved(3, {ANN: 30}, b"keys")) == ["replica: g1.p1 is at position 3, g1.p0 at 4"]
    assert with_second(Saved(4, {ANN: 30}, b"")) == ["replica: g1.p1 and g1.p0 differ at position 4"]
    assert with_second(Saved(4, {ANN: 20}, b"keys")) == [
        "replica: g1.p1 and g1.p0 differ at position 4",
        "replica: g1.p1 has 20 in ann@g1, and the answers say 30",
    ]


@pytest.mark.slow
def test_no_money_is_made_or_lost_when_nodes_are_killed(tmp_path: Path) -> None:
    faults = ("kill-leader", "kill-group")
    result = asyncio.run(run(tmp_path / "c", "fastcast", 2, seed=1, groups=2, clients=6, faults=faults))
    assert result.violations == []
    assert result.problems == []
    assert result.is_good
    assert result.faults == {"kill-leader": 1, "kill-group": 1}
    assert result.on_the_way["asked again"] > 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--protocols", "fastcast,nosuch"], "nosuch"),
        (["--faults", "flood"], "there is no fault 'flood'; there are kill, "),
        (["--rounds", "0"], "'0' is no number of at least 1"),
        (["--groups", "1"], "invalid choice"),
    ],
)
def test_wrong_arguments_get_one_error(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        cli.main(arguments)
    assert error.value.code == 2
    assert problem in capsys.readouterr().err


def test_a_violation_is_shown_and_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict is the judge's, whatever else went well."""

    async def bad_run(folder: Path, protocol: str, *rest: object, **more: object) -> cli.Result:
        return cli.Result(protocol, 2, 6, 1, 1, {"kill": 1}, 5, 5, {}, 3, 3, ["total: c1 read 1, ..."], [])

    monkeypatch.setattr(cli, "run", bad_run)
    assert cli.main(["--protocols", "fastcast"]) == 1
    assert "fastcast: BAD" in (shown := capsys.readouterr().out)
    assert "  total: c1 read 1, ..." in shown
    assert cli.main(["--protocols", "fastcast", "--json"]) == 1
    (document,) = json.loads(capsys.readouterr().out)
    assert document["good"] is False
