"""Idempotency keys: a request is executed once for a client's name and key, whoever repeats it, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from amcast import NotExecutedError, UsageError
from amcast.core import AppMessage, message_id
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.disk.records import Durability
from amcast.net.node._keys import Keys, digest_of
from amcast.net.node.application import Machine
from amcast.net.wire.control import Refusal
from amcast.net.wire.dialer import RefusedError
from amcast.net.wire.envelope import ENVELOPE, Keyed, Plain, as_given, as_sent, enclose, envelopes_in, opened
from tests.net.clusters import eventually, run, running
from tests.net.test_net_calls import Register, registers
from tests.net.test_net_exchange import purses


@pytest.mark.parametrize("protocol", ["fastcast", "sequencer", "oam"])
def test_a_program_that_comes_back_gets_the_old_answer(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers()
        async with running(tmp_path / "c", protocol, machines=machines) as cluster:
            answers = []
            for _ in range(3):  # each time another program of the same name
                async with connect(cluster.config, name="shop") as client:
                    answers.append(await client.call({"g1", "g2"}, b"a", key="order 1"))
            assert answers == [{"g1": b"a", "g2": b"a"}] * 3
            async with connect(cluster.config, name="shop") as client:
                assert await client.call("g1", b"b", key="order 2") == {"g1": b"ab"}
                both = await asyncio.gather(*(client.call("g1", b"c", key="order 3") for _ in range(5)))
                assert both == [{"g1": b"abc"}] * 5
            async with connect(cluster.config, name="other") as client:
                assert await client.call("g1", b"d", key="order 1") == {"g1": b"abcd"}, "another name's key"

    run(test)


def test_a_key_stands_for_one_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", machines=registers()) as cluster, connect(cluster.config) as client:
            await client.call("g1", b"a", key="k")
            with pytest.raises(NotExecutedError, match="g1: this key was used before, for another request"):
                await client.call("g1", b"b", key="k")
            with pytest.raises(NotExecutedError, match="for another request"):
                await client.call({"g1", "g2"}, b"a", key="k")
            assert await client.call("g1", b"") == {"g1": None}
            for key in ("", "k" * 257):
                with pytest.raises(UsageError, match="a key is a text of 1 to 256 characters"):
                    await client.call("g1", b"a", key=key)

    run(test)


def test_keys_survive_restarts(tmp_path: Path) -> None:
    async def test() -> None:
        machines = registers(groups=1)
        async with running(tmp_path / "c", groups=1, machines=machines, durability=Durability.SYNC) as cluster:
            async with connect(cluster.config) as client:
                await client.call("g1", b"a", key="k")
            await cluster.stop()
            machines.update(registers(groups=1))
            await cluster.start()
            await eventually(cluster.has_leaders, "leaders")
            async with connect(cluster.config) as client:
                assert await client.call("g1", b"a", key="k", timeout=60) == {"g1": b"a"}

    run(test)


def test_groups_that_execute_together_agree_on_what_is_known(tmp_path: Path) -> None:
    """One group still knows the key and the other has forgotten it: nobody executes the request again, nor waits."""

    async def test() -> None:
        machines: dict[str, Machine] = purses(2, 1)
        async with running(tmp_path / "c", "skeen", replicas=1, machines=machines) as cluster:  # noqa: SIM117
            async with connect(cluster.config) as client:
                assert await client.call({"g1", "g2"}, b"give 1 1", key="k") == {"g1": b"9", "g2": b"11"}
                host = cluster.servers["g1.p0"].host
                assert host is not None
                host.keys = Keys(1)
                with pytest.raises(NotExecutedError, match="g1: this request was executed before, and its answer"):
                    await client.call({"g1", "g2"}, b"give 1 1", key="k")
                assert await client.call({"g1", "g2"}, b"look") == {"g1": b"9", "g2": b"11"}

    run(test)


def test_a_client_can_use_no_other_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        AsyncClient, "_keyed", lambda self, key, payload: ENVELOPE + b"?" if key == "?" else other_name(key, payload)
    )

    def other_name(key: str, payload: bytes) -> bytes:
        return enclose(Keyed("bob" if key else "alice", key, payload))

    async def test() -> None:
        async with running(tmp_path / "c", groups=1, machines=registers(groups=1)) as cluster:
            for key, problem in (("k", "a key belongs to the name"), ("", "1 to 256"), ("?", "not an envelope")):
                async with connect(cluster.config, name="alice") as client:
                    with pytest.raises((UsageError, RefusedError, TimeoutError), match=problem):
                        await client.call("g1", b"a", 5, key=key)
            machine = cluster.machines["g1.p0"]
            assert isinstance(machine, Register)
            assert machine.applied == 0

    run(test)


def test_a_payload_that_looks_like_an_envelope_is_the_programs_own(tmp_path: Path) -> None:
    async def test() -> None:
        payload = ENVELOPE + b"anything"
        async with running(tmp_path / "c", groups=1, machines=registers(groups=1)) as cluster:  # noqa: SIM117
            async with connect(cluster.config) as client:
                assert await client.call("g1", payload) == {"g1": payload}
                await asyncio.gather(*(client.multicast("g1", payload) for _ in range(5)))
                seen = []
                async for delivery in client.deliveries("g1"):
                    seen.append(delivery.payload)
                    if len(seen) == 6:
                        break
                assert seen == [payload] * 6

    run(test)


# -- envelopes and the store


def test_envelopes() -> None:
    assert as_sent(b"plain") == as_given(b"plain") == b"plain"
    odd = ENVELOPE + b"\x00"
    assert as_sent(odd) == enclose(Plain(odd))
    assert as_given(as_sent(odd)) == odd
    assert as_given(enclose(Keyed("a", "b", b"c"))) == b"c"
    assert as_given(odd) == odd, "what nobody can open is shown as it is"
    assert opened(odd) is opened(b"plain") is None
    message = AppMessage(message_id(7, 0), (1,), enclose(Plain(b"x")))
    assert envelopes_in(message) == [message.payload]
    assert envelopes_in(msgspec.structs.replace(message, payload=b"x")) == []


def test_the_store_gives_up_the_oldest_of_the_name_with_the_most() -> None:
    keys = Keys(5_000)
    keys.add("small", "only", b"d", b"x" * 100)
    for number in range(20):
        keys.add("large", f"{number}", b"d", b"x" * 500)
    assert keys.find("small", "only", b"d") == (b"x" * 100,)
    assert keys.find("large", "0", b"d") is None
    assert keys.find("large", "19", b"d") == (b"x" * 500,)
    assert keys.find("large", "19", b"other") == (Refusal.OTHER_REQUEST,)
    copy = Keys(5_000)
    copy.load(keys.dump())
    assert copy.dump() == keys.dump()
    for each in (keys, copy):  # what goes next is the same in a replica that took the state over
        each.add("large", "20", b"d", b"x" * 500)
    assert copy.dump() == keys.dump()
    huge = Keys(10)
    huge.add("a", "b", b"d", b"x" * 100)
    huge.add("a", "c", b"d", None)
    assert huge.find("a", "b", b"d") is None


def test_a_digest_tells_requests_apart() -> None:
    one = AppMessage(message_id(7, 0), (1,), b"x")
    assert digest_of(one) == digest_of(msgspec.structs.replace(one, id=message_id(8, 5), settled=3))
    assert digest_of(one) != digest_of(msgspec.structs.replace(one, dst=(1, 2)))
    assert digest_of(one) != digest_of(msgspec.structs.replace(one, payload=b"y"))
