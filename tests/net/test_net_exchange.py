"""Messages that groups execute together: each hears what the others read, at the same place in the order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amcast.core import AppMessage, ProcessId
from amcast.net.client.async_client import connect
from amcast.net.config import Limits
from amcast.net.disk.records import Durability
from amcast.net.node._exchange import Exchange
from amcast.net.node.application import ExchangingMachine, Machine
from amcast.net.wire.control import EXCHANGE_HEAD, Refusal, Tell, Told, exchange_decoder
from amcast.protocols import MULTICAST_PROTOCOLS, PROTOCOLS
from tests.net.clusters import Cluster, eventually, run, running


class Purse(ExchangingMachine):
    """Holds some money. `give 3 1` moves 3 out of g1, if there is enough, and into the other groups."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.money = 10
        self.applied: list[tuple[bytes, dict[str, bytes]]] = []

    def read(self, message: AppMessage) -> bytes | None:
        return b"%d" % self.money if message.payload.startswith(b"give") else None

    def apply(self, message: AppMessage, reads: Mapping[str, bytes]) -> bytes:
        self.applied.append((message.payload, dict(reads)))
        if message.payload.startswith(b"give"):
            amount, payer = message.payload.split()[1:]
            if int(reads[f"g{payer.decode()}"]) < int(amount):
                return b"too little"
            self.money += -int(amount) if self.group == f"g{payer.decode()}" else int(amount)
        return b"%d" % self.money

    def snapshot(self) -> bytes:
        return b"%d" % self.money

    def restore(self, state: bytes) -> None:
        self.money = int(state)


def purses(groups: int = 2, replicas: int = 3) -> dict[str, Machine]:
    return {f"g{g}.p{p}": Purse(f"g{g}") for g in range(1, groups + 1) for p in range(replicas)}


