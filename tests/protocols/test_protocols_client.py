"""A client tries again, in few messages and ever more seldom: retries must not keep a slow cluster slow."""

from __future__ import annotations

from unittest.mock import MagicMock

import msgspec
import pytest

from amcast.core import AppMessage, MessageId, Outbox, ProcessId, UsageError, Wire, grid, message_id, seq_of, unpack
from amcast.core.ids import UNSETTLED_MAX
from amcast.protocols import Client, ClientConfig, Reply, Start, _client, problem_with_number, protocol

RETRY, SEND = "client.retry", "client.send"


def test_what_is_late_is_sent_again_together_and_ever_more_seldom() -> None:
    topology = grid(2, 3, clients=1)
    client = Client(topology.clients[0], topology, protocol("fastcast").ingress_groups, ClientConfig())
    out = MagicMock(spec=Outbox)
    for _ in range(100):
        client.on_multicast(client.new_message((1, 2), b"x"), out)
    first = client.new_message((1,), b"x")
    client.on_multicast(first, out)
    client.on_timer(SEND, out)
    client.on_reply(0, Reply((1,), (first.id,)))

    copies: list[int] = []
    for _ in range(16):
        out.send_all.reset_mock()
        client.on_timer(RETRY, out)
        sent: list[tuple[tuple[ProcessId, ...], Wire]] = [call.args for call in out.send_all.call_args_list]
        copies.append(len(sent))
        for to, start in sent:
            assert to in (topology.members(1), topology.members(2))
            assert isinstance(start, Start)
            assert len(start.messages) == 100
    assert [tick for tick, count in enumerate(copies, 1) if count] == [2, 3, 4, 8, 16]
    assert set(copies) == {0, 2}


def test_what_a_broken_connection_may_have_lost_is_sent_again_at_once() -> None:
    topology = grid(2, 3, clients=1)
    client = Client(topology.clients[0], topology, protocol("fastcast").ingress_groups, ClientConfig())
    out = MagicMock(spec=Outbox)
    both, done, other = (client.new_message(dst, b"x") for dst in ((1, 2), (1,), (2,)))
    client.on_multicast_all([both, done, other], out)
    client.on_timer(SEND, out)
    leader, follower = topology.members(1)[1], topology.members(1)[0]
    client.on_reply(leader, Reply((1,), (done.id,)))
    out.reset_mock()
    client.on_reconnected(follower, out)
    client.on_reconnected(topology.clients[0], out)
    out.send.assert_not_called()
    client.on_reconnected(leader, out)
    out.send.assert_called_once_with(leader, Start((both,)))


def test_a_client_that_waits_for_nothing_says_nothing_when_it_comes_back() -> None:
    """Where clients send no START, an empty one is refused as well, and the connection closed again."""
    topology = grid(2, 3, clients=1)
    client = Client(topology.clients[0], topology, protocol("fastcast").ingress_groups, ClientConfig())
    out = MagicMock(spec=Outbox)
    client.on_reconnected(client.leader_of(1), out)
    out.send.assert_not_called()


def sent_starts(out: MagicMock) -> list[Start]:
    return [call.args[1] for call in out.send.call_args_list]


def test_messages_to_the_same_groups_are_sent_as_one() -> None:
    topology = grid(2, 3, clients=1)
    me = topology.clients[0]
    client = Client(me, topology, protocol("fastcast").ingress_groups, ClientConfig(batch=3))
    out = MagicMock(spec=Outbox)
    wanted: list[tuple[tuple[int, ...], bytes]] = [((1,) if i % 2 else (2,), b"%d" % i) for i in range(10)]
    messages = client.new_messages(wanted)
    client.on_multicast_all(messages, out)
    client.on_timer(SEND, out)
    batches = [batch for start in sent_starts(out) for batch in start.messages]
    assert sorted(batch.count for batch in batches) == [2, 2, 3, 3]
    assert sorted(each.id for batch in batches for each in unpack(batch)) == [message.id for message in messages]

    # A batch is done as a whole, and the mark never passes one that is not.
    late = next(batch for batch in batches if seq_of(batch.id) == 1)
    rest = [batch for batch in batches if batch is not late]
    done = client.on_reply(0, Reply((1, 2), tuple(batch.id for batch in rest)))
    assert (len(done), client.outstanding) == (7, 3)
    assert client.new_message((1,), b"").settled == 1
    assert [each.id for each in client.sent_with(late.id)] == [each.id for each in unpack(late)]
    assert len(client.on_reply(0, Reply((1,), (late.id,)))) == 3
    assert client.outstanding == 0


def test_what_waits_to_be_sent_is_not_settled() -> None:
    topology = grid(1, 3, clients=1)
    client = Client(topology.clients[0], topology, protocol("fastcast").ingress_groups, ClientConfig(batch=256))
    out = MagicMock(spec=Outbox)
    client.on_multicast_all(client.new_messages([((1,), b"")] * 2_500), out)
    sizes: list[int] = []
    for sent in (1_024, 2_048, 2_500):
        out.send.reset_mock()
        client.on_timer(SEND, out)
        batches = [batch for start in sent_starts(out) for batch in start.messages]
        sizes.append(sum(batch.count for batch in batches))
        client.on_reply(0, Reply((1,), tuple(batch.id for batch in batches)))
        assert client._settled == sent
    assert sizes == [1_024, 1_024, 452]
    assert client.outstanding == 0


# -- another sender id when the sequence numbers of one run out

ONE, TWO = 1 << 30, 1 << 25  # the newer one may be the smaller one


