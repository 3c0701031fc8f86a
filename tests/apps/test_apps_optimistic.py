"""Optimistic execution: tentative results, confirmation, roll back; the database state machine on both protocols."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amcast.apps import Application, Certifier, Confirmed, Database, Executor, RolledBack, Tentative, Transaction
from amcast.core import AppMessage, ProcessId, app_message
from amcast.sim import scenario
from amcast.sim.run import Simulation


class Journal(Application[int]):
    """The result of a message is how many were executed before it."""

    def __init__(self) -> None:
        self.executed: list[int] = []
        self.confirmed = 0

    def execute(self, message: AppMessage) -> int:
        self.executed.append(message.id)
        return len(self.executed) - 1

    def undo(self, message: AppMessage) -> None:
        assert len(self.executed) > self.confirmed, "what is confirmed stays"
        assert self.executed.pop() == message.id

    def confirm(self, message: AppMessage) -> None:
        assert self.executed[self.confirmed] == message.id
        self.confirmed += 1


A, B, C, D = (app_message(9, seq, (1,), b"") for seq in range(4))


def test_a_right_guess_is_confirmed_with_its_early_result() -> None:
    executor = Executor(Journal())
    assert executor.opt_deliver(A) == [Tentative(A.id, 0)]
    assert executor.opt_deliver(B) == [Tentative(B.id, 1)]
    assert executor.deliver(A) == [Confirmed(A.id, 0, early=True)]
    assert executor.deliver(B) == [Confirmed(B.id, 1, early=True)]
    assert (executor.rollbacks, executor.tentative) == (0, 0)


def test_a_wrong_guess_is_undone_and_executed_again_in_its_place() -> None:
    executor = Executor(Journal())
    executor.opt_deliver(A)
    executor.opt_deliver(B)
    assert executor.deliver(B) == [
        RolledBack(A.id),
        RolledBack(B.id),
        Confirmed(B.id, 0, early=False),
        Tentative(A.id, 1),
    ]
    assert executor.deliver(A) == [Confirmed(A.id, 1, early=True)]
    assert executor.rollbacks == 2


def test_a_message_that_was_never_guessed_is_executed_when_it_comes() -> None:
    executor = Executor(Journal())
    assert executor.deliver(A) == [Confirmed(A.id, 0, early=False)]
    assert executor.rollbacks == 0


def test_a_guess_that_never_comes_true_does_not_cost_a_roll_back_for_ever() -> None:
    journal = Journal()
    executor = Executor(journal)
    for message in (D, A, B, C):
        executor.opt_deliver(message)
    executor.deliver(A)  # overtakes D once: D goes last
    assert executor.deliver(B) == [Confirmed(B.id, 1, early=True)]
    assert executor.deliver(C) == [Confirmed(C.id, 2, early=True)]
    later = app_message(8, 0, (1,), b"")
    executor.opt_deliver(later)
    executor.deliver(later)  # twice: D waits for its final delivery
    assert journal.executed == [A.id, B.id, C.id, later.id]
    assert executor.tentative == 0


@given(
    guesses=st.permutations(range(6)),
    final=st.permutations(range(6)),
    missing=st.sets(st.integers(0, 5)),
    data=st.data(),
)
def test_whatever_was_guessed_the_final_order_is_what_was_executed(
    guesses: list[int], final: list[int], missing: set[int], data: st.DataObject
) -> None:
    messages = [app_message(9, seq, (1,), b"") for seq in range(6)]
    journal = Journal()
    executor = Executor(journal)
    to_guess = [seq for seq in guesses if seq not in missing]
    delivered: list[int] = []
    for seq in final:
        for _ in range(data.draw(st.integers(0, 6))):
            if to_guess:
                guess = to_guess.pop(0)
                if guess not in delivered:  # local order
                    executor.opt_deliver(messages[guess])
        confirmed = [event for event in executor.deliver(messages[seq]) if isinstance(event, Confirmed)]
        assert [(event.id, event.result) for event in confirmed] == [(messages[seq].id, len(delivered))]
        delivered.append(seq)
    assert journal.confirmed == len(final)
    assert journal.executed[: journal.confirmed] == [messages[seq].id for seq in final]


# -- the database state machine


def transaction(seq: int, reads: dict[str, int], writes: dict[str, bytes]) -> AppMessage:
    return app_message(9, seq, (1,), Transaction(reads, writes).payload())


def test_certification_aborts_what_read_an_old_version() -> None:
    database = Database()
    executor = Executor(Certifier(database))
    first = transaction(0, {"x": 0}, {"x": b"1"})
    second = transaction(1, {"x": 0}, {"x": b"2"})
    blind = transaction(2, {}, {"y": b"3"})
    outcomes = [event for message in (first, second, blind) for event in executor.deliver(message)]
    assert [getattr(event, "result", None) for event in outcomes] == ["commit", "abort", "commit"]
    assert database.items() == {"x": (1, b"1"), "y": (2, b"3")}


def test_a_tentative_commit_is_invisible_until_it_is_confirmed() -> None:
    database = Database()
    executor = Executor(Certifier(database))
    first = transaction(0, {"x": 0}, {"x": b"1"})
    rival = transaction(1, {"x": 0}, {"x": b"2"})
    assert executor.opt_deliver(first) == [Tentative(first.id, "commit")]
    assert executor.opt_deliver(rival) == [Tentative(rival.id, "abort")]
    assert database.read("x") == (0, None)
    events = executor.deliver(rival)  # the guess was wrong: the rival comes first, and wins
    assert Confirmed(rival.id, "commit", early=False) in events
    assert Tentative(first.id, "abort") in events
    assert executor.deliver(first) == [Confirmed(first.id, "abort", early=True)]
    assert database.items() == {"x": (1, b"2")}


def test_an_execution_sees_what_is_committed_and_its_own_writes() -> None:
    database = Database()
    database.write("x", 1, b"old")
    execution = database.begin()
    assert execution.read("x") == b"old"
    execution.write("x", b"new")
    assert execution.read("x") == b"new"
    assert execution.read("y") is None
    assert execution.end() == Transaction({"x": 1, "y": 0}, {"x": b"new"})


class Replica:
    def __init__(self) -> None:
        self.database = Database()
        self.executor = Executor(Certifier(self.database))
        self.outcomes: list[tuple[int, str]] = []
        self.early = 0

    def on_delivery(self, message: AppMessage, optimistic: bool) -> None:
        events = self.executor.opt_deliver(message) if optimistic else self.executor.deliver(message)
        for event in events:
            if isinstance(event, Confirmed):
                self.outcomes.append((event.id, event.result))
                self.early += event.early


def certify_in_order(messages: list[AppMessage]) -> list[tuple[int, str]]:
    """The plain rule, for comparison."""
    version: dict[str, int] = {}
    outcomes, commits = [], 0
    for message in messages:
        reads, writes = msgspec.msgpack.decode(message.payload)
        is_current = all(version.get(key, 0) == read for key, read in reads.items())
        if is_current:
            commits += 1
            version.update(dict.fromkeys(writes, commits))
        outcomes.append((message.id, "commit" if is_current else "abort"))
    return outcomes


def run_database(name: str, network: str, **settings: Any) -> tuple[dict[ProcessId, Replica], list[AppMessage]]:
    """Clients read at a replica, and multicast what they would write to all groups, several at a time."""
    made = scenario(name, network, clients=4, messages=0, seed=11, **settings)
    simulation = Simulation(made)
    topology = made.topology()
    replicas = {process: Replica() for process in topology.processes}
    final: list[AppMessage] = []

    def listen(process: ProcessId, message: AppMessage, optimistic: bool) -> None:
        replicas[process].on_delivery(message, optimistic)
        if process == topology.processes[0] and not optimistic:
            final.append(message)

    simulation.watch.listener = listen
    simulation.start()
    rng = Random(5)
    for _ in range(40):
        for client in topology.clients:
            execution = replicas[rng.choice(topology.processes)].database.begin()
            key, other = rng.choice("abcd"), rng.choice("abcd")
            execution.write(key, (execution.read(key) or b"") + bytes([rng.randrange(65, 90)]))
            execution.read(other)
            simulation.multicast(client, topology.groups, execution.end().payload())
        assert simulation.settle()
    return replicas, final


@pytest.mark.parametrize(
    ("name", "network", "settings"),
    [
        ("oam", "wan", {"groups": 2}),
        ("sequencer", "two-clusters", {"groups": 4, "fifo": False}),
        ("sequencer", "lan", {"groups": 2, "replicas": 3}),
    ],
)
def test_all_replicas_certify_alike(name: str, network: str, settings: dict[str, Any]) -> None:
    replicas, final = run_database(name, network, **settings)
    expected = certify_in_order(final)
    assert len(expected) == 160
    assert {outcome for _, outcome in expected} == {"commit", "abort"}
    databases = [replica.database.items() for replica in replicas.values()]
    assert all(database == databases[0] for database in databases)
    for replica in replicas.values():
        assert replica.outcomes == expected
        assert replica.executor.tentative == 0
    assert sum(replica.early for replica in replicas.values()) > len(replicas) * 20


def test_wrong_guesses_are_rolled_back_in_a_wide_area_network() -> None:
    replicas, _ = run_database("sequencer", "two-clusters", groups=4, fifo=False, options={"compensates": False})
    assert sum(replica.executor.rollbacks for replica in replicas.values()) > 0
