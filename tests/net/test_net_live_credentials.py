"""Credentials that change while a cluster runs: who is cut off, who is not, and what broken files do."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from amcast.core import UsageError
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.client.observer import Delivery, observe
from amcast.net.node import _credential_watch
from amcast.net.node._status import metrics_of, status_of
from amcast.net.node.server import NodeServer
from amcast.net.security.access import add_token, revoke_token, write_secret
from amcast.net.security.certs import add_authority, drop_authorities, revoke, set_up
from amcast.net.security.identity import Identity
from amcast.net.wire.control import Renew

from .clusters import Cluster, eventually, run, running


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_credential_watch, "LOOK_S", 0.02)


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Cluster]:
    """One group, with TLS and tokens."""
    async with running(folder, groups=1, tls=True, tokens=True) as cluster:
        yield cluster


def add(cluster: Cluster, name: str) -> str:
    return add_token(cluster.config.path("tokens.toml"), name, ["*"], ["*"])


async def known(cluster: Cluster, name: str, is_known: bool = True) -> None:
    def have_read() -> bool:
        names = [[rights.name for rights in server.security.access.all] for server in cluster.servers.values()]
        return all((name in each) == is_known for each in names)

    await eventually(have_read, f"all nodes have read of {name}")


def events(cluster: Cluster, name: str = "g1.p0") -> list[dict[str, str]]:
    path = cluster.config.path("data/audit") / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def welcome(cluster: Cluster) -> int:
    """Connections of clients."""
    return sum(each.rights is not None for server in cluster.servers.values() for each in server.connections)


def certificate_of(server: NodeServer) -> x509.Certificate:
    assert server.security.tls is not None
    return server.security.tls.certificate


async def read_on(deliveries: AsyncIterator[Delivery]) -> None:
    async for _ in deliveries:
        pass


async def refused(client: AsyncClient, why: str) -> None:
    """Returns when the client has something to send and hears why it may not."""
    client.submit(["g1"], b"may I?")
    await eventually(lambda: any(why in problem for problem in client._trunk.problems), why)


async def opened(cluster: Cluster, **settings: str) -> AsyncClient:
    client = connect(cluster.config, **settings)
    await client.__aenter__()
    await client.multicast(["g1"], b"hello")
    return client


# -- tokens


def test_a_revoked_token_ends_its_connections_and_no_others(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path / "c") as cluster:
            tokens = {name: add(cluster, name) for name in ("alice", "bob")}
            await known(cluster, "bob")
            alice, bob = [await opened(cluster, token=tokens[name]) for name in ("alice", "bob")]
            stream = observe(cluster.config, token=tokens["alice"])
            async with stream:
                deliveries = stream.deliveries("g1")
                await anext(deliveries)
                revoke_token(cluster.config.path("tokens.toml"), "alice")
                with pytest.raises(UsageError, match=r"the token is revoked|this token is not known here"):
                    await read_on(deliveries)
            await known(cluster, "alice", False)
            await refused(alice, "this token is not known here")
            await bob.multicast(["g1"], b"I may")
            with pytest.raises(UsageError, match="this token is not known here"):
                await opened(cluster, token=tokens["alice"])
            cut = [each for each in events(cluster) if each["event"] == "cut off"]
            assert {(each["token"], each["reason"]) for each in cut} == {("alice", "the token is revoked")}
            for client in (alice, bob):
                await client.__aexit__(None, None, None)

    run(test)


def test_rights_that_change_hold_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path / "c") as cluster:
            file = cluster.config.path("tokens.toml")
            token = add(cluster, "alice")
            await known(cluster, "alice")
            alice = await opened(cluster, token=token)
            before = file.read_text()
            head, entry = before.rsplit("[[token]]", 1)
            file.write_text(head + "[[token]]" + entry.replace('send = ["*"]', 'send = ["g2"]'))
            await eventually(
                lambda: all(server.security.access.all[-1].groups[0] == "g2" for server in cluster.servers.values()),
                "all nodes have read it",
            )
            await refused(alice, "no right to send to g1")
            file.write_text(before)
            await alice.multicast(["g1"], b"again")
            await alice.__aexit__(None, None, None)

    run(test)


def test_a_client_goes_on_with_another_token(tmp_path: Path) -> None:
    """The file is replaced first, the old token revoked then: no message is lost."""

    async def test() -> None:
        async with guarded(tmp_path / "c") as cluster:
            first, second = add(cluster, "first"), add(cluster, "second")
            await known(cluster, "second")
            file = tmp_path / "mine.token"
            write_secret(file, first)
            async with connect(cluster.config, token_file=file) as client:
                await client.multicast(["g1"], b"1")
                file.write_text(second)
                revoke_token(cluster.config.path("tokens.toml"), "first")
                await known(cluster, "first", False)
                await client.multicast(["g1"], b"2")
                stream = client.deliveries("g1")
                assert [(await anext(stream)).payload for _ in range(2)] == [b"1", b"2"]
                await stream.aclose()

    run(test)


def test_a_token_that_expires_ends_its_connections(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path / "c") as cluster:
            token = add(cluster, "alice")
            await known(cluster, "alice")
            client = await opened(cluster, token=token)
            for server in cluster.servers.values():
                for connection in server.connections:
                    if connection.rights is not None:
                        connection.ends_s = 1.0
            await eventually(lambda: "cut off" in [each["event"] for each in events(cluster)], "it is cut off")
            await client.multicast(["g1"], b"the token itself is still good: it may come back")
            await client.__aexit__(None, None, None)

    run(test)


# -- certificates


def test_a_revoked_client_is_out_and_others_stay(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, tls=True) as cluster:
            certs = cluster.config.path("certs")
            set_up(certs, [Identity("client", "alice", "c")])
            alice, client = await opened(cluster, name="alice"), await opened(cluster)
            revoke(certs, ["alice"])
            await eventually(lambda: welcome(cluster) == 3, "the connections of alice are gone")
            await refused(alice, "the certificate is revoked")
            await client.multicast(["g1"], b"I may")
            with pytest.raises(UsageError, match="the certificate is revoked"):
                await opened(cluster, name="alice")
            for each in (alice, client):
                await each.__aexit__(None, None, None)

    run(test)


def test_a_revoked_process_is_out_in_both_directions(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, tls=True) as cluster:
            revoke(cluster.config.path("certs"), ["g1.p2"])
            ids = cluster.config.ids()

            def is_out() -> bool:
                others = [server for name, server in cluster.servers.items() if name != "g1.p2"]
                return not any(
                    server.node.links[ids["g1.p2"]].is_connected or ids["g1.p2"] in server.peers for server in others
                )

            await eventually(is_out, "nobody talks to g1.p2, nor hears it")
            async with connect(cluster.config) as client:
                await client.multicast(["g1"], b"two are a majority")

    run(test)


def test_one_ca_follows_another_without_a_break(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, tls=True) as cluster:
            certs = cluster.config.path("certs")
            servers = cluster.servers.values()

            async def trusted(count: int) -> None:
                await eventually(
                    lambda: all(len(server.security.tls.trust.authorities) == count for server in servers),  # type: ignore[union-attr]
                    f"{count} CAs are trusted",
                )

            shutil.copytree(certs, tmp_path / "old")
            client = await opened(cluster)
            add_authority(certs)
            await trusted(2)
            await client.multicast(["g1"], b"two CAs")
            before = [certificate_of(server) for server in servers]
            names = [Identity("process", name, "c") for name in cluster.servers]
            set_up(certs, [*names, Identity("client", "client", "c")], force=True)
            await eventually(
                lambda: all(certificate_of(server) not in before for server in servers), "all have new certificates"
            )
            drop_authorities(certs)
            await trusted(1)
            await client.multicast(["g1"], b"connections of the old CA are gone, and new ones are made")
            await eventually(
                lambda: all(all(status_of(server).peers.values()) for server in servers), "links are up again"
            )
            with pytest.raises(UsageError, match="no process of the cluster answers"):
                async with connect(cluster.config, certs=tmp_path / "old"):
                    pass
            await client.__aexit__(None, None, None)

    run(test)


# -- broken files


@pytest.mark.parametrize("name", ["tokens.toml", "certs/ca.crt", "certs/g1.p0.crt", "certs/g1.p0.key", "certs/ca.crl"])
def test_a_broken_file_is_told_once_and_changes_nothing(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)

    async def test() -> None:
        async with guarded(tmp_path / "c") as cluster:
            server = cluster.servers["g1.p0"]
            revoke(cluster.config.path("certs"), [])
            file = cluster.config.path(name)
            client = connect(cluster.config, token=cluster.config.path("operator.token").read_text().strip())
            before = file.read_bytes()
            file.write_bytes(before[: len(before) // 2])
            await eventually(lambda: bool(status_of(server).warnings), "it says so")
            (warning,) = status_of(server).warnings
            assert str(file) in warning
            assert "what was there before stays" in warning
            async with client:
                await client.multicast(["g1"], b"whoever was welcome still is")
            for each in cluster.servers.values():
                each.reload()
            told = [record.message for record in caplog.records]
            assert len(told) == len([each for each in cluster.servers.values() if status_of(each).warnings])
            file.write_bytes(before)
            await eventually(lambda: not status_of(server).warnings, "it is whole again")
            assert "credentials refused" in [each["event"] for each in events(cluster)]

    run(test)


def test_a_broken_configuration_does_not_end_a_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            server = cluster.servers["g1.p0"]
            file = tmp_path / "c" / "cluster.toml"
            server.config = msgspec.structs.replace(cluster.config, name="cluster.toml")
            whole = file.read_text()
            for broken in ("[[", "", whole.replace("g1.p0", "g7.p0")):
                file.write_text(broken)
                server.reload()
            file.write_text(whole.replace("clock_offset_us = 0", "clock_offset_us = 5"))
            server.reload()
            assert server.node.clock_offset_us == 5
            assert not server.failure.done()
        assert caplog.text.count("what was there before stays") == 3

    run(test)


# -- what people see


def test_a_certificate_that_ends_soon_is_a_warning_and_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, tls=True) as cluster:
            server = cluster.servers["g1.p0"]
            assert status_of(server).warnings == ()
            monkeypatch.setattr(_credential_watch, "WARN_S", 400 * 86_400)
            (warning,) = status_of(server).warnings
            assert warning.startswith("the certificate ends on 20")
            kind, _, value = metrics_of(server)["amcast_certificate_seconds"]
            assert kind == "gauge"
            assert 364 * 86_400 < value < 366 * 86_400

    run(test)


# -- tickets


def test_tickets_are_renewed_before_they_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, tls=True) as cluster:
            for server in cluster.servers.values():
                server.security.tickets.life_s = 2
            async with connect(cluster.config) as client, client.session() as session:
                await client.multicast(["g1"], b"1")
                trunk = client._trunk
                before = dict(trunk._tickets)
                assert len(before) == 2
                await eventually(
                    lambda: all(trunk._tickets[id_] != ticket for id_, ticket in before.items()), "new tickets"
                )
                await session.multicast(["g1"], b"2")

    run(test)


def test_nobody_renews_the_ticket_of_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            running(tmp_path / "c", groups=1, tls=True) as cluster,
            connect(cluster.config) as mine,
            connect(cluster.config) as others,
        ):
            await asyncio.gather(*(each.multicast(["g1"], b"x") for each in (mine, others)))
            (victim,) = others._trunk._tickets
            for channel in mine._trunk._channels.values():
                channel.say(Renew(victim))
            await eventually(lambda: bool(mine._trunk.problems), "it is refused")
            assert "has proved its client id" in mine._trunk.problems[0]

    run(test)