@pytest.mark.parametrize("protocol", MULTICAST_PROTOCOLS)
def test_groups_know_of_each_other_before_they_execute(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        replicas = PROTOCOLS[protocol].replicas
        machines = purses(3, replicas)
        async with (
            running(tmp_path / "c", protocol, groups=3, replicas=replicas, machines=machines) as cluster,
            connect(cluster.config) as client,
        ):
            assert await client.call({"g1", "g2"}, b"give 7 1") == {"g1": b"3", "g2": b"17"}
            assert await client.call({"g1", "g3"}, b"give 7 1") == {"g1": b"too little", "g3": b"too little"}
            assert await client.call({"g1", "g2", "g3"}, b"give 12 2") == {"g1": b"15", "g2": b"5", "g3": b"22"}
            assert await client.call({"g1", "g2"}, b"look") == {"g1": b"15", "g2": b"5"}
            assert await client.call("g1", b"give 1 1") == {"g1": b"14"}, "one group exchanges with nobody"
            many = [client.call({"g1", "g2"}, b"give 1 %d" % (1 + turn % 2)) for turn in range(20)]
            assert all(result == {"g1": b"13", "g2": b"6"} or result for result in await asyncio.gather(*many))
            for name, machine in machines.items():
                assert isinstance(machine, Purse)
                expected = {"g1": 14, "g2": 5, "g3": 22}[name[:2]]
                await eventually(lambda machine=machine, money=expected: machine.money == money, f"{name} is done")
            first = machines["g1.p0"]
            assert isinstance(first, Purse)
            assert first.applied[0] == (b"give 7 1", {"g1": b"10", "g2": b"10"})
            assert (b"look", {}) in first.applied

    run(test)


def test_a_group_that_is_down_is_waited_for_and_status_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        machines = purses(2, 1)
        settings: dict[str, Any] = {"replicas": 1, "machines": machines, "durability": Durability.SYNC}
        async with running(tmp_path / "c", "skeen", **settings) as cluster, connect(cluster.config) as client:
            await client.call({"g1", "g2"}, b"give 1 1")
            _, answer = client.submit_call({"g1", "g2"}, b"give 2 1", None)
            waiting = asyncio.create_task(answer)
            host = cluster.servers["g1.p0"].host
            assert host is not None
            await waiting
            # g2 delivers the next one, and is gone before it has told g1 anything.
            peer = cluster.servers["g2.p0"].host
            assert peer is not None
            assert peer.exchange is not None
            peer.exchange._send = lambda to, data: None
            _, answer = client.submit_call({"g1", "g2"}, b"give 3 1", None)
            waiting = asyncio.create_task(answer)
            await eventually(lambda: peer.position == 3, "g2 has executed it")
            await eventually(lambda: host.problem is not None, "g1 waits")
            assert host.problem == "the application waits for what g2 must tell it"
            assert host.position == 2
            await cluster.stop("g2.p0")
            machines["g2.p0"] = Purse("g2")
            await cluster.start("g2.p0")
            assert (await waiting)["g1"] == b"4", "the value was kept in g2's snapshot"
            assert host.problem is None

    run(test)


@pytest.mark.parametrize("durability", [Durability.SYNC, Durability.MEMORY])
def test_replicas_that_restart_hear_again_what_they_need(durability: Durability, tmp_path: Path) -> None:
    async def test() -> None:
        machines = purses()
        limits = Limits(snapshot_messages=3)
        settings: dict[str, Any] = {"machines": machines, "durability": durability, "limits": limits}
        async with running(tmp_path / "c", **settings) as cluster, connect(cluster.config) as client:
            for turn in range(30):
                if turn % 5 == 0:
                    name = f"g{1 + turn // 5 % 2}.p{turn // 10}"
                    await eventually(lambda turn=turn: all_at(cluster, turn), "the last one is back")
                    await cluster.stop(name)
                    machines[name] = Purse(name[:2])
                    await cluster.start(name)
                await client.call({"g1", "g2"}, b"give 1 %d" % (1 + turn % 2), 60)
            assert await client.call({"g1", "g2"}, b"look") == {"g1": b"10", "g2": b"10"}
            await eventually(lambda: all_at(cluster, 31), "all have caught up")
            assert {machine.money for machine in machines.values() if isinstance(machine, Purse)} == {10}
            await eventually(lambda: kept_values(cluster) < 40, "what everybody has is forgotten")

    run(test)


def all_at(cluster: Cluster, position: int) -> bool:
    return all(server.host is not None and server.host.position == position for server in cluster.servers.values())


def kept_values(cluster: Cluster) -> int:
    hosts = [server.host for server in cluster.servers.values()]
    return sum(len(pair.values) for host in hosts if host and host.exchange for pair in host.exchange._pairs.values())


# -- the store of values


class Wire:
    def __init__(self) -> None:
        self.sent: list[tuple[Sequence[ProcessId], Told | Tell]] = []

    def __call__(self, to: Sequence[ProcessId], data: bytes) -> None:
        self.sent.append((to, exchange_decoder.decode(data[EXCHANGE_HEAD:])))


def exchange_test(bytes_max: int = 1_000, speaks: bool = True) -> tuple[Exchange, Wire]:
    wire = Wire()
    return Exchange({2: (3, 4, 5)}, wire, lambda: speaks, bytes_max, True), wire


def tell(sender: ProcessId, exchange: Exchange, message: Told | Tell) -> str | None:
    return exchange.on_frame(sender, msgspec.msgpack.encode(message))


def execute(exchange: Exchange, number: int, size: int = 10) -> None:
    exchange.tell([2], bytes(size))
    tell(3, exchange, Told(number, (b"%d" % number,), 0))
    assert exchange.hear([2]) == {2: b"%d" % number}
    exchange.executed([2])


def test_values_are_kept_until_all_members_hold_them() -> None:
    async def test() -> None:
        exchange, _ = exchange_test()
        for number in range(5):
            execute(exchange, number)
        for member, durable in ((3, 5), (4, 3), (5, 2)):
            tell(member, exchange, Tell(5, durable, False))
        assert exchange.dump()[2][:2] == (5, 2)
        tell(5, exchange, Tell(5, 5, False))
        assert exchange.dump()[2][:2] == (5, 3)
        exchange.close()

    run(test)


def test_without_room_they_are_kept_until_a_majority_holds_them_and_never_less() -> None:
    async def test() -> None:
        exchange, _ = exchange_test()
        for number in range(5):
            execute(exchange, number, 400)
        tell(3, exchange, Tell(5, 5, False))
        assert exchange.dump()[2][:2] == (5, 0), "one of three is no majority"
        tell(4, exchange, Tell(5, 3, False))
        assert exchange.dump()[2][:2] == (5, 3)
        exchange.close()

    run(test)


def test_who_asks_is_told_or_told_that_it_is_gone() -> None:
    async def test() -> None:
        exchange, wire = exchange_test(speaks=False)
        for number in range(4):
            execute(exchange, number)
        assert wire.sent == [], "a follower tells nobody by itself"
        for member in (3, 4, 5):
            tell(member, exchange, Tell(4, 2, False))
        tell(4, exchange, Tell(2, 2, True))
        tell(5, exchange, Tell(0, 0, True))
        tell(5, exchange, Tell(4, 4, True))
        assert [(to, message.first, len(message.values), message.kept_from) for to, message in wire.sent] == [  # type: ignore[union-attr]
            ((4,), 2, 2, 2),
            ((5,), 2, 2, 2),
        ]
        exchange.close()

    run(test)


def test_a_value_that_is_gone_is_known_to_be_gone() -> None:
    async def test() -> None:
        exchange, _ = exchange_test()
        exchange.tell([2], b"mine")
        assert exchange.hear([2]) is None
        tell(3, exchange, Told(7, (b"x",), 7))
        assert exchange.is_gone
        exchange.load({2: (7, 7, ())})
        assert not exchange.is_gone
        assert exchange.hear([2]) == {2: b"x"}, "what came early is still there"
        exchange.close()

    run(test)


def test_early_values_have_a_bound_and_the_next_one_has_not() -> None:
    async def test() -> None:
        exchange, _ = exchange_test(bytes_max=1_000)
        for number in range(1, 10):
            tell(3, exchange, Told(number, (bytes(400),), 0))
        assert len(exchange._pairs[2].heard) == 3
        tell(3, exchange, Told(0, (bytes(400),), 0))
        assert exchange.hear([2]) is not None
        exchange.close()

    run(test)


def test_strangers_and_nonsense_are_refused() -> None:
    async def test() -> None:
        exchange, _ = exchange_test()
        assert tell(9, exchange, Tell(0, 0, True)) == "it is no member of another group"
        assert "not a word between applications" in (exchange.on_frame(3, b"\xc1") or "")
        assert "not a word between applications" in (exchange.on_frame(3, b"\x91" * 2_000) or "")
        exchange.close()

    run(test)


def test_a_snapshot_keeps_what_was_told_and_comes_back() -> None:
    async def test() -> None:
        exchange, _ = exchange_test()
        execute(exchange, 0)
        exchange.tell([2], Refusal.FORGOTTEN)
        dumped = exchange.dump()
        assert dumped == {2: (1, 0, (bytes(10),))}, "what was read for the next message is read again"
        other, _ = exchange_test()
        other.load(dumped)
        assert other.dump() == dumped
        other.close()
        exchange.close()

    run(test)


# -- a group with a liar: what two members tell alike is believed


def exchange_with_liar(bytes_max: int = 1_000) -> tuple[Exchange, Wire]:
    wire = Wire()
    return Exchange({2: (3, 4, 5, 6)}, wire, lambda: True, bytes_max, True, {2: 2}), wire


def test_a_value_is_believed_when_two_members_told_the_same() -> None:
    async def test() -> None:
        exchange, _ = exchange_with_liar()
        heard: list[str] = []
        exchange.on_heard = lambda: heard.append("heard")
        for number in range(3):
            exchange.tell([2], b"mine")
            assert exchange.hear([2]) is None
            for _ in range(2):
                tell(3, exchange, Told(number, (b"a lie",), 0))
            assert exchange.hear([2]) is None, "one member told it twice"
            tell(3, exchange, Told(number, (b"true",), 0))
            tell(4, exchange, Told(number, (b"true",), 0))
            assert exchange.hear([2]) is None, "who told a version before can't tell another"
            tell(5, exchange, Told(number, (b"true",), 0))
            assert exchange.hear([2]) == {2: b"true"}
            tell(6, exchange, Told(number, (b"a lie",), 0))
            exchange.executed([2])
        assert heard == ["heard"] * 3
        assert not exchange._pairs[2].told
        assert set(exchange._pairs[2].told_bytes.values()) == {0}
        exchange.close()

    run(test)


def test_honest_members_are_believed_in_any_order_and_early() -> None:
    async def test() -> None:
        exchange, _ = exchange_with_liar()
        tell(4, exchange, Told(0, (b"0", None, Refusal.FORGOTTEN), 0))
        tell(3, exchange, Told(1, (None, Refusal.FORGOTTEN), 0))
        tell(5, exchange, Told(0, (b"0",), 0))
        for expected in (b"0", None, Refusal.FORGOTTEN):
            exchange.tell([2], b"mine")
            assert exchange.hear([2]) == {2: expected}
            exchange.executed([2])
        exchange.close()

    run(test)


def test_a_liar_fills_its_own_room_and_no_more() -> None:
    async def test() -> None:
        exchange, _ = exchange_with_liar(bytes_max=1_000)
        for number in range(1, 1_000):
            tell(3, exchange, Told(number, (bytes(100),), 0))
        pair = exchange._pairs[2]
        assert len(pair.told) == 2, "a quarter of the room"
        for member in (4, 5):
            tell(member, exchange, Told(0, (b"true", b"early"), 0))
        assert pair.heard == {0: b"true", 1: b"early"}
        tell(3, exchange, Told(0, (bytes(5_000),), 0))
        assert len(pair.told) == 1
        exchange.close()

    run(test)


def test_a_value_is_gone_when_two_members_say_so() -> None:
    async def test() -> None:
        exchange, _ = exchange_with_liar()
        exchange.tell([2], b"mine")
        assert exchange.hear([2]) is None
        for _ in range(3):
            tell(3, exchange, Told(7, (), 7))
        assert not exchange.is_gone
        tell(4, exchange, Told(7, (), 7))
        assert exchange.is_gone
        exchange.load({2: (7, 7, ())})
        assert not exchange.is_gone
        exchange.close()

    run(test)


def test_enough_members_are_asked_and_each_in_its_turn() -> None:
    async def test() -> None:
        exchange, wire = exchange_with_liar()
        assert exchange.hear([2]) is None
        for _ in range(2):
            exchange._ask()
        assert [list(to) for to, message in wire.sent if isinstance(message, Tell)] == [[3, 4], [5, 6]]
        exchange.close()

    run(test)


def test_two_liars_of_seven_can_not_have_values_dropped_or_kept_for_ever() -> None:
    async def test() -> None:
        wire = Wire()
        members = tuple(range(3, 10))
        exchange = Exchange({2: members}, wire, lambda: True, 1_000, True, {2: 3})
        for number in range(5):
            exchange.tell([2], bytes(400))
            for member in (5, 6, 7):
                tell(member, exchange, Told(number, (b"x",), 0))
            assert exchange.hear([2]) is not None
            exchange.executed([2])
        for liar in (3, 4):
            tell(liar, exchange, Tell(5, 1 << 60, False))
        for member in (5, 6):
            tell(member, exchange, Tell(5, 4, False))
        assert exchange.dump()[2][:2] == (5, 0), "two liars and two others: two are not enough to take a state from"
        for liar in (3, 4):
            tell(liar, exchange, Tell(0, 0, False))
        for member, durable in zip((5, 6, 7, 8, 9), (3, 4, 4, 5, 5), strict=True):
            tell(member, exchange, Tell(5, durable, False))
        assert exchange.dump()[2][:2] == (5, 3), "though the liars say that they hold nothing"
        exchange.close()

    run(test)


def test_numbers_that_nobody_counts_to_are_survived() -> None:
    async def test() -> None:
        exchange, wire = exchange_test()
        execute(exchange, 0)
        wire.sent.clear()
        for number in (1 << 63, (1 << 64) - 1, -(1 << 63)):
            assert tell(3, exchange, Tell(number, number, True)) is None
            assert tell(3, exchange, Told(number, (b"x",), 0)) is None
        exchange.close()

    run(test)
