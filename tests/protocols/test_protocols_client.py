"""A client tries again, in few messages and ever more seldom: retries must not keep a slow cluster slow."""

from __future__ import annotations

from unittest.mock import MagicMock

from amcast.core import Outbox, ProcessId, Wire, grid, seq_of, unpack
from amcast.protocols import Client, ClientConfig, Reply, Start, protocol

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
