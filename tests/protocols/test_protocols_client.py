"""A client tries again, in few messages and ever more seldom: retries must not keep a slow cluster slow."""

from __future__ import annotations

from unittest.mock import MagicMock

from amcast.core import Outbox, ProcessId, Wire, grid
from amcast.protocols import Client, ClientConfig, Reply, Start, protocol

RETRY, SEND = "client.retry", "client.send"


def test_what_is_late_is_sent_again_together_and_ever_more_seldom() -> None:
    topology = grid(2, 3, clients=1)
    client = Client(topology.clients[0], topology, protocol("fastcast").entry_groups, ClientConfig())
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
