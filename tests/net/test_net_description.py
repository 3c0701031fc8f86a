"""What a real cluster says of its run is what the checker can judge: every protocol passes, however it was traced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from amcast.check import check_run
from amcast.check.report import ABOUT_THE_WIRE
from amcast.net.client.async_client import connect
from amcast.net.local import LocalCluster, plan
from amcast.net.trace.collect import Collector
from amcast.protocols import MULTICAST_PROTOCOLS, PROTOCOLS
from amcast.sim import Simulation, scenario
from amcast.trace import read_run
from tests.cli.cli_harness import Cli
from tests.net.clusters import run, running

DESTINATIONS = (["g1"], ["g2"], ["g1", "g2"])  # and nothing to g3


def traced_run(folder: Path, protocol: str, wire: bool) -> LocalCluster:
    """Two clients of a cluster of three groups multicast to g1 and g2 alone, and everything is delivered."""

    async def test() -> None:
        async with running(folder, protocol, 3, trace=True, trace_wire=wire) as cluster:
            for _ in range(2):
                async with connect(cluster.config) as client:
                    await asyncio.gather(*(client.multicast(dst, b"x") for dst in DESTINATIONS))
            assert await LocalCluster(folder).drain()

    run(test)
    return LocalCluster(folder)


@pytest.mark.parametrize("wire", [False, True], ids=["default", "wire"])
@pytest.mark.parametrize("protocol", MULTICAST_PROTOCOLS)
def test_a_run_with_an_idle_group_passes(
    protocol: str, wire: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = traced_run(tmp_path / "c", protocol, wire)
    cluster.collect(tmp_path / "run", complete=True)
    traced = read_run(tmp_path / "run")
    assert (len(traced.multicasts), len(traced.wire) > 0) == (2 * len(DESTINATIONS), wire)
    report = check_run(traced)
    assert report.verdict == "pass", report
    claims = PROTOCOLS[protocol].claims
    assert set(traced.info.claims) == {claim for claim in claims if wire or claim not in ABOUT_THE_WIRE}
    assert set(traced.info.claims) <= set(report.properties)
    assert Cli(monkeypatch, capsys)("check", tmp_path / "run").code == 0


def test_a_run_that_grew_has_its_facts_when_it_has_ended(tmp_path: Path) -> None:
    """Nobody is a sender at the start: the home group of the client joins the senders to g1 and g2, and g3 has none."""
    options = {"senders_to": {"g1": [], "g2": [], "g3": []}}

    async def test() -> None:
        async with running(tmp_path / "c", "oam", 3, trace=True, options=options) as cluster:
            local = LocalCluster(tmp_path / "c")
            collector = Collector(local.trace_folder, tmp_path / "live", lambda sent: local.run_info(True, sent))
            async with connect(cluster.config) as client:
                for dst in DESTINATIONS:
                    await client.multicast(dst, b"x")
                    collector.step()
            assert await local.drain()
        collector.finish()

    run(test)
    LocalCluster(tmp_path / "c").collect(tmp_path / "whole", complete=True)
    live, whole = read_run(tmp_path / "live"), read_run(tmp_path / "whole")
    assert live.info == whole.info
    home = int(live.multicasts.sender[0]) % 3 + 1
    assert live.info.extra["senders_to"] == {"1": [home], "2": [home], "3": []}


def test_a_group_that_does_not_exist_is_no_matter_of_the_description(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, plan(tmp_path, "oam", 2))
    assert cluster.run_info(True, [(7, 1), (7, 9)]) == cluster.run_info(True, [(7, 1)])


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_simulator_and_cluster_describe_a_run_in_the_same_words(protocol: str, wire: bool, tmp_path: Path) -> None:
    replicas = 4 if PROTOCOLS[protocol].survives_liars else 3
    made = scenario(protocol, "wan", groups=3, replicas=replicas, messages=0, clients=1, records_wire=wire)
    config = plan(tmp_path, protocol, 3, replicas, network="wan", trace_wire=wire)
    simulated = Simulation(made).result().info
    real = LocalCluster.create(tmp_path, config).run_info(False, [])
    assert (simulated.claims, simulated.groups) == (real.claims, real.groups)
    assert set(simulated.extra) - {"scenario", "clients"} == set(real.extra) - {"configuration", "network"}
    client = simulated.extra["clients"][0]
    assert simulated.extra["regions"] == real.extra["regions"] | {str(client): made.topology().region(client)}
