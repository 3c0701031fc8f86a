"""`amcast up --app`: an application of one's own inside the nodes, by the public interface alone."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import amcast
from amcast.net.local import LocalCluster
from tests.cli.test_cli_cluster import amcast as program
from tests.cli.test_cli_cluster import document

BANK = Path(__file__).parents[2] / "examples" / "bank" / "bank.py"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    shutil.copy(BANK, tmp_path)
    yield tmp_path
    if (tmp_path / ".amcast" / "cluster.toml").exists():
        LocalCluster(tmp_path / ".amcast").stop()


def load_bank() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bank", BANK)
    assert spec is not None
    assert spec.loader is not None
    bank = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bank)
    return bank


def test_the_bank_lives_in_the_nodes_and_keeps_its_accounts(folder: Path) -> None:
    bank = load_bank()
    program("up", "--app", "bank:Bank", cwd=folder)

    async def transfer(amount: int) -> Any:
        async with amcast.connect(folder / ".amcast" / "cluster.toml") as client:
            is_made = await bank.transfer(client, "ann@g1", "eve@g2", amount)
            balances = [await bank.balance(client, account) for account in ("ann@g1", "eve@g2")]
            return is_made, *balances, await bank.total(client)

    async def deposit() -> None:
        async with amcast.connect(folder / ".amcast" / "cluster.toml") as client:
            await bank.deposit(client, "ann@g1", 100)

    asyncio.run(deposit())
    assert asyncio.run(transfer(10)) == (True, 90, 10, 100)
    LocalCluster(folder / ".amcast").kill("g1.p0")
    assert asyncio.run(transfer(5)) == (True, 85, 15, 100)
    program("down", cwd=folder)
    program("up", "--app", "bank:Bank", cwd=folder)
    assert asyncio.run(transfer(86)) == (False, 85, 15, 100)
    status = document("status", cwd=folder)
    assert all(process["application"] == process["delivered"] for process in status["processes"])

    async def nonsense(payload: bytes) -> Any:
        async with amcast.connect(folder / ".amcast" / "cluster.toml") as client:
            return await client.call({"g1", "g2"}, payload)

    for payload in (b"no JSON", b"[" * 100_000, b"[]", b'{"from": 1, "to": 2, "amount": 3}', b'{"deposit": "x"}'):
        assert asyncio.run(nonsense(payload)) == {"g1": b"nonsense", "g2": b"nonsense"}, "and nobody has stopped"
    wrong = b'{"from": "ann@g1", "to": "eve@g3", "amount": 1}'
    assert asyncio.run(nonsense(wrong)) == {"g1": b"refused", "g2": b"refused"}, "money must not vanish"
    assert asyncio.run(transfer(1)) == (True, 84, 16, 100)
    assert "its app is" in program("up", "--app", "shop:Shop", cwd=folder, code=2)


@pytest.mark.parametrize(
    ("app", "problem"),
    [
        ("bank", "'bank' names no application: name it as module:Factory, or as path/file.py:Factory"),
        ("bank:Shop", "there is no application 'Shop' in"),
        ("shop:Shop", "the application shop:Shop can't be loaded: ModuleNotFoundError: No module named 'shop'"),
        ("shop.py:Shop", "there is no file"),
        ("bad.py:Bad", "can't be loaded: SyntaxError"),
        ("raises.py:Bad", "can't be made: KeyError: 'g1'"),
        ("wrong.py:Bad", "makes a str, which is no amcast.StateMachine"),
    ],
)
def test_what_is_wrong_with_an_application_is_said_at_once(app: str, problem: str, folder: Path) -> None:
    (folder / "bad.py").write_text("def Bad(:")
    (folder / "raises.py").write_text("def Bad(group):\n    raise KeyError(group)\n")
    (folder / "wrong.py").write_text("def Bad(group):\n    return group\n")
    output = program("up", "--app", app, cwd=folder, code=2)
    assert problem in output
    assert len(output.strip().splitlines()) == 1
    assert not (folder / ".amcast").exists()


def test_an_application_takes_no_other_modules_place(folder: Path) -> None:
    """Its file may be called like a module of Python's own."""
    (folder / "apps").mkdir()
    for name in ("queue", "json"):
        shutil.copy(BANK, folder / "apps" / f"{name}.py")
        program("up", "--app", f"apps/{name}.py:Bank", "-p", "skeen", "--groups", "1", "-d", name, cwd=folder)
        problem = program("up", "--groups", "2", "-d", name, cwd=folder, code=2)
        assert f"`amcast down --purge -d {name}`" in problem, "and not that of the default folder"
        program("down", "--purge", "-d", name, cwd=folder)


