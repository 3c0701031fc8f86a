"""Safe by default: where a node listens without TLS, where tokens and figures go, and what people are told."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest

from amcast.core import UsageError
from amcast.net.client.async_client import connect
from amcast.net.config import ClusterConfig, format_config, is_loopback, load_config
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, free_ports, plan
from amcast.net.node._status import status_of
from amcast.net.node.metrics import MetricsPort, metrics_place
from amcast.net.node.server import NodeServer
from amcast.net.security.certs import revoke, set_up
from amcast.net.security.identity import Identity
from amcast.net.security.keyring import Keyring

from .clusters import run


def everywhere(folder: Path, **changes: object) -> ClusterConfig:
    """One process that listens on all addresses of this machine."""
    config = plan(folder, "skeen", 1, 1, durability=Durability.MEMORY)
    process = msgspec.structs.replace(config.process[0], address=f"0.0.0.0:{free_ports(1)[0]}")
    config = msgspec.structs.replace(config, process=(process,), **changes)
    LocalCluster.create(folder, config)
    return config


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_what_loopback_is(host: str, is_local: bool) -> None:
    assert is_loopback(host) == is_local


def test_without_tls_a_node_listens_on_loopback_alone(tmp_path: Path) -> None:
    async def test() -> None:
        config = everywhere(tmp_path / "c")
        with pytest.raises(UsageError, match=r"g1\.p0 would listen on 0\.0\.0\.0:\d+ without TLS.* use --insecure"):
            NodeServer(config, "g1.p0")

    run(test)


def test_whoever_insists_is_told_by_status(tmp_path: Path) -> None:
    async def test() -> None:
        config = everywhere(tmp_path / "c", insecure=True)
        assert load_config(tmp_path / "c" / "cluster.toml").insecure
        server = NodeServer(config, "g1.p0")
        await server.start()
        try:
            (warning,) = status_of(server).warnings
            assert warning.startswith("listens on 0.0.0.0:")
            assert "without TLS: whoever reaches it may do everything" in warning
        finally:
            await server.stop()

    run(test)


def test_tokens_without_tls_are_refused(tmp_path: Path) -> None:
    config = plan(tmp_path / "c", "skeen", 1, 1)
    file = tmp_path / "cluster.toml"
    file.write_text('tokens = "tokens.toml"\n' + format_config(config))
    with pytest.raises(UsageError, match="tokens are of no use without TLS"):
        load_config(file)
    with pytest.raises(UsageError, match="a token is not sent without TLS"):
        connect(config, token="amcast_x")
    with pytest.raises(UsageError, match="a token is not sent without TLS"):
        connect(["127.0.0.1:7101"], token_file=tmp_path / "x")


def test_a_node_needs_certificates_of_its_own_cluster(tmp_path: Path) -> None:
    async def test() -> None:
        config = plan(tmp_path / "c", "skeen", 1, 1, tls=True)
        LocalCluster.create(tmp_path / "c", config)
        set_up(tmp_path / "c" / "certs", [Identity("process", "g1.p0", "other")], force=True)
        with pytest.raises(UsageError, match=r"the certificate of g1\.p0 is of cluster 'other', and this is 'c'"):
            NodeServer(config, "g1.p0")

    run(test)


@pytest.mark.parametrize("name", ["a b", "shop/2", "", "ä"])
def test_with_tls_a_cluster_has_a_name_that_certificates_can_carry(tmp_path: Path, name: str) -> None:
    config = plan(tmp_path / "c", "skeen", 1, 1, tls=True)
    with pytest.raises(UsageError, match="certificates carry the cluster's name"):
        msgspec.structs.replace(config, cluster=name).check()


def test_any_folder_makes_a_name(tmp_path: Path) -> None:
    for folder in ("my cluster", "Größe", "🎉", ".hidden", "x" * 200):
        plan(tmp_path / folder, "skeen", 1, 1, tls=True).check()


# -- figures


def test_figures_are_plain_on_loopback_alone(tmp_path: Path) -> None:
    set_up(tmp_path, [Identity("process", "g1.p0", "c")])
    tls = Keyring(tmp_path, "g1.p0", lambda reason: None)
    assert metrics_place("127.0.0.1", 7, tls) == ("127.0.0.1", 7, None)
    assert metrics_place("10.0.0.1", 7, None) == ("127.0.0.1", 7, None)
    assert metrics_place("10.0.0.1", 7, tls) == ("10.0.0.1", 7, tls)


def test_elsewhere_they_are_for_clients_of_this_cluster(tmp_path: Path) -> None:
    names = [("process", "g1.p0", "c"), ("client", "alice", "c"), ("client", "bob", "c"), ("client", "carol", "other")]
    set_up(tmp_path, [Identity(*each) for each in names])  # type: ignore[arg-type]
    revoke(tmp_path, ["bob"])

    async def test() -> None:
        tls = Keyring(tmp_path, "g1.p0", lambda reason: None)
        place = metrics_place("0.0.0.0", free_ports(1)[0], tls)
        port = MetricsPort(place, lambda: {"x": ("gauge", "X.", 1)})

        async def get(context: ssl.SSLContext | None) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=context)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            try:
                return await reader.read()
            except OSError as error:
                return str(error).encode()
            finally:
                writer.close()

        assert b"\nx 1\n" in await get(Keyring(tmp_path, "alice").client)
        for name in ("bob", "carol"):
            assert b"x 1" not in await get(Keyring(tmp_path, name).client)
        assert b"x 1" not in await get(None)
        await port.close()

    run(test)
