"""How many messages of clients a node takes before it says BUSY, and what makes room again."""

from __future__ import annotations

import pytest

from amcast.core import AppMessage, message_id, pack
from amcast.core.batch import count_messages
from amcast.core.ids import SEQ_BITS
from amcast.net.config import ClientLimits, Limits
from amcast.net.node._accounts import Account
from amcast.net.node._admission import Admission
from amcast.net.node._clients import Clients
from amcast.net.system import system
from amcast.protocols import Reply

ANN, BOB = 7, 8


def message(client: int, seq: int, size: int = 10) -> AppMessage:
    return AppMessage(message_id(client, seq), (1,), bytes(size))


def admit(admission: Admission, *messages: AppMessage, is_leader: bool = True) -> list[int]:
    account = admission._open[messages[0].id >> SEQ_BITS][0]
    size = sum(len(each.payload) for each in messages)
    return admission.admit(messages, count_messages(messages), size, account, is_leader)


@pytest.fixture
def admission() -> Admission:
    made = Admission(Limits(open_messages=3, open_bytes=100))
    for client in (ANN, BOB):
        made.enter(client, Account("anyone", ClientLimits()))
    return made


def test_what_exceeds_the_limit_is_turned_away_until_a_reply_makes_room(admission: Admission) -> None:
    many = [message(ANN, seq) for seq in range(5)]
    assert admit(admission, *many) == [many[3].id, many[4].id]
    assert (admission.open_messages, admission.open_bytes, admission.turned_away) == (3, 30, 2)
    admission.close(ANN, [many[0].id, many[2].id])
    assert (admission.open_messages, admission.open_bytes) == (1, 10)
    assert admit(admission, many[3], many[4]) == []
    assert (admission.open_messages, admission.turned_away) == (3, 2)


def test_bytes_have_a_limit_of_their_own(admission: Admission) -> None:
    large, larger, small = message(ANN, 0, 60), message(ANN, 1, 50), message(ANN, 2, 40)
    assert admit(admission, large, larger, small) == [larger.id]
    assert (admission.open_messages, admission.open_bytes) == (2, 100)


def test_a_message_above_the_limit_is_taken_when_nothing_else_is_open(admission: Admission) -> None:
    """Otherwise it would be turned away for ever, though the cluster takes messages of this size."""
    small, huge = message(ANN, 0), message(ANN, 1, 500)
    assert admit(admission, small, huge) == [huge.id]
    admission.close(ANN, [small.id])
    assert admit(admission, huge) == []
    assert admit(admission, message(BOB, 0)) == [message(BOB, 0).id]


def test_a_message_that_is_sent_again_counts_once(admission: Admission) -> None:
    many = [message(ANN, seq) for seq in range(3)]
    assert admit(admission, *many) == []
    assert admit(admission, *many) == []
    assert (admission.open_messages, admission.open_bytes) == (3, 30)
    admission.close(ANN, [many[0].id])
    admission.close(ANN, [many[0].id])  # a reply may come again as well
    assert (admission.open_messages, admission.open_bytes) == (2, 20)


def test_a_batch_counts_as_its_messages_and_is_taken_whole(admission: Admission) -> None:
    batch = pack([message(ANN, seq, 1) for seq in range(5)])
    assert admit(admission, batch) == [], "were it refused above the limit, it could never be sent"
    assert admission.open_messages == 5
    assert admit(admission, message(BOB, 0)) == [message(BOB, 0).id]
    admission.close(ANN, [batch.id])
    assert (admission.open_messages, admission.open_bytes) == (0, 0)


def test_what_a_client_had_open_when_it_left_counts_until_it_is_delivered(admission: Admission) -> None:
    """Otherwise it would send, leave, come again and send, and the leader would hold all of it."""
    admit(admission, message(ANN, 0), message(ANN, 1), message(BOB, 0))
    account = admission._open[ANN][0]
    admission.leave(ANN)
    assert (admission.open_messages, admission.open_bytes) == (1, 10), "nobody waits for a reply to the others"
    assert admit(admission, message(BOB, 1)) == [message(BOB, 1).id]
    admission.enter(ANN, account)
    assert admit(admission, message(ANN, 0)) == [], "the client has come back, and sends it again"
    assert (admission.open_messages, account.open_messages) == (2, 2)
    admission.on_delivered([(message(ANN, 1), 5)])
    assert admit(admission, message(BOB, 1)) == []
    admission.close(ANN, [message(ANN, 0).id])
    assert (account.open_messages, account.open_bytes) == (0, 0)


def test_what_a_client_sent_before_it_left_counts_when_it_arrives_later(admission: Admission) -> None:
    account = admission._open[ANN][0]
    admission.leave(ANN)
    many = [message(ANN, seq) for seq in range(5)]
    assert admission.admit(many, 5, 50, account, True) == [many[3].id, many[4].id]
    assert (admission.open_messages, account.open_messages) == (0, 3)


