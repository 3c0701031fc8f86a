"""Message delays that applications add, measured in simulated nodes whose disks and processors take no time."""

from __future__ import annotations

import pytest

from amcast.net.config import Limits
from amcast.net.disk.records import Durability
from amcast.netsim import NodeScenario
from amcast.netsim.application import EXCHANGE
from amcast.netsim.clients import Sender, _connected
from amcast.netsim.network import Network
from amcast.netsim.run import NodeSimulation

LATENCY_US = 10_000


def least_delays(protocol: str, patch: pytest.MonkeyPatch) -> dict[str, float]:
    """The least that a call, and one with an exchange, to both groups took, in message delays."""
    found: dict[str, list[int]] = {"call": [], "exchange": []}

    async def run(self: Sender) -> None:
        world = self.program.machine.world
        async with _connected(self._scenario.config(), self.program.name) as client:
            for number in range(12):
                kind = "exchange" if number % 2 else "call"
                payload = (EXCHANGE if number % 2 else b"") + b"%d" % number
                begun = world.now
                await client.call(["g1", "g2"], payload, None)
                found[kind].append(world.now - begun)
        self.is_done = True

    patch.setattr(Sender, "_run", run)
    patch.setattr(Network, "delay", lambda self: LATENCY_US)
    made = NodeScenario(
        protocol=protocol,
        clients=1,
        messages=0,
        durability=Durability.MEMORY,
        latency_us=LATENCY_US,
        splits=0.0,
        sync_us=0,
        limits=Limits(),
        seed=1,
    )
    assert not NodeSimulation(made).run().violations
    return {kind: min(times) / LATENCY_US for kind, times in found.items()}


@pytest.mark.parametrize("protocol", ["basecast", "fastcast", "multipaxos", "oam"])
def test_an_exchange_adds_at_most_two_message_delays(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = least_delays(protocol, monkeypatch)
    print(protocol, delays)
    assert delays["exchange"] - delays["call"] <= 2
