"""The store of objects: its verbs are those that the checker knows, and mean the same."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from amcast.apps.store import VERBS, Store, meaning_of, only_reads, operation_of, result_in
from amcast.check import check_run
from amcast.core import UsageError, encode
from amcast.protocols.geopaxos import Operation
from amcast.trace import Recorder, RunInfo
from amcast.trace.operations import VERBS as JUDGED


def answer(store: Store, *steps: tuple[Any, ...]) -> Any:
    return msgspec.json.decode(store.execute(operation_of(steps)))


def test_the_checker_knows_all_verbs_by_their_kinds_and_arguments() -> None:
    assert {word: (verb.kind, len(verb.arguments)) for word, verb in VERBS.items()} == {
        word: (verb.kind, len(verb.arguments)) for word, verb in JUDGED.items()
    }


def random_steps(rng: Random) -> list[tuple[Any, ...]]:
    steps: list[tuple[Any, ...]] = []
    for _ in range(rng.randint(1, 3)):
        word = rng.choice(list(VERBS))
        name = f"{VERBS[word].kind}{rng.randrange(2)}"
        steps.append((word, name, *(rng.randrange(4) for _ in VERBS[word].arguments)))
    return steps


@pytest.mark.parametrize("seed", range(20))
def test_what_a_store_answers_is_linearizable_and_a_wrong_answer_is_not(seed: int) -> None:
    rng, store, recorder, wrong = Random(seed), Store(), Recorder(), Recorder()
    for n in range(30):
        payload = operation_of(random_steps(rng))
        meaning = meaning_of(payload)
        assert meaning is not None
        result = result_in(store.execute(payload), meaning)
        assert result is not None
        for each in (recorder, wrong):
            each.operation(1, 10 * n, 10 * n + 5, meaning.operation, meaning.arguments, result, meaning.objects)
        if n == 15:
            store.load(store.dump())
    wrong.operation(1, 1_000, 1_005, "total", "[]", "-77", ["counter0"])
    info = RunInfo(run_id="store", protocol="store", seed=0, complete=True, groups=(), correct=())
    assert check_run(recorder.run(info)).verdict == "pass"
    assert check_run(wrong.run(info)).verdict == "fail"


def test_a_step_that_makes_no_sense_undoes_the_others() -> None:
    store = Store()
    assert answer(store, ("put", "x", 1)) == [None]
    assert answer(store, ("put", "x", 2), ("add", "x", 1)) == {"error": "'x' is a register, and add is for a counter"}
    assert answer(store, ("get", "x")) == [1]
    assert answer(store, ("add", "n", (1 << 53) - 1), ("add", "n", 5)) == {
        "error": f"the sum {(1 << 53) + 4} is too large"
    }
    assert answer(store, ("total", "n")) == [0]


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ((), "1 to 1024 steps, not 0"),
        ((("pop", "x"),), "there is no 'pop'"),
        ((("put", "x"),), "takes 1 arguments after 'x', not 0"),
        ((("add", "x", "five"),), 'takes an integer below 2\\^53, not "five"'),
        ((("add", "x", True),), "takes an integer"),
        ((("get",),), "a step is a verb, an object and arguments"),
        ((("get", 5),), "a step is a verb, an object and arguments"),
    ],
)
def test_wrong_steps_are_refused_where_they_are_made(steps: tuple[tuple[Any, ...], ...], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        operation_of(steps)


@pytest.mark.parametrize("body", [b"", b"\xff", b"{}", b"[", b"[" * 100_000, b'["get"]', b'[["get","y"]]'])
def test_what_is_no_list_of_steps_is_answered_with_an_error(body: bytes) -> None:
    payload = encode(Operation(("x",), body))
    assert b"error" in Store().execute(payload)
    assert meaning_of(payload) is None
    assert not only_reads(payload)


def test_only_what_changes_nothing_is_a_read() -> None:
    assert only_reads(operation_of([("get", "x"), ("items", "l")]))
    assert not only_reads(operation_of([("get", "x"), ("put", "x", 1)]))
