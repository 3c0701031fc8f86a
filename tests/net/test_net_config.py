"""`cluster.toml`: what it says, and what is wrong with it, in one line."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from amcast.core import UsageError
from amcast.net.config import Limits, TlsFiles, format_config, load_config
from amcast.net.disk.records import Durability
from amcast.net.local import plan

HEAD = 'cluster = "c"\nprotocol = "fastcast"\n'


def process(id_: str, port: int = 7001) -> str:
    return f'[[process]]\nid = "{id_}"\naddress = "127.0.0.1:{port}"\n'


GROUP = "".join(process(f"g1.p{index}", 7001 + index) for index in range(3))


def test_it_survives_being_written_and_read(tmp_path: Path) -> None:
    options = {"wrong_guesses": True, "paxos": {"window": 3}}
    config = plan(tmp_path, "fastcast", 2, network="wan", durability=Durability.ASYNC, trace=True, options=options)
    config = msgspec.structs.replace(config, tls=TlsFiles("certs"), tokens="t.toml", limits=Limits(clients=3))
    path = tmp_path / "cluster.toml"
    path.write_text(format_config(config))
    assert load_config(path) == msgspec.structs.replace(config, name="cluster.toml")
    assert {entry.region for entry in config.process} == {"R1", "R2", "R3"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + GROUP + process("g1.p0", 7009), "process g1.p0 is named twice"),
        (HEAD + GROUP + process("g3.p0", 7009), "group g2 has no members"),
        (HEAD, "missing required field `process`"),
        (HEAD + "process = []", "there is no process in this cluster"),
        (HEAD + process("g1.p0") + process("g1.p1", 7002), "group g1 has 2 members: such groups have no majority"),
        (HEAD + process("g1.p1"), "the members of g1 are not p0 to p0"),
        (HEAD + process("g1.p0") + process("g2.p0"), "two processes have the address 127.0.0.1:7001"),
        (HEAD + process("p0"), "'p0' is no process name: use for example g1.p0"),
        (HEAD + process("g1.p0", 70_000), "'127.0.0.1:70000' is no address"),
        (HEAD.replace("fastcast", "slowcast") + GROUP, "there is no protocol 'slowcast'"),
        (HEAD + 'durability = "hope"\n' + GROUP, "Invalid enum value 'hope'"),
        (HEAD + 'network = "moon"\n' + GROUP, "there is no network 'moon'"),
        (HEAD + "colour = 3\n" + GROUP, "unknown field `colour`"),
        (HEAD + GROUP + "[options]\nwrong_gueses = true\n", "does not suit fastcast"),
        (HEAD + "= 3", "Invalid"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_config(path)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"can't read .*: No such file or directory; `amcast up` makes one"):
        load_config(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "name", ["🐙", 'a"b\\c', "tab\tnew\nline", "del\x7f", "\x1b[31m", "naïve", os.fsdecode(b"\xff")]
)
def test_whatever_a_folder_is_called_its_configuration_can_be_read(name: str, tmp_path: Path) -> None:
    made = plan(tmp_path / name, "skeen", 1, 1)
    (tmp_path / "cluster.toml").write_text(format_config(made), encoding="utf-8")
    assert load_config(tmp_path / "cluster.toml").cluster == made.cluster
