"""Who may connect to a cluster with TLS and tokens, and who may not; and what people can see from outside."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from amcast import connect_sync
from amcast.core import UsageError
from amcast.net.client.async_client import connect
from amcast.net.security.access import add_token
from amcast.net.security.certs import set_up
from amcast.net.security.identity import Identity

from .clusters import eventually, run, running


def test_a_cluster_with_tls(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", tls=True) as cluster:
            async with connect(cluster.config) as client:
                await client.multicast(["g1", "g2"], b"secret")
            # A folder of another authority: its certificates mean nothing here.
            set_up(tmp_path / "other", [Identity("client", "client", "c")])
            with pytest.raises(UsageError, match="no process of the cluster answers"):
                async with connect(cluster.config, certs=tmp_path / "other"):
                    pass
            plain = [f"{host}:{port}" for host, port in cluster.config.addresses().values()]
            with pytest.raises(UsageError, match="no process of the cluster answers"):
                async with connect(plain):
                    pass
            async with connect(cluster.config) as client:
                await client.multicast(["g1"], b"the cluster goes on")

    run(test)


def test_a_client_does_what_its_token_allows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def test() -> None:
        folder = tmp_path / "c"
        folder.mkdir()
        token = add_token(folder / "tokens.toml", "alice", ["g1"], ["g2"])
        async with running(folder, tls=True, tokens=True) as cluster:
            config = cluster.config
            with pytest.raises(UsageError, match="this token is not known here"):
                async with connect(config, token="guessed"):
                    pass
            async with connect(config, token=token) as client:
                await client.multicast(["g1"], b"allowed")
                with pytest.raises(TimeoutError, match="has no right to send to g2"):
                    await client.multicast(["g2"], b"not allowed", timeout=1)
                with pytest.raises(UsageError, match="has no right to follow g1"):
                    await anext(client.deliveries("g1"))
                first = asyncio.create_task(anext(client.deliveries("g2")))
                await eventually(lambda: any(s.node.clients.channels for s in cluster.servers.values()), "it follows")
                first.cancel()
        assert token not in caplog.text
        assert "guessed" not in caplog.text

    run(test)


def test_figures_for_prometheus(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, metrics=True) as cluster, connect(cluster.config) as client:
            await client.multicast(["g1"], b"x")
            port = cluster.config.process_named("g1.p0").metrics

            async def get(path: str) -> str:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                answer = (await reader.read()).decode()
                writer.close()
                await writer.wait_closed()
                return answer

            page = await get("/metrics")
            assert page.startswith("HTTP/1.1 200 OK\r\n")
            assert "\namcast_delivered_total 1\n" in page
            assert "# TYPE amcast_is_leader gauge\namcast_is_leader 1\n" in page
            assert (await get("/")).startswith("HTTP/1.1 404")

    run(test)


def test_a_client_without_an_event_loop(tmp_path: Path) -> None:
    async def test() -> None:
        def work(config: object) -> list[bytes]:
            with connect_sync(config) as client:  # type: ignore[arg-type]
                client.multicast(["g1"], b"0")
                several = [client.multicast_nowait(["g1", "g2"], b"%d" % number) for number in (1, 2)]
                assert len({future.result() for future in several}) == 2
                stream = client.deliveries("g1")
                seen = [next(stream).payload for _ in range(3)]
                stream.close()
                return seen

        async with running(tmp_path / "c") as cluster:
            seen = await asyncio.to_thread(work, cluster.config)
            assert seen[0] == b"0"
            assert set(seen) == {b"0", b"1", b"2"}

    run(test)


def test_links_are_as_slow_as_the_distance_that_they_emulate(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, network="wan") as cluster:
            loop = asyncio.get_running_loop()
            async with connect(cluster.config, region="R1") as client:
                await client.multicast(["g1"], b"warm up the connections")
                begun = loop.time()
                await client.multicast(["g1"], b"x")
                took = loop.time() - begun
            # From R1, the leader is in R1 and the nearest follower 35 ms away: there and back is the least.
            assert took > 0.06

    run(test)