class Changing:
    """A client whose ids have few numbers, and the driver's side of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "fastcast", batch: int = 3) -> None:
        monkeypatch.setattr(_client, "ID_MESSAGES", 8)
        self.topology = grid(2, 3, clients=1)
        self.out = MagicMock(spec=Outbox)
        self.out.now_us = 5
        self.asked = 0
        self.given_up: list[ProcessId] = []
        spec = protocol(name)
        make_ingress = spec.ingress_maker(self.topology, spec.config())
        config = ClientConfig(batch=batch)
        self.client = Client(ONE, self.topology, spec.ingress_groups, config, make_ingress)
        self.client.ask_for_id = self._ask
        self.client.give_up_id = self.given_up.append

    def _ask(self) -> None:
        self.asked += 1

    def send(self, count: int = 1) -> list[AppMessage]:
        messages = self.client.new_messages([((1, 2), b"")] * count)
        self.client.on_multicast_all(messages, self.out)
        return messages

    def answer(self, *ids: MessageId) -> None:
        for leader, group in ((0, 1), (3, 2)):
            self.client.on_reply(leader, Reply((group,), ids))


def test_a_client_asks_for_another_id_in_time_and_changes_when_nothing_is_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changing = Changing(monkeypatch, batch=1)
    first = changing.send(6)
    assert changing.asked == 0
    changing.client.on_timer(SEND, changing.out)
    seventh = changing.send()[0]
    assert changing.asked == 1
    changing.client.take_id(TWO)
    changing.client.on_timer(SEND, changing.out)
    changing.answer(*[message.id for message in first])
    eighth = changing.send()[0]
    assert eighth.id == message_id(ONE, 7), "the seventh is in flight"
    changing.client.on_timer(SEND, changing.out)
    changing.answer(seventh.id, eighth.id)
    assert changing.given_up == []
    ninth = changing.send()[0]
    assert (ninth.id, ninth.settled) == (message_id(TWO, 0), 0)
    assert changing.given_up == [ONE]


def test_a_client_that_always_has_some_in_flight_changes_when_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    changing = Changing(monkeypatch)
    old = changing.send(7)
    changing.client.take_id(TWO)
    new = changing.send(5)  # in the same turn
    assert [message.id for message in new] == [message_id(TWO, seq) for seq in range(5)]
    changing.client.on_timer(SEND, changing.out)
    batches = [batch for start in sent_starts(changing.out)[:1] for batch in start.messages]
    assert [batch.id for batch in batches] == [
        message_id(sender, seq) for sender, seq in ((ONE, 0), (ONE, 3), (ONE, 6), (TWO, 0), (TWO, 3))
    ]
    assert [each.id for batch in batches for each in unpack(batch)] == [message.id for message in old + new]

    changing.answer(message_id(TWO, 0), message_id(ONE, 3))
    assert changing.client.new_message((1, 2), b"").settled == 0, "nothing is promised while old ones are in flight"
    assert changing.given_up == []
    changing.answer(message_id(ONE, 0))
    assert changing.given_up == []
    changing.answer(message_id(ONE, 6))
    assert changing.given_up == [ONE]
    assert changing.client.outstanding == 2
    assert changing.client.new_message((1, 2), b"").settled == 3


def test_without_another_id_there_are_no_new_messages_and_old_ones_are_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changing = Changing(monkeypatch, batch=1)
    old = changing.send(8)
    changing.client.on_timer(SEND, changing.out)
    changing.client.no_id = "all are down"
    with pytest.raises(UsageError, match="used up the 8 numbers of its id, and got no other id: all are down"):
        changing.send()
    changing.client.on_timer(RETRY, changing.out)
    changing.client.on_timer(RETRY, changing.out)
    again = [call.args[1] for call in changing.out.send_all.call_args_list]
    assert {message.id for start in again for message in start.messages} == {message.id for message in old}
    changing.client.take_id(TWO)
    assert changing.send()[0].sender == TWO


@pytest.mark.parametrize("name", ["oam", "oam-baseline"])
def test_messages_of_an_old_id_are_sent_again_the_way_they_entered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two ids have different source groups."""
    changing = Changing(monkeypatch, name)
    old = changing.send(8)
    changing.client.take_id(TWO + 1)
    changing.send()
    changing.answer(*[message.id for message in old[1:]])
    changing.client.on_reply(0, Reply((1,), (old[0].id,)))
    changing.client.on_timer(RETRY, changing.out)
    changing.out.send_all.reset_mock()
    changing.client.on_timer(RETRY, changing.out)
    again = [call.args for call in changing.out.send_all.call_args_list if old[0].id in call.args[1].about()]
    receivers = {tuple(to) for to, _ in again}
    assert receivers == {changing.topology.members(1), changing.topology.members(2)}  # its source, and who is silent


def test_a_client_with_too_many_messages_without_an_answer_goes_on_under_another_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changing = Changing(monkeypatch, batch=1)
    changing.client._ahead_limit, changing.client._ask_ahead = 4, 3
    first = changing.send(3)
    changing.client.on_timer(SEND, changing.out)
    changing.answer(first[0].id)
    changing.send(2)
    assert changing.asked == 1, "the fifth is four ahead of the second, which has no answer"
    changing.client.no_id = "all are down"
    with pytest.raises(UsageError, match="has 4 messages without an answer, and got no other id: all are down"):
        changing.client.new_message((1, 2), b"")
    changing.client.take_id(TWO)
    assert changing.send()[0].id == message_id(TWO, 0)


def test_groups_take_what_an_honest_client_sends_at_most() -> None:
    assert problem_with_number(AppMessage(message_id(ONE, UNSETTLED_MAX - 1), (1,), b"", 0)) is None
    ahead = AppMessage(message_id(ONE, UNSETTLED_MAX), (1,), b"", 0)
    assert "too far ahead" in str(problem_with_number(ahead))
    assert problem_with_number(msgspec.structs.replace(ahead, settled=1)) is None
