"""What an ordering group owes to the others is kept until a majority holds it, answered for then, and bounded."""

from __future__ import annotations

from random import Random
from typing import Any

from amcast.core import AppMessage, app_message, grid
from amcast.protocols import Start, protocol
from amcast.protocols._messages import Reply
from amcast.protocols._owed import Debt, OwedMessage
from amcast.protocols.multipaxos import Held, OrderingConfig, OrderingGroup
from amcast.sim import scenario
from amcast.sim.run import Simulation

CLIENT = 6


def message(seq: int, count: int = 1, size: int = 10) -> AppMessage:
    made = app_message(CLIENT, seq, (1, 2), b"x" * size)
    return AppMessage(made.id, made.dst, made.payload, 0, count)


def debt_of(*messages: AppMessage) -> Debt:
    debt, position = Debt(), 0
    for each in messages:
        assert debt.add(OwedMessage(position, each, 1))
        position += each.count
    return debt


def test_what_a_majority_holds_is_owed_no_more() -> None:
    a, b, c = messages = message(0), message(1, count=3), message(2)
    debt = debt_of(*messages)
    assert debt.hold(4, 5, 2) == []  # one of three is no majority
    assert debt.hold(5, 3, 2) == [a]  # a batch is held when all of it is
    assert b.id in debt
    assert debt.hold(5, 2, 2) == []  # a message that is late takes nothing back
    assert debt.hold(6, 4, 2) == [b]
    assert debt.hold(5, 5, 2) == [c]
    assert not debt.owed
    assert c.id not in debt


def test_what_is_held_before_this_replica_ordered_it_is_not_owed() -> None:
    debt = Debt()
    debt.hold(4, 2, 2)
    debt.hold(5, 1, 2)
    assert not debt.add(OwedMessage(0, message(0), 1))
    assert debt.add(OwedMessage(1, message(1), 2))


def test_room_is_counted_in_messages_and_bytes_with_what_is_under_way() -> None:
    debt = debt_of(message(0))
    assert debt.has_room(2, 11)
    assert not debt.has_room(1, 11)
    assert not debt.has_room(2, 10)
    debt.count(message(1), 1)
    assert not debt.has_room(2, 100)
    debt.count(message(1), -1)
    debt.hold(4, 1, 1)
    assert debt.has_room(0, 0)  # a single message always has room


def test_clients_are_told_once_of_what_waits_for_a_whole_period() -> None:
    debt = debt_of(message(0))
    assert debt.overdue() == []
    debt.add(OwedMessage(1, message(1), 2))
    assert debt.overdue() == [message(0)]
    assert debt.overdue() == [message(1)]
    assert debt.overdue() == []


def test_debts_that_are_handed_over_lack_what_is_known_to_be_held() -> None:
    debt = Debt()
    debt.hold(4, 1, 1)
    debt.load([OwedMessage(0, message(0), 1), OwedMessage(1, message(1), 2)], [message(2)])
    assert [each.message for each in debt.owed] == [message(1)]
    assert not debt.has_room(2, 100)


class Talk:
    """A simulation in which nobody of g2 starts, and what the ordering group's leader says to a client."""

    def __init__(self, **options: Any) -> None:
        self.simulation = Simulation(scenario("multipaxos", groups=2, clients=1, messages=0, options=options))
        self.machines = self.simulation._nodes
        self.replies: list[Reply] = []
        for process in (0, 1, 2):
            self.simulation.loop.at(0, self.machines[process].start)
        self.leader = self.machines[0]
        send_all = self.leader.send_all

        def hear(to: Any, said: Any) -> None:
            self.replies += [said] if isinstance(said, Reply) else []
            send_all(to, said)

        self.leader.send_all = hear  # type: ignore[method-assign]
        self.run_us(1_000)

    def run_us(self, time_us: int) -> None:
        self.simulation.loop.at(self.simulation.loop.now + time_us, self.simulation.loop.stop)
        self.simulation.loop.run()

    def say(self, sender: int, said: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """What clients hear within ten milliseconds."""
        self.replies.clear()
        self.leader.process.on_message(sender, said, self.leader)
        self.run_us(10_000)
        return [(reply.groups, reply.ids) for reply in self.replies]


def test_a_client_is_answered_for_a_group_when_a_majority_of_it_holds_the_message() -> None:
    talk = Talk()
    sent = Start((message(0),))
    assert talk.say(CLIENT, sent) == [((1,), (message(0).id,))]
    assert talk.say(CLIENT, sent) == [((1,), (message(0).id,))]  # a retry
    assert talk.say(3, Held(1)) == []
    assert talk.say(0, Held(1)) == []  # no member of the group
    assert talk.say(4, Held(1)) == [((2,), (message(0).id,))]
    assert talk.say(CLIENT, sent) == [((1, 2), (message(0).id,))]


def test_nothing_more_is_ordered_for_a_group_that_takes_nothing() -> None:
    talk = Talk(owed_max=2)
    first, second, third = message(0), message(1), message(2)
    assert talk.say(CLIENT, Start((first, second))) == [((1,), (first.id, second.id))]
    assert talk.say(CLIENT, Start((third,))) == [((), (third.id,))]  # heard, and not taken
    local = app_message(CLIENT, 3, (1,), b"")
    assert talk.say(CLIENT, Start((local,))) == [((1,), (local.id,))]  # others go on
    talk.say(3, Held(1))
    assert talk.say(4, Held(1)) == [((2,), (first.id,))]
    assert talk.say(CLIENT, Start((third,))) == [((1,), (third.id,))]


def test_state_has_what_is_owed_whatever_the_history() -> None:
    topology, config = grid(2, 3), OrderingConfig(history_max=0)
    talk = Talk(history_max=0)
    for seq in range(3):
        talk.say(CLIENT, Start((message(seq),)))
    source: Any = talk.leader.process
    assert isinstance(source, OrderingGroup)

    made: list[tuple[int, int]] = []

    class Deliveries:
        def deliver(self, position: int, delivered: AppMessage, ts: int) -> None:
            made.append((position, delivered.seq))

        def restored(self, position: int) -> None:
            assert position == 3  # of the ordering group's own messages its history has none

    out: Any = Deliveries()
    learner = protocol("multipaxos").build(3, topology, config, Random(0))
    learner._load(source._dump_for([2]), out)  # type: ignore[attr-defined]
    assert made == [(0, 0), (1, 1), (2, 2)]
    heir: Any = OrderingGroup(1, topology, config, Random(0))
    heir._proposed = {message(0).id: message(0)}  # it led, and the state tells it what became of its proposal
    heir._load(source._dump(), out)
    assert not heir._proposed
    assert [each.message.seq for each in heir._debts[2].owed] == [0, 1, 2]
