"""`amcast config check` finds every problem at once, also in what the file names; `show` prints what is in force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amcast.net.config import load_config
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster, plan
from tests.cli.cli_harness import Cli

SOUND = """
cluster = "shop"
id = "5f1c9a0b7d3e2468"
protocol = "fastcast"

[[process]]
id = "g1.p0"
address = "127.0.0.1:7101"

[[process]]
id = "g1.p1"
address = "127.0.0.1:7102"

[[process]]
id = "g1.p2"
address = "127.0.0.1:7103"
"""


def findings(cli: Cli, text: str, *options: str, code: int = 2) -> dict[str, Any]:
    Path("cluster.toml").write_text(text)
    outcome = cli("config", "check", "cluster.toml", "--json", *options)
    assert outcome.code == code, outcome
    found: dict[str, Any] = outcome.json
    assert found["ok"] == (not found["errors"]) == (code == 0)
    return found


def test_a_sound_file_has_nothing_to_tell(cli: Cli) -> None:
    found = findings(cli, SOUND, code=0)
    assert found == {"file": "cluster.toml", "ok": True, "errors": [], "warnings": []}
    assert cli("config", "check", ".").out == "cluster.toml can be used: 3 processes in 1 group, fastcast\n"


def test_the_cluster_of_this_folder_is_looked_at_if_no_file_is_named(cli: Cli) -> None:
    Path("cluster.toml").write_text(SOUND)
    assert cli("config", "check", "--json").json["file"] == "cluster.toml"
    Path(".amcast").mkdir()
    Path(".amcast/cluster.toml").write_text(SOUND.replace("fastcast", "basecast"))
    assert cli("config", "check", "--json").json["file"] == ".amcast/cluster.toml"
    assert cli("config", "show", "--json").json["protocol"] == "basecast"


def test_all_wrong_types_are_told_at_once(cli: Cli) -> None:
    text = SOUND.replace('"127.0.0.1:7102"', "7102") + '[limits]\nopen_mesages = 1\nclients = "many"\nslow_ms = 0\n'
    text = 'durability = "memry"\n' + text.replace('protocol = "fastcast"\n', "")
    assert findings(cli, text)["errors"] == [
        "durability: 'memry' is none of sync, async, memory",
        "process 2: address: expected `str`, got `int`",
        "limits.open_mesages: there is no such setting, perhaps you mean open_messages",
        "limits.clients: expected `int`, got `str`",
        "limits.slow_ms: expected `int` >= 1",
        "protocol is missing",
    ]


def test_one_process_in_place_of_many_is_told(cli: Cli) -> None:
    text = SOUND.split("[[process]]")[0] + '[process]\nid = "g1.p0"\naddress = "127.0.0.1:7101"\n'
    assert findings(cli, text)["errors"] == ["process: there may be many, so write [[process]] and not [process]"]
    (error,) = findings(cli, "process = 5\n" + SOUND.split("[[process]]")[0])["errors"]
    assert error.startswith("process: expected `array`")


def test_problems_of_the_file_and_of_what_it_names_are_told_together(cli: Cli) -> None:
    text = SOUND.replace("g1.p2", "g1.p3").replace("fastcast", "fastcats").replace('id = "5f1c9a0b7d3e2468"\n', "")
    errors = findings(cli, 'tokens = "tokens.toml"\n' + text + '[tls]\nfolder = "certs"\n')["errors"]
    for each, expected in zip(
        errors,
        ("no protocol 'fastcats'", "not p0 to p2", "has no id", "no folder", "tokens.toml does not exist"),
        strict=True,
    ):
        assert expected in each


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("127.0.0.1:7102", "localhost:7101", "the address of g1.p0 and the address of g1.p1 are both at port 7101"),
        (':7102"', ':7102"\nmetrics = 7103', "the page for Prometheus of g1.p1 and the address of g1.p2 are both at"),
        ("127.0.0.1:7102", "10.0.0.9:7102", "g1.p1 would listen on 10.0.0.9:7102 without TLS"),
        ("\n\n", '\napp = "nope.py:Shop"\n\n', "there is no file"),
        ("\n\n", '\ndata = "cluster.toml"\n\n', "cluster.toml is no folder"),
    ],
)
def test_errors(cli: Cli, before: str, after: str, expected: str) -> None:
    (error,) = findings(cli, SOUND.replace(before, after, 1))["errors"]
    assert expected in error


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        ('durability = "async"', "durability is async: a power failure may lose what was acknowledged"),
        ('network = "wan"', "network is wan"),
        ("trace_wire = true", "trace_wire is on"),
        ("epoch_s = 4000000000", "epoch_s is in the future"),
        ("limits.open_bytes = 4096\nlimits.client.open_bytes = 4096", "limits.open_bytes is below"),
        ("limits.clients = 2", "limits.client.sessions is above limits.clients"),
    ],
)
def test_what_is_odd_is_a_warning(cli: Cli, addition: str, expected: str) -> None:
    (warning,) = findings(cli, addition + SOUND, code=0)["warnings"]
    assert expected in warning


def test_members_that_fall_together_are_a_warning(cli: Cli) -> None:
    text = SOUND.replace("127.0.0.1:7101", "10.0.0.1:7101").replace("127.0.0.1:7102", "10.0.0.1:7102")
    warnings = findings(cli, "insecure = true" + text, code=0)["warnings"]
    assert "2 of 3 members of g1 are on 10.0.0.1: with it, the group stops" in warnings
    assert "g1.p0, g1.p1 would listen without TLS: whoever reaches them may do everything" in warnings
    alone = SOUND.split('[[process]]\nid = "g1.p1"')[0]
    assert "g1 has one member" in findings(cli, alone, code=0)["warnings"][0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    LocalCluster.create(made, plan(made, "skeen", 2, durability=Durability.SYNC, tls=True, tokens=True))
    return made


def test_certificates_and_tokens_are_looked_at(cli: Cli, folder: Path) -> None:
    assert cli("config", "check", folder, "--id", "g1.p0").code == 0
    (folder / "certs" / "g1.p0.key").chmod(0o644)
    (folder / "certs" / "g2.p0.crt").unlink()
    (folder / "tokens.toml").write_text("")
    outcome = cli("config", "check", folder)
    assert outcome.code == 0
    assert "g1.p0.key can be read by others" in outcome.out
    assert "has no certificate of g2.p0: all is well if they run elsewhere" in outcome.out
    assert "has no token" in outcome.out
    outcome = cli("config", "check", folder, "--id", "g2.p0")
    assert outcome.code == 2
    assert "g2.p0.crt" in outcome.out


def test_certificates_of_another_cluster_are_an_error(cli: Cli, folder: Path) -> None:
    path = folder / "cluster.toml"
    path.write_text(path.read_text().replace('cluster = "made"', 'cluster = "other"'))
    errors = cli("config", "check", folder, "--json").json["errors"]
    assert sum("is of cluster 'made', and this is 'other'" in each for each in errors) == 2


def test_data_folders_of_another_layout_are_an_error(cli: Cli, folder: Path) -> None:
    path = folder / "cluster.toml"
    path.write_text(path.read_text().replace("epoch_s = 1", "epoch_s = 2"))
    errors = cli("config", "check", folder, "--json").json["errors"]
    assert len(errors) == 2
    assert all("epoch_s is 2" in each for each in errors)


def test_a_process_that_is_to_run_here_needs_its_folder(cli: Cli) -> None:
    (error,) = findings(cli, SOUND, "--id", "g1.p1")["errors"]
    assert "is not formatted" in error
    assert cli("init", "--config", "cluster.toml", "--id", "g1.p1").code == 0
    assert findings(cli, SOUND, "--id", "g1.p1", code=0)["errors"] == []
    assert findings(cli, SOUND, "--id", "g4.p1")["errors"] == ["there is no process 'g4.p1' in this cluster"]


def test_what_can_not_be_read_is_one_error(cli: Cli) -> None:
    assert findings(cli, "cluster = ")["errors"] == ["Invalid value (at end of document)"]
    outcome = cli("config", "check", "nope.toml")
    assert outcome.code == 2
    assert "can't read nope.toml" in outcome.out


def test_show_prints_what_is_in_force(cli: Cli) -> None:
    Path("cluster.toml").write_text(SOUND)
    shown = cli("config", "show")
    assert shown.code == 0
    assert "keep_messages = 10000000" in shown.out
    Path("again.toml").write_text(shown.out)
    assert load_config(Path("again.toml")).limits == load_config(Path("cluster.toml")).limits
    document = cli("config", "show", "cluster.toml", "--json").json
    assert document["limits"]["client"]["sessions"] == 2_048
    assert "can't read" in cli.refuses("config", "show", "nope.toml")
