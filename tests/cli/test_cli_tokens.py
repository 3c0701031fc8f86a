"""A cluster that asks for tokens, from the command line: our own tools get in, others hear why they do not."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from amcast.core import UsageError
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan
from tests.cli.cli_harness import Cli


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Where the tools look for one."""
    folder = tmp_path / ".amcast"
    config = plan(folder, "skeen", 1, durability=Durability.MEMORY, tls=True, tokens=True, trace=True)
    cluster = LocalCluster.create(folder, config)
    try:
        cluster.start()
        asyncio.run(cluster.wait_until_ready())
        yield cluster
    finally:
        cluster.stop()


def done(cli: Cli, *words: object) -> str:
    outcome = cli(*words)
    assert outcome.code == 0, outcome
    return outcome.out


def test_every_tool_works_with_tokens(cli: Cli, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMCAST_TOKEN", raising=False)
    done(cli, "send", "g1", "the operator's own token is in the folder")
    own = cluster.folder / "operator.token"
    secret = own.read_text().strip()
    shown = ("--token-file", own.rename(cluster.folder / "elsewhere"))

    for words in (("status",), ("send", "g1", "x"), ("tail", "g1"), ("load", "--messages", 1), ("up",)):
        assert "this token is not known here" in cli.refuses(*words)
    done(cli, "up", "--json", *shown)
    done(cli, "send", "g1", "hello", *shown)
    done(cli, "load", "--messages", 10, "--destinations", 1, "--json", *shown)
    assert json.loads(done(cli, "tail", "g1", "-n", 1, "--json", *shown))["position"] == 0
    monkeypatch.setenv("AMCAST_TOKEN", secret)
    status = json.loads(done(cli, "status", "--json"))
    assert status["processes"][0]["warnings"] == []
    assert "12 messages in run" in done(cli, "down", "--collect", "run")


def test_tokens_are_kept_where_the_nodes_of_this_folder_look(cli: Cli, cluster: LocalCluster) -> None:
    done(cli, "token", "add", "bob", "--send", "g1", "--out", "bob.token")
    assert "bob" in (cluster.folder / "tokens.toml").read_text()
    assert [each["name"] for each in json.loads(done(cli, "token", "list", "--json"))["tokens"]] == ["operator", "bob"]
    done(cli, "token", "revoke", "bob")
    assert "bob" not in (cluster.folder / "tokens.toml").read_text()


def test_tokens_of_a_local_cluster_come_with_tls(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tokens are of no use without TLS"):
        plan(tmp_path / "c", "skeen", tokens=True)


def test_a_hangup_has_a_node_read_its_files_and_ends_nothing(cli: Cli, cluster: LocalCluster) -> None:
    config = cluster.folder / "cluster.toml"
    whole = config.read_text()
    config.write_text(whole + "broken")
    log = cluster.log_file("g1.p0")
    cluster.signal("g1.p0", signal.SIGHUP)
    while "what was there before stays" not in log.read_text():
        assert cluster.pid("g1.p0") is not None, "it has ended"
    config.write_text(whole)
    done(cli, "send", "g1", "it goes on")