def test_what_was_left_and_is_never_delivered_counts_for_some_seconds(
    admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(system(), "monotonic_s", lambda: now_s)
    admit(admission, *[message(ANN, seq) for seq in range(3)])
    admission.leave(ANN)
    assert admit(admission, message(BOB, 0)) == [message(BOB, 0).id]
    now_s = 10.0
    assert admit(admission, message(BOB, 0)) == []


def test_a_greedy_client_hears_busy_and_others_do_not() -> None:
    admission = Admission(Limits(open_messages=100, open_bytes=1_000))
    own = ClientLimits(open_messages=3, open_bytes=100)
    greedy, other = Account("greedy", own), Account("other", own)
    for client, account in ((ANN, greedy), (ANN + 100, greedy), (BOB, other)):
        admission.enter(client, account)
    assert admit(admission, *[message(ANN, seq, 1) for seq in range(3)]) == []
    again = message(ANN + 100, 0, 1)
    assert admit(admission, again) == [again.id], "another session is the same client"
    assert admit(admission, message(BOB, 0, 60)) == []
    large = message(BOB, 1, 60)
    assert admit(admission, large) == [large.id]
    admission.close(ANN, [message(ANN, 0).id])
    assert admit(admission, again) == []
    for client in (ANN, ANN + 100, BOB):
        admission.leave(client)
    admission.on_delivered([(message(client, seq), 5) for client in (ANN, ANN + 100, BOB) for seq in range(3)])
    assert (greedy.open_messages, greedy.open_bytes, other.open_messages, other.open_bytes) == (0, 0, 0, 0)


def test_what_is_passed_on_has_a_limit_until_it_is_delivered_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """STARTs at members that do not lead: these pass them on, and nobody else would say BUSY."""
    now_s = 0.0
    monkeypatch.setattr(system(), "monotonic_s", lambda: now_s)
    admission = Admission(Limits(forwarded_messages=3, forwarded_bytes=100))
    admission.enter(ANN, account := Account("ann", ClientLimits()))
    many = [message(ANN, seq) for seq in range(5)]
    assert admit(admission, *many, is_leader=False) == [many[3].id, many[4].id]
    assert admit(admission, *many[:3], is_leader=False) == [], "they are sent again"
    assert (admission.turned_away, admission.open_messages, admission.forwarded.bytes) == (2, 0, 30)
    admission.on_delivered([(many[1], 5), (message(BOB, 0), 6)])
    assert admit(admission, *many[3:], is_leader=False) == [many[4].id]
    now_s = 10.0
    assert admit(admission, many[4], is_leader=False) == [], "those before were for other groups, or are lost"
    assert (admission.forwarded.bytes, account.open_bytes, account.open_messages) == (10, 10, 1)


def test_one_that_no_longer_leads_has_nothing_open(admission: Admission) -> None:
    admit(admission, message(ANN, 0), message(BOB, 0))
    admission.clear()
    assert (admission.open_messages, admission.open_bytes) == (0, 0)
    admission.close(ANN, [message(ANN, 0).id])
    assert (admission.open_messages, admission.open_bytes) == (0, 0)


class Line:
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.account = Account("anyone", ClientLimits())
        self.frames: list[bytes] = []
        self.is_closed = False

    def reply(self, reply: Reply) -> bool:
        raise AssertionError("nothing is replied here")

    def send_replies(self) -> None: ...

    def send_frame(self, data: bytes) -> None:
        self.frames.append(data)

    def close(self) -> None:
        self.is_closed = True


def test_a_client_that_comes_on_another_connection_leaves_the_first() -> None:
    clients, first, second = Clients(Limits(clients=2)), Line(), Line()
    clients.attach(ANN, first)
    admit(clients.admission, message(ANN, 0))
    clients.attach(ANN, first)
    assert clients.admission.open_messages == 1, "the same connection: nothing has changed"
    clients.attach(ANN, second)
    assert (first.is_closed, second.is_closed) == (True, False)
    assert clients.admission.open_messages == 0
    admit(clients.admission, message(ANN, 1))
    clients.detach(ANN, first)  # its end comes later
    assert clients.channels == {ANN: second}
    assert clients.admission.open_messages == 1
    clients.detach(ANN, second)
    assert (clients.channels, clients.admission.open_messages) == ({}, 0)


def test_replies_wait_for_a_client_that_is_still_connecting() -> None:
    clients, line = Clients(Limits()), Line()
    for number in range(100):
        clients.send(ANN, b"%d" % number)
    clients.attach(ANN, line)
    assert line.frames == [b"%d" % number for number in range(64)]
    clients.send(ANN, b"direct")
    assert line.frames[64:] == [b"direct"]
    other = Line()
    for client in range(1_000, 2_001):
        clients.send(client, b"x")
    clients.attach(1_000, other)
    assert other.frames == [], "too many clients never came: the first one is forgotten"
