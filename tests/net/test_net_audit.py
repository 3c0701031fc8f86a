"""The audit log: what is in it, that it stays small whatever strangers do, and that it stops nothing."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from amcast.core import UsageError
from amcast.net.client.async_client import connect
from amcast.net.node import _audit
from amcast.net.node._audit import Audit, Rate
from amcast.net.node._status import status_of
from amcast.net.system import System, use

from .clusters import Cluster, eventually, run, running
from .test_net_frames import Caller


class Clock(System):
    """Stands until it is told the time."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_us(self) -> int:
        return int(self.now_s * 1e6)


def lines_in(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def audit_of(cluster: Cluster, name: str = "g1.p0") -> Path:
    return cluster.config.path("data/audit") / f"{name}.jsonl"


def test_who_connects_and_who_is_refused_is_written_down(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1, tls=True, tokens=True) as cluster:
            path = audit_of(cluster)

            def refused() -> list[dict[str, object]]:
                return [line for line in lines_in(path) if line["event"] == "refused"]

            token = cluster.config.path("operator.token").read_text().strip()
            async with connect(cluster.config, token=token) as client:
                await client.multicast(["g1"], b"x")
            with pytest.raises(UsageError):
                await connect(cluster.config, token="a-guess").__aenter__()
            async with Caller.dial(cluster) as caller:
                caller.say(b"this is no TLS")
                await eventually(lambda: len(refused()) == 2, "both are written down")
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            lines = lines_in(path)
            peers = {line["who"] for line in lines if line["event"] == "connected" and "token" not in line}
            assert {"g1.p1", "g1.p2"} <= peers
            clients = [line for line in lines if line.get("token") == "operator"]
            assert clients
            assert all(str(line["address"]).startswith("127.0.0.1:") for line in clients)
            guess = next(line for line in refused() if "token" in str(line["reason"]))
            assert guess["who"] == "client client"
            assert next(line for line in refused() if line != guess)["who"] == "a stranger"
            assert token not in path.read_text()
            assert "a-guess" not in path.read_text()

    run(test)


def test_a_flood_of_refusals_writes_few_lines_and_hides_nothing_else(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit" / "g1.p0.jsonl", Clock()
    with use(clock):
        audit = Audit(path, "g1.p0")
        written = [audit.note("refused", "a stranger", reason="no HELLO came") for _ in range(10_000)]
        assert written == [True] * 100 + [False] * 9_900
        assert audit.note("connected", "g1.p1")
        assert audit.note("credentials changed", reason="token alice is revoked")
        clock.now_s += 1
        assert audit.note("refused", "a stranger")
        audit.close()
    lines = lines_in(path)
    assert len(lines) == 103
    assert lines[-1]["skipped"] == 9_900
    assert [line["event"] for line in lines[100:]] == ["connected", "credentials changed", "refused"]


def test_full_files_are_renamed_and_old_ones_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_audit, "FILE_BYTES", 1_000)
    monkeypatch.setattr(_audit, "FILES", 3)
    audit = Audit(tmp_path / "a.jsonl", "g1.p0")
    for number in range(100):
        audit.note("credentials changed", reason=f"number {number}")
    audit.close()
    again = Audit(tmp_path / "a.jsonl", "g1.p0")  # after a restart it goes on in the same file
    again.note("credentials changed", reason="number 100")
    again.close()
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "a.jsonl.1", "a.jsonl.2"]
    found: list[str] = []
    for name in ("a.jsonl.2", "a.jsonl.1", "a.jsonl"):
        assert (tmp_path / name).stat().st_size <= 1_000
        found += [str(line["reason"]) for line in lines_in(tmp_path / name)]
    assert found == [f"number {number}" for number in range(101 - len(found), 101)]
    assert len(found) > 14


def test_what_a_stranger_chooses_is_cut_and_quoted(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "a.jsonl", "g1.p0")
    audit.note("refused", 'x"}\n{"event":"connected' + "y" * 10_000, reason="\x1b[31m\ud800"[:-1])
    audit.close()
    (line,) = lines_in(tmp_path / "a.jsonl")
    assert line["event"] == "refused"
    assert len(str(line["who"])) == 300


class FullDisk(System):
    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_that_can_not_be_written_is_a_warning(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "a.jsonl", "g1.p0")
    with use(FullDisk()):
        assert audit.note("credentials changed")
    assert audit.problem == "the audit log can't be written: No space left on device"
    audit.note("credentials changed")
    assert audit.problem is None
    audit.close()


def test_status_says_that_the_log_can_not_be_written(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            server = cluster.servers["g1.p0"]
            server.audit.problem = "the audit log can't be written: Input/output error"
            assert status_of(server).warnings == (server.audit.problem,)

    run(test)


def test_a_rate_comes_back_with_time_and_no_more() -> None:
    clock = Clock()
    with use(clock):
        rate = Rate(2, 3)
        assert [rate.take() for _ in range(5)] == [True] * 3 + [False] * 2
        clock.now_s += 0.5
        assert [rate.take(), rate.take()] == [True, False]
        clock.now_s += 1_000
        assert [rate.take() for _ in range(4)] == [True] * 3 + [False]
