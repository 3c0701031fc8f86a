"""GeoPaxos with clients that lie: a site may have ordered what another one refuses, and must not wait for it for ever.

Two sites with an object each, X and Y. An operation of the liar on both is ordered by g1, while g2 counts it as
settled, since the liar says so there in an operation on Y alone. Whatever others do with X and Y waits behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from amcast.core import Latency, MessageId, ProcessId, app_message, encode, message_id
from amcast.protocols.geopaxos import GeoPaxos, Operation, track
from amcast.protocols.geopaxos.messages import Attempt, Order, Request, SiteState
from amcast.protocols.geopaxos.spec import objects_at
from amcast.protocols.geopaxos.track import Admitted
from amcast.sim import Simulation, scenario

SITES = (1, 2)
X, Y = (objects_at(site, 1, SITES)[0] for site in SITES)
MS = 1_000


class Stand:
    """A simulated cluster of two sites, where every message takes 2 ms; an honest client, and a liar."""

    def __init__(self) -> None:
        made = scenario("geopaxos", groups=2, clients=2, messages=0, resend_us=10 * MS, seed=1)
        made = replace(made, network=Latency("slow", 2 * MS))
        self.simulation = Simulation(made)
        self.topology = made.topology()
        self.delay_us = made.network.default_us
        self.honest, self.liar = self.topology.clients
        self.simulation.start()
        self.simulation.settle()

    def replica(self, process: ProcessId) -> GeoPaxos:
        replica = self.simulation.process(process)
        assert isinstance(replica, GeoPaxos)
        return replica

    def leader(self, site: int) -> ProcessId:
        return next(process for process in self.topology.members(site) if self.replica(process).is_leader)

    def lie(self, seq: int, *objects: str, to: ProcessId, settled: int = 0) -> None:
        message = app_message(self.liar, seq, SITES, encode(Operation(objects)), settled)
        self.simulation._nodes[self.liar].send(to, Request(message))

    def later(self, after_us: int, action: Callable[[], None]) -> None:
        self.simulation.loop.at(self.simulation.loop.now + after_us, action)

    def pass_time(self, time_us: int) -> None:
        self.simulation.loop.run(self.simulation.loop.now + time_us)

    def call(self, *objects: str) -> MessageId:
        """An operation of the honest client."""
        return self.simulation.multicast(self.honest, SITES, encode(Operation(objects)))

    def is_executed(self, message: MessageId) -> bool:
        return all(message in self.simulation.watch.delivered(process) for process in self.topology.processes)

    def pending(self, site: int) -> list[int]:
        """The numbers of the liar's operations for which a site waits."""
        leader = self.replica(self.leader(site))
        return [attempt.id & 0xFF for attempt in leader._own.pending if attempt.id >> 26 == self.liar]


def test_a_leader_that_takes_over_a_state_does_not_wait_for_its_proposals() -> None:
    """g2's leader proposes the liar's operation behind the one that settles it, so the log refuses it. The leader does
    not see that: it takes over the state of a follower that is a little ahead. When g1 asks for the operation, the
    leader must not believe that its proposal is still on its way."""
    stand = Stand()
    leader, ahead = stand.leader(2), stand.topology.members(2)[-1]
    stand.lie(10, Y, to=leader, settled=10)
    stand.lie(3, X, Y, to=leader)

    def hand_state() -> None:
        before, state = stand.replica(leader)._own.position, stand.replica(ahead)._dump()
        node = stand.simulation._nodes[leader]
        node.process.on_message(ahead, SiteState(state), node)
        assert stand.replica(leader)._own.position > before, "the follower decided what the leader does not know yet"

    stand.later(stand.delay_us * 5 // 2, hand_state)
    stand.pass_time(20 * MS)
    assert stand.pending(1) == [3], "g1 has ordered the liar's operation, and waits for g2"
    wanted = stand.call(X, Y)
    assert stand.simulation.settle(), "the honest client's operation waits for ever"
    assert stand.is_executed(wanted)


def test_an_operation_that_is_settled_at_one_site_is_not_tried_again_and_again() -> None:
    """g2 takes the content of the operation no more, so every attempt is void, and holds g1 up for a while."""
    stand = Stand()
    asked, leader = stand.topology.members(2)[-1], stand.leader(2)
    stand.lie(10, Y, to=leader, settled=10)
    stand.lie(3, X, Y, to=asked)
    stand.pass_time(200 * MS)
    assert stand.pending(1) == []
    positions = {site: stand.replica(stand.leader(site))._own.position for site in SITES}
    stand.pass_time(2_000 * MS)
    assert positions == {site: stand.replica(stand.leader(site))._own.position for site in SITES}


def test_a_client_that_settles_all_the_time_does_not_hold_up_a_site() -> None:
    """g1 asks for the operation, and by then the log of g2 has forgotten more, as often as it asks."""
    stand = Stand()
    leader = stand.leader(2)
    stand.lie(10, Y, to=leader, settled=10)
    stand.pass_time(20 * MS)
    stand.replica(stand.leader(1))._propose_order(
        Order(Attempt(message_id(stand.liar, 3), 0, SITES), 0, None), stand.simulation._nodes[stand.leader(1)]
    )
    seqs = iter(range(11, 1_000))

    def settle_more() -> None:
        seq = next(seqs)
        stand.lie(seq, Y, to=leader, settled=seq)
        stand.later(stand.delay_us, settle_more)

    settle_more()
    wanted = stand.call(X, Y)
    stand.pass_time(300 * MS)
    assert stand.is_executed(wanted)


# -- what a log remembers of a sender


def order(seq: int, settled: int = 0, number: int = 0, followed: int = -1) -> Order:
    return Order(Attempt(message_id(9, seq), number, SITES), settled, None, followed)


@pytest.mark.parametrize("seed", range(5))
def test_a_log_takes_no_attempt_twice_whatever_its_sender_calls_settled(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track, "STANDS", 8)
    rng, admitted = Random(seed), Admitted()
    taken: dict[Attempt, int] = {}
    late = 0
    for instance in range(2_000):
        seq = max(0, instance // 4 - rng.choice((0, 0, 1, 5, 50)))
        followed = rng.choice((-1, max(0, instance - rng.randrange(30))))
        made = order(seq, rng.choice((0, seq)), rng.randrange(2), followed)
        if taken.get(made.attempt, instance) < followed:
            continue  # whoever has followed so far has seen it, and does not ask
        late += admitted.is_settled(made.attempt.id) and admitted.is_new(made)
        if admitted.admit(made, instance):
            assert made.attempt not in taken
            taken[made.attempt] = instance
    assert late > 20
    assert len(admitted.senders[9].attempts) < 100, "it forgets"


@pytest.mark.parametrize("behind", [1, 6])
def test_a_site_that_is_always_behind_gets_what_it_asks_for(behind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender settles more with every instance."""
    monkeypatch.setattr(track, "STANDS", 8)
    admitted, asked, taken = Admitted(), range(5, 500, 5), set[int]()
    for instance in range(600):
        assert admitted.admit(order(instance, settled=instance), instance)
        wanted = [seq for seq in asked if seq < instance - 3 and seq not in taken]
        taken |= {seq for seq in wanted if admitted.admit(order(seq, 0, 1, instance - behind), instance)}
    assert taken == set(asked)