def test_status_says_why_a_process_has_ended(folder: Path) -> None:
    (folder / "poison.py").write_text(
        "import amcast\n"
        "class Bad(amcast.StateMachine):\n"
        "    def __init__(self, group): ...\n"
        "    def apply(self, message): raise ValueError('no taste')\n"
        "    def snapshot(self): return b''\n"
        "    def restore(self, state): ...\n"
    )
    program("up", "--app", "poison:Bad", "-p", "skeen", "--groups", "1", cwd=folder)
    program("send", "g1", "poison", "--timeout", "1", cwd=folder, code=1)
    output = program("status", cwd=folder, code=1)
    assert "g1.p0 said last: " in output
    assert "the application failed to apply a message at position 0: ValueError: no taste" in output
    (process,) = json.loads(program("status", "--json", cwd=folder, code=1))["processes"]
    assert "no taste" in process["last_words"]
    assert "g1.p0 ended with code 2" in program("up", cwd=folder, code=2), "the message is still there"


def test_up_does_not_wait_for_a_process_that_has_ended(folder: Path) -> None:
    program("up", "-p", "skeen", "--groups", "2", cwd=folder)
    cluster = LocalCluster(folder / ".amcast")
    cluster.start_missing()
    cluster.kill("g2.p0")
    with pytest.raises(amcast.UsageError, match=r"g2\.p0 has ended meanwhile"):
        asyncio.run(cluster.wait_until_ready())
    program("up", cwd=folder)


def test_help_names_what_a_program_uses() -> None:
    for name in amcast.__all__:
        assert getattr(amcast, name) is not None
        assert name in dir(amcast)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = amcast.nothing


PICKY = """
import amcast

class Picky(amcast.StateMachine):
    def __init__(self, group): self.count = 0
    def apply(self, message):
        if message.payload == b"poison": raise ValueError("no taste")
        self.count += 1
        return b"%d" % self.count
    def snapshot(self): return b"%d" % self.count
    def restore(self, state): self.count = int(state)
"""


def test_a_message_that_stops_a_group_is_skipped(folder: Path) -> None:
    (folder / "picky.py").write_text(PICKY)
    program("up", "--groups", "1", "--app", "picky.py:Picky", cwd=folder)
    program("send", "g1", "hello", cwd=folder)
    cluster = LocalCluster(folder / ".amcast")
    cluster.signal("g1.p2", signal.SIGSTOP)
    program("send", "g1", "poison", "--timeout", "3", cwd=folder, code=1)
    cluster.signal("g1.p2", signal.SIGCONT)  # it runs, and has not met the message yet
    assert "at position 1: ValueError: no taste" in program("status", cwd=folder, code=1)
    assert "as g1=7" in program("up", "--hold-at", "1", cwd=folder, code=2)
    assert "there is no group g2" in program("up", "--hold-at", "g2=1", cwd=folder, code=2)
    program("up", "--hold-at", "g1=1", cwd=folder)
    assert "on hold at position 1" in program("status", cwd=folder)
    assert "no member of g1 holds its application at position 5" in program("skip", "g1", "5", cwd=folder, code=2)
    assert document("skip", "g1", "1", cwd=folder) == {"group": "g1", "skipped": 1}
    program("send", "g1", "on we go", cwd=folder)
    status = document("status", cwd=folder)
    assert all(process["application"] == process["delivered"] == 4 for process in status["processes"])
