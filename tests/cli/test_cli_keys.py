"""`amcast keys`: signing keys for clusters whose members may lie."""

from __future__ import annotations

import json
from pathlib import Path

from amcast.net.config import load_config
from amcast.net.local import LocalCluster, plan
from tests.cli.cli_harness import Cli


def without_keys(folder: Path) -> Path:
    """A configuration that somebody wrote by hand, before there are keys."""
    LocalCluster.create(folder, plan(folder, "byzcast", 1))
    lines = (folder / "cluster.toml").read_text().splitlines()
    (folder / "cluster.toml").write_text("\n".join(line for line in lines if not line.startswith("key =")) + "\n")
    for key in (folder / "keys").iterdir():
        key.unlink()
    return folder / "cluster.toml"


def test_the_lines_that_are_printed_make_a_configuration(cli: Cli, tmp_path: Path) -> None:
    path = without_keys(tmp_path / "c")
    refused = cli("config", "check", path)
    assert refused.code == 2
    assert "g1.p0 has no signing key" in refused.out + refused.err
    printed = dict(line.split(": ", 1) for line in cli("keys", "--config", path).out.splitlines())
    assert sorted(printed) == ["g1.p0", "g1.p1", "g1.p2", "g1.p3"]
    lines = []
    for line in path.read_text().splitlines():
        lines.append(line)
        if line.startswith("id = ") and line[6:11] in printed:
            lines.append(printed[line[6:11]])
    path.write_text("\n".join(lines) + "\n")
    load_config(path)
    assert cli("config", "check", path, "--id", "g1.p0").code == 0


def test_a_key_is_made_once(cli: Cli, tmp_path: Path) -> None:
    path = without_keys(tmp_path / "c")
    first = json.loads(cli("keys", "g1.p0", "--config", path, "--json").out)
    assert list(first["keys"]) == ["g1.p0"]
    assert Path(first["files"]["g1.p0"]).stat().st_mode & 0o077 == 0
    assert not (path.parent / "keys" / "g1.p1.key").exists()
    assert json.loads(cli("keys", "g1.p0", "--config", path, "--json").out) == first


def test_a_cluster_that_needs_no_keys_gets_none(cli: Cli, tmp_path: Path) -> None:
    LocalCluster.create(tmp_path / "c", plan(tmp_path / "c", "fastcast", 1))
    assert "fastcast survives no liars" in cli.refuses("keys", "--config", tmp_path / "c" / "cluster.toml")


def test_a_process_that_is_not_there_is_named(cli: Cli, tmp_path: Path) -> None:
    refusal = cli.refuses("keys", "g7.p0", "--config", without_keys(tmp_path / "c"))
    assert "there is no process 'g7.p0'" in refusal
