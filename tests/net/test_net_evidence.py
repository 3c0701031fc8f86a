"""What was not recorded of a cluster is noticed: a process, a boot, the last deliveries, the end of a client."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from amcast.check import check_run
from amcast.core import AppMessage, message_id
from amcast.core.ids import sender_of
from amcast.net.client.async_client import AsyncClient, connect
from amcast.net.disk.records import Durability
from amcast.net.local import LocalCluster
from amcast.net.trace import _intake
from amcast.net.trace._multicasts import Ids
from amcast.net.trace._rawfile import ROWS, RawFile
from amcast.net.trace.clients import CAME, LEFT, ClientEnds, ClientTrace, ClientWord
from amcast.net.trace.collect import Boots, Collector, Expected, collect
from amcast.net.trace.writer import TraceWriter
from amcast.trace import FINAL, GroupInfo, RunInfo, read_run, read_run_info
from amcast.trace.schema import CRASH
from tests.cli.cli_harness import Cli
from tests.net.clusters import Cluster, eventually, run, running
from tests.net.raw_traces import kill

CLIENT = 9
CHANNELS = {CLIENT: SimpleNamespace(region="mars")}
INFO = RunInfo(
    run_id="real",
    protocol="fastcast",
    seed=0,
    complete=True,
    groups=(GroupInfo(1, (0, 1)), GroupInfo(2, (2,))),
    correct=(0, 1, 2),
)
BOOTS = {0: 2, 1: 1, 2: 3}
WHOLE = {process: Expected(Boots(boots), 2) for process, boots in BOOTS.items()}


def write_boot(raw: Path, process: int, boot: int) -> TraceWriter:
    """Each boot delivers the same two messages again."""
    writer = TraceWriter(raw, process, process // 2 + 1, boot, wire=True)
    for seq in range(2):
        message = message_id(CLIENT, seq)
        writer.multicast(message, CLIENT, seq, (1, 2), 100 + seq, 8)
        writer.delivery(seq, message, FINAL, seq + 1, 200 + 10 * boot + seq)
    return writer


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    for process, boots in BOOTS.items():
        for boot in range(1, boots + 1):
            writer = write_boot(tmp_path / "raw", process, boot)
            writer.close() if boot == boots else kill(writer)
    return tmp_path / "raw"


def missing(raw: Path, expected: dict[int, Expected], info: RunInfo = INFO) -> tuple[str, ...]:
    """What a run lacks, the same in one that is collected at the end and in one that grew."""
    runs = raw.parent / "runs"
    number = len(list(runs.iterdir())) if runs.exists() else 0
    report = collect(raw, runs / f"run-{number}", lambda sent: info, lambda: expected)
    live = Collector(raw, runs / f"live-{number}", lambda sent: info, lambda: expected)
    live.step()
    assert live.finish().missing == report.missing
    run = read_run(runs / f"run-{number}")
    assert run.info.missing == read_run_info(runs / f"live-{number}").missing == report.missing
    assert check_run(run).verdict == ("unknown" if report.missing or not info.complete else "pass")
    return report.missing


def remove(raw: Path, pattern: str) -> None:
    for path in list(raw.glob(pattern)):
        path.unlink()


# ------------------------------------------------------------------------------------------ what is missing


def test_a_trace_that_is_whole(raw: Path) -> None:
    assert missing(raw, WHOLE) == ()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("*.2.*.raw", "no trace of g2.p0"),
        ("*.2.1.raw", "g2.p0: no trace of its boot 1"),
        ("*.2.2.raw", "g2.p0: no trace of its boot 2"),
        ("*.2.3.raw", "g2.p0: no trace of its boot 3"),
        ("*.2.[12].raw", "g2.p0: no trace of 2 of its boots, the first of them 1"),
        ("faults.0.1.raw", "g1.p0: the trace of its boot 1 has no faults"),
        ("deliveries.1.1.raw", "g1.p1: the trace of its boot 1 has no deliveries"),
    ],
)
def test_files_that_are_gone(raw: Path, pattern: str, words: str) -> None:
    remove(raw, pattern)
    assert words in missing(raw, WHOLE)


def test_no_files_at_all(raw: Path) -> None:
    remove(raw, "*")
    assert missing(raw, WHOLE) == ("no trace of g1.p0", "no trace of g1.p1", "no trace of g2.p0")


def test_a_trace_in_which_nothing_happened(tmp_path: Path) -> None:
    for process in BOOTS:
        TraceWriter(tmp_path / "raw", process, process // 2 + 1, 1, wire=False).close()
    said = missing(tmp_path / "raw", dict.fromkeys(BOOTS, Expected(Boots(1), 0)))
    assert said == ("nothing was multicast: there is nothing to judge",)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (Expected(Boots(3), 2), ()),
        (Expected(Boots(3), None), ()),  # its last boot was closed
        (Expected(None, 2), ()),  # boots 1 to 3 without a gap, up to its last position
        (Expected(None, None), ()),
        (Expected(Boots(4), 2), ("g2.p0: no trace of its boot 4",)),
        (Expected(Boots(3), 3), ("g2.p0: it delivered up to position 3, its trace ends at 2",)),
        (
            Expected(Boots(1), 2),
            (
                "g2.p0: its folder counts 1 boots, and there is a trace of boot 3: the folder was replaced, and boots"
                " since then may have left no trace",
            ),
        ),
    ],
)
def test_what_is_known_of_a_process(raw: Path, expected: Expected, words: tuple[str, ...]) -> None:
    assert missing(raw, WHOLE | {2: expected}) == words


def test_a_boot_that_was_killed_while_it_opened_its_trace(raw: Path) -> None:
    """It did nothing yet: its folder says so, and the tables that it did not come to are no loss."""
    remove(raw, "*.2.2.raw")
    kill(TraceWriter(raw, 2, 2, 2, wire=True))
    remove(raw, "deliveries.2.2.raw")
    assert missing(raw, WHOLE) == ("g2.p0: the trace of its boot 2 has no deliveries",)
    was_idle = Expected(Boots(3, frozenset({2})), WHOLE[2].position)
    assert missing(raw, {**WHOLE, 2: was_idle}) == ()


def test_a_boot_that_did_nothing_by_its_folder_and_something_by_its_trace(raw: Path) -> None:
    """Its folder is an old copy, from a moment before it took part: the trace is believed."""
    remove(raw, "deliveries.2.2.raw")
    was_idle = Expected(Boots(3, frozenset({2})), WHOLE[2].position)
    assert missing(raw, {**WHOLE, 2: was_idle}) == ("g2.p0: the trace of its boot 2 has no deliveries",)


def test_later_boots_tell_of_one_that_did_nothing_though_its_folder_is_set_back(raw: Path) -> None:
    remove(raw, "*.2.2.raw")
    counted_anew = {**WHOLE, 2: Expected(Boots(4), 2)}
    TraceWriter(raw, 2, 2, 4, wire=False).close()
    assert missing(raw, counted_anew) == ("g2.p0: no trace of its boot 2",)
    remove(raw, "*.2.4.raw")
    TraceWriter(raw, 2, 2, 4, wire=False, idle=[2]).close()
    assert missing(raw, counted_anew) == ()


def test_a_folder_that_is_not_known_and_a_gap_among_the_boots(raw: Path) -> None:
    remove(raw, "*.2.2.raw")
    assert missing(raw, WHOLE | {2: Expected(None, 2)}) == ("g2.p0: no trace of its boot 2",)


def test_how_far_a_killed_process_came_must_be_known_of_a_run_that_ended(raw: Path) -> None:
    remove(raw, "*.1.1.raw")
    kill(write_boot(raw, 1, 1))
    words = "g1.p1: its last boot did not end in good order, and how far it came is not known"
    assert missing(raw, WHOLE | {1: Expected(Boots(1), None)}) == (words,)
    assert missing(raw, WHOLE | {1: Expected(Boots(1), 2)}) == ()
    cut_short = RunInfo(run_id="r", protocol="p", seed=0, complete=False, groups=INFO.groups, correct=())
    assert missing(raw, WHOLE | {1: Expected(Boots(1), None)}, cut_short) == ()


def test_a_state_that_was_received_counts_as_far_as_it_goes(raw: Path) -> None:
    remove(raw, "*.1.1.raw")
    writer = TraceWriter(raw, 1, 1, 1, wire=True)
    writer.restored(2, 150)
    writer.close()
    assert missing(raw, WHOLE) == ()


def test_a_boot_that_finds_its_place_taken_leaves_a_mark(raw: Path) -> None:
    writer = write_boot(raw, 1, 1)
    writer.close()
    assert writer.failed is not None
    assert missing(raw, WHOLE) == ("g1.p1: the trace of its boot 1 broke off",)


@pytest.mark.parametrize(
    "overlooked", [(process, boot) for process, boots in BOOTS.items() for boot in range(1, boots + 1)]
)
def test_a_collect_that_overlooks_a_boot_is_caught(
    overlooked: tuple[int, int], raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = _intake.raw_files

    def overlooking(folder: Path, known: dict[str, RawFile]) -> Iterator[RawFile]:
        return (file for file in sound(folder, known) if (file.process, file.boot) != overlooked)

    monkeypatch.setattr(_intake, "raw_files", overlooking)
    assert len(missing(raw, WHOLE)) == 1


# ------------------------------------------------------------------------------------- the ends of clients


def crashes(*words: tuple[int, int, str, int]) -> list[str]:
    """Of words (node, boot, what, settled) about a client that sent messages 0 to 4: the details of its crashes.

    Nodes 0 and 1 ended in good order, in their boot 2; node 2 was killed.
    """
    clients, sent = ClientEnds(), Ids()
    sent.add(np.arange(5) + message_id(CLIENT, 0))
    for t_us, (node, boot, what, settled) in enumerate(words):
        clients.take(node, boot, t_us, what, ClientWord(CLIENT, settled))
    found = clients.crashes({0: 2, 1: 2}, sent)
    assert all((fault.process, fault.what, fault.t_us) == (CLIENT, CRASH, len(words) - 1) for fault in found)
    return [fault.detail for fault in found]


@pytest.mark.parametrize(
    ("words", "settled"),
    [
        ([(0, 2, CAME, 0), (0, 2, LEFT, 5)], None),  # everything was answered
        ([(0, 2, CAME, 0), (0, 2, LEFT, 4)], 4),
        ([(0, 2, CAME, 0), (1, 2, CAME, 3), (0, 2, LEFT, 1), (1, 2, LEFT, 3)], 3),
        ([(0, 2, CAME, 0), (1, 2, CAME, 0), (0, 2, LEFT, 1)], None),  # it lost a connection, and is with the other node
        ([(0, 2, CAME, 0), (0, 2, LEFT, 0), (0, 2, CAME, 0)], None),  # it came back
        ([(0, 1, CAME, 2)], 2),  # it was with a boot that has ended, and did not come to the next one
        ([(0, 1, CAME, 2), (0, 2, CAME, 2)], None),
        ([(2, 1, CAME, 2)], 2),  # the node was killed, and can't tell
        ([(2, 1, CAME, 2), (1, 2, LEFT, 5)], None),
    ],
)
def test_who_is_gone_with_messages_unanswered(words: list[tuple[int, int, str, int]], settled: int | None) -> None:
    assert crashes(*words) == ([] if settled is None else [f'{{"settled":{settled}}}'])


def test_words_about_clients_become_a_crash_and_nothing_else(raw: Path) -> None:
    writer = TraceWriter(raw, 1, 1, 2, wire=True)
    trace = ClientTrace(writer)
    sent = [AppMessage(message_id(CLIENT, seq), (1,), b"", settled) for seq, settled in ((2, -7), (3, 2), (4, 3))]
    trace.heard(sent, CHANNELS)
    trace.left(CLIENT, 1 << 70)  # whatever it says
    trace.heard(sent, CHANNELS)
    trace.left(CLIENT, 0)
    trace.left(CLIENT + 1, 0)  # which asked for a status, and sent nothing
    writer.multicast_all(sent, 300)
    writer.close()
    collect(raw, raw.parent / "run", lambda sent: INFO)
    run = read_run(raw.parent / "run")
    assert [fault for fault in run.faults if fault.process >= CLIENT] == []
    remove(raw, "*.1.2.raw")
    writer = TraceWriter(raw, 1, 1, 2, wire=True)
    trace = ClientTrace(writer)
    trace.heard(sent, CHANNELS)
    trace.left(CLIENT, 0)
    writer.multicast_all(sent, 300)
    writer.close()
    collect(raw, raw.parent / "again", lambda sent: INFO)
    (crash,) = [fault for fault in read_run(raw.parent / "again").faults if fault.process >= CLIENT]
    assert (crash.process, crash.what, crash.detail) == (CLIENT, CRASH, '{"settled":3}')
    assert read_run_info(raw.parent / "again").extra["regions"] == {str(CLIENT): "mars"}


# ----------------------------------------------------------------------------------------- real clusters


def traced_run(folder: Path, meanwhile: Callable[[Cluster], Awaitable[None]] | None = None) -> LocalCluster:
    """Three messages, and whatever else; then the cluster is drained, and stopped."""
    local: list[LocalCluster] = []

    async def test() -> None:
        async with running(folder, trace=True, durability=Durability.ASYNC) as cluster:
            async with connect(cluster.config) as client:
                for dst in (["g1"], ["g2"], ["g1", "g2"]):
                    await client.multicast(dst, b"x")
            if meanwhile is not None:
                await meanwhile(cluster)
            local.append(LocalCluster(folder))
            await local[0].wait_until_ready()
            assert await local[0].drain()

    run(test)
    return local[0]


@pytest.mark.parametrize("what", ["nothing", "g2", "all files", "the folder"])
def test_files_of_a_cluster_that_are_gone(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = traced_run(tmp_path / "c")
    gone = {"nothing": [], "g2": cluster.names[3:]}.get(what, cluster.names)
    for name in gone:
        remove(cluster.trace_folder, f"*.{cluster.config.ids()[name]}.*.raw")
    if what == "the folder":
        shutil.rmtree(cluster.trace_folder)
    report = cluster.collect(tmp_path / "run", complete=True)
    assert report.missing == tuple(f"no trace of {name}" for name in gone)
    checked = Cli(monkeypatch, capsys)("check", tmp_path / "run", "--json")
    assert checked.code == (3 if gone else 0)
    assert ("evidence is missing: no trace of g" in checked.out) == bool(gone)


def test_a_boot_that_could_not_open_its_trace(tmp_path: Path) -> None:
    async def restart_without_trace(cluster: Cluster) -> None:
        folder = LocalCluster(tmp_path / "c").trace_folder
        await cluster.stop("g1.p1")
        folder.rename(tmp_path / "aside")
        folder.touch()  # in its place is a file, so that no trace can be written
        await cluster.start_and_wait("g1.p1")
        folder.unlink()
        (tmp_path / "aside").rename(folder)

    cluster = traced_run(tmp_path / "c", restart_without_trace)
    assert cluster.collect(tmp_path / "run", complete=True).missing == ("g1.p1: no trace of its boot 2",)
    assert check_run(read_run(tmp_path / "run")).verdict == "unknown"


def test_deliveries_that_a_node_told_of_and_its_trace_lacks(tmp_path: Path) -> None:
    cluster = traced_run(tmp_path / "c")
    path = cluster.trace_folder / f"deliveries.{cluster.config.ids()['g2.p2']}.1.raw"
    os.truncate(path, path.stat().st_size - ROWS["deliveries"].itemsize)
    report = cluster.collect(tmp_path / "run", complete=True)
    assert report.missing == ("g2.p2: it delivered up to position 2, its trace ends at 1",)
    assert check_run(read_run(tmp_path / "run")).verdict == "unknown"


async def kill_client(client: AsyncClient) -> None:
    """As the end of a program that is killed: its connections break without a word."""
    trunk = client._open.trunk
    for channel in list(trunk._channels.values()):
        channel.abort()
    trunk._channels.clear()
    await client.__aexit__(None, None, None)


@pytest.mark.parametrize("end", ["is killed", "gives up"])
def test_a_client_that_ends_while_its_group_has_no_majority(end: str, tmp_path: Path) -> None:
    lost: list[int] = []

    async def lose_a_message(cluster: Cluster) -> None:
        await cluster.stop("g1.p0", "g1.p1")
        node = cluster.servers["g1.p2"].node
        client = await connect(cluster.config).__aenter__()
        id_, _ = client.submit(["g1"], b"nobody can order this")
        await eventually(lambda: node._client_trace._settled != {}, "the message has come")  # type: ignore[union-attr]
        if end == "is killed":
            await kill_client(client)
        else:
            await client.__aexit__(None, None, None)
        await eventually(lambda: not node.clients.channels, "the node knows that the client left")
        await cluster.stop("g1.p2")  # which is the only one that has heard of the message
        await cluster.start("g1.p0", "g1.p1", "g1.p2")
        lost.append(id_)

    cluster = traced_run(tmp_path / "c", lose_a_message)
    cluster.collect(tmp_path / "run", complete=True)
    traced = read_run(tmp_path / "run")
    assert lost[0] in traced.multicasts.msg
    assert lost[0] not in traced.deliveries.msg
    assert check_run(traced).verdict == "pass", check_run(traced)
    gone = [(fault.process, fault.what, fault.detail) for fault in traced.faults if fault.process == sender_of(lost[0])]
    assert gone == [(sender_of(lost[0]), CRASH, '{"settled":0}')]


def test_a_client_that_lost_its_connections_and_came_back_is_not_gone(tmp_path: Path) -> None:
    clients: list[AsyncClient] = []

    async def break_connections(cluster: Cluster) -> None:
        client = await connect(cluster.config).__aenter__()
        clients.append(client)  # it stays to the end
        await client.multicast(["g1", "g2"], b"before")
        for server in cluster.servers.values():
            for connection in list(server.connections):
                if connection.client is not None:
                    connection.close()
        await client.multicast(["g1", "g2"], b"after")

    cluster = traced_run(tmp_path / "c", break_connections)
    cluster.collect(tmp_path / "run", complete=True)
    traced = read_run(tmp_path / "run")
    assert traced.faults == ()
    assert check_run(traced).verdict == "pass"
