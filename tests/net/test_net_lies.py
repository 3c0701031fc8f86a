"""What a client says against the rules ends its own connection, with the rule as the reason, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from amcast.core import AppMessage, ProcessId, Topology, Wire, encode, grid, message_id
from amcast.core.ids import UNSETTLED_MAX
from amcast.net.client.async_client import connect
from amcast.net.config import ClientLimits
from amcast.net.node._accounts import Account
from amcast.net.node._client_service import ClientService
from amcast.net.security.access import Rights
from amcast.net.wire.control import VERSION, Detach, Hello
from amcast.protocols import Start, protocol
from amcast.protocols.optimistic.messages import BarrierRequest, FrMcast
from amcast.protocols.sequencer import Data

from .clusters import run, running
from .test_net_frames import Caller, client_hello, framed, welcome


def message(client: ProcessId, seq: int = 0, dst: tuple[int, ...] = (1, 2), settled: int = 0) -> AppMessage:
    return AppMessage(message_id(client, seq), dst, b"", settled)


def home(client: ProcessId) -> int:
    return 1 + client % 2  # of two groups


LIES: list[tuple[str, Any, str]] = [
    ("fastcast", lambda c: Start((message(c, UNSETTLED_MAX),)), "too far ahead"),
    ("fastcast", lambda c: Start((message(c, dst=(1, 9)),)), "there is no group g9 to send to"),
    ("oam", lambda c: Start((message(c),)), "no client sends START in oam"),
    ("oam", lambda c: BarrierRequest(message(c).id, 1 << 62, home(c)), "not the time of a clock"),
    ("oam", lambda c: FrMcast(message(c), home(c), -(1 << 62), ()), "not the time of a clock"),
    ("oam", lambda c: FrMcast(message(c), 3 - home(c), 5, ()), "the messages of client"),
    ("oam", lambda c: FrMcast(message(c), home(c), 5, (7,)), "barriers were asked of groups that are none"),
    ("oam", lambda c: FrMcast(message(c, UNSETTLED_MAX), home(c), 5, ()), "too far ahead"),
    ("sequencer", lambda c: Data(message(c), 1 << 40), "asks for no delay"),
]


@pytest.mark.parametrize("name", ["fastcast", "oam", "sequencer"])
def test_a_lie_ends_the_connection_of_the_liar_alone(name: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", name, groups=2, replicas=1) as cluster, connect(cluster.config) as honest:
            for made, says in [(made, says) for protocol, made, says in LIES if protocol == name]:
                async with Caller.dial(cluster, "g1.p0") as caller:
                    liar = await welcome(caller, client_hello())
                    caller.say(framed(made(liar.client)))
                    assert says in await caller.reason()
            await honest.multicast(["g1", "g2"], b"true")

    run(test)


class Service:
    """A client's connection to a node of a protocol, without a network."""

    def __init__(self, name: str, rights: Rights) -> None:
        server, self.connection, spec = MagicMock(), MagicMock(), protocol(name)
        self.topology: Topology = grid(2, 3)
        node = self.node = server.node
        node.topology, node.client_messages, node.has_batches = self.topology, spec.client_messages, spec.takes_batches
        node.spec, node.checks_entries = spec, spec.numbers_by_entry
        server.config.limits.message_bytes = 1_000
        node.admission.admit.return_value = node.admission.admit_ingress.return_value = []
        self.service = ClientService(
            server, self.connection, Hello(VERSION, "c", "client", "x"), rights, Account("x", ClientLimits())
        )
        self.service.sessions.add(100)
        self.decode = server.requests.decode

    def refuses(self, wire: Wire) -> str | None:
        self.decode.return_value = wire
        self.service.on_frame(memoryview(encode(wire)))
        if self.connection.refuse.called:
            assert not self.node.take.called
            return str(self.connection.refuse.call_args.args[0])
        assert self.node.take.called
        return None


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("fastcast", Start((message(100),))),
        ("sequencer", Data(message(100), 0)),
        ("oam", FrMcast(message(100), 1, 5, ())),
        ("oam", BarrierRequest(message(100).id, 5, 1)),
        ("oam-baseline", BarrierRequest(message(100).id, 5, 1)),
    ],
)
def test_who_may_not_send_has_nothing_to_say(name: str, wire: Wire) -> None:
    assert Service(name, Rights("all", None, None)).refuses(wire) is None
    assert "no right to send" in str(Service(name, Rights("none", frozenset(), None)).refuses(wire))


def test_nobody_says_good_bye_for_another() -> None:
    """The trace would tell that all messages of that client were answered, and a loss would not be seen."""
    service = Service("fastcast", Rights("all", None, None))
    service.decode.return_value = Detach(101, 5)
    service.service.on_frame(memoryview(b""))
    assert not service.node.forget_client.called
    assert "good-bye" in service.connection.refuse.call_args.args[0]
    service.decode.return_value = Detach(100, 5)
    service.service.on_frame(memoryview(b""))
    assert service.node.forget_client.call_args.args[::2] == (100, 5)
