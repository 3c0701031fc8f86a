"""Fair shares: who has much open has less room while others wait, and who is alone has all of it."""

from __future__ import annotations

from amcast.net.config import ClientLimits
from amcast.net.node._accounts import Account, Accounts
from amcast.net.node._fairness import Fairness

LIMITS = ClientLimits(open_messages=10_000, open_bytes=64 << 20)
STEP_S = 0.06


class Stand:
    """A node, the clients that send to it, and how long it takes for a message of each. None: for ever."""

    def __init__(self, clients_min: int = 2) -> None:
        self.fairness = Fairness(clients_min)
        self.now_s = 1.0
        self._probes = 0

    def run(self, seconds: float, delays: dict[Account, float | None]) -> None:
        ends_s = self.now_s + seconds
        while self.now_s < ends_s:
            self.now_s += STEP_S
            for account, delay in delays.items():
                if account.probe is not None and delay is not None and self.now_s - account.probe_s >= delay:
                    self.fairness.ended(account, account.probe_s + delay)
                self._probes += 1
                self.fairness.admitted(account, self._probes, self.now_s)
            self.fairness.update(self.now_s)


def test_a_greedy_client_has_less_room_while_others_wait() -> None:
    stand, greedy, other = Stand(), Account("greedy", LIMITS), Account("other", LIMITS)
    stand.run(1.0, {other: 0.005})
    assert stand.fairness.share == 1.0
    greedy.open_messages, other.open_messages = 5_000, 12
    stand.run(2.0, {other: 0.5, greedy: 0.6})
    assert stand.fairness.lacks_room(greedy, 1, 10)
    assert not stand.fairness.lacks_room(other, 1, 10)
    greedy.open_messages = 10
    assert stand.fairness.lacks_room(greedy, 1, 1 << 20), "bytes count as well"
    assert not stand.fairness.lacks_room(greedy, 1, 1_000), "some room is left for everybody"


def test_room_comes_back_when_nobody_waits_any_more() -> None:
    stand, greedy, other = Stand(), Account("greedy", LIMITS), Account("other", LIMITS)
    stand.run(1.0, {other: 0.005})
    stand.run(2.0, {other: 0.5, greedy: 0.6})
    assert stand.fairness.share < 0.01
    stand.run(20.0, {other: 0.005, greedy: 0.006})
    assert stand.fairness.share == 1.0


def test_a_client_that_is_alone_is_not_limited_unless_others_do_it_a_favour() -> None:
    for clients_min, is_limited in ((2, False), (1, True)):
        stand, alone = Stand(clients_min), Account("alone", LIMITS)
        stand.run(0.5, {alone: 0.005})
        stand.run(5.0, {alone: 2.0})
        assert (stand.fairness.share < 1.0) is is_limited


def test_a_client_that_hears_only_busy_still_counts() -> None:
    """It has messages open: were it forgotten, the others would have all the room again, and then it."""
    stand, greedy, other = Stand(), Account("greedy", LIMITS), Account("other", LIMITS)
    stand.run(1.0, {other: 0.005})
    greedy.open_messages = 5_000
    stand.run(1.0, {other: 0.5, greedy: 0.6})
    stand.run(3.0, {other: 0.5})
    assert stand.fairness.lacks_room(greedy, 1, 10)


def test_a_message_that_is_never_delivered_slows_nobody_down() -> None:
    stand, liar, other = Stand(), Account("liar", LIMITS), Account("other", LIMITS)
    stand.run(1.0, {other: 0.005})
    other.open_messages = 2_000
    stand.run(20.0, {other: 0.005, liar: None})
    assert not stand.fairness.lacks_room(other, 1, 10)


def test_a_far_network_is_not_a_queue() -> None:
    stand, one, other = Stand(), Account("one", LIMITS), Account("other", LIMITS)
    stand.run(30.0, {one: 0.3, other: 0.32})
    assert stand.fairness.share == 1.0


def test_pauses_grow_while_a_client_does_not_learn() -> None:
    account = Account("greedy", LIMITS)
    pauses = [account.pause(now_us, True) for now_us in range(0, 5_000_000, 500_000)]
    assert pauses[:4] == [10_000, 20_000, 40_000, 80_000]
    assert pauses[-1] == 640_000
    assert account.pause(60_000_000, True) == 10_000, "it has learned meanwhile"
    assert account.pause(60_000_001, False) == 10_000, "nobody else waits"


def test_buffers_for_large_frames_have_a_budget() -> None:
    accounts = Accounts()
    one, other = accounts.open("one", LIMITS), accounts.open("other", LIMITS)
    assert all(accounts.hold(one, 0, 8 << 20) for _ in range(4))
    assert not accounts.hold(one, 0, 8 << 20), "its own half"
    assert all(accounts.hold(other, 0, 8 << 20) for _ in range(4))
    assert not accounts.hold(accounts.open("third", LIMITS), 0, 1 << 20), "all of it"
    assert accounts.hold(one, 8 << 20, 0)
    assert accounts.hold(one, 0, 8 << 20)
