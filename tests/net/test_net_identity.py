"""Who a process is: its folder says it, others remember it, and nobody who lost its disk is believed."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from amcast.core import UsageError
from amcast.net.config import ClusterConfig
from amcast.net.disk.files import CorruptLogError
from amcast.net.disk.records import Durability
from amcast.net.layout import DataLayout, difference, layout_of
from amcast.net.local import plan
from amcast.net.node import _witnesses
from amcast.net.node._witnesses import Witnesses, write_peers
from amcast.net.node.data_folder import DataFolder, State, boots_of, format_folder, replace_folder
from amcast.net.node.server import NodeServer
from amcast.net.trace.evidence import Boots
from amcast.net.wire.control import Life, Member

from .clusters import run, running
from .test_net_frames import Caller, framed, peer_hello


def planned(folder: Path, protocol: str = "fastcast", replicas: int = 3, **settings: object) -> ClusterConfig:
    return plan(folder, protocol, 1, replicas, **settings)


def boots(config: ClusterConfig, count: int) -> None:
    for _ in range(count):
        DataFolder.open(config, "g1.p0").close()


# -- layouts


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"protocol": "basecast"}, "the protocol is basecast here and flexcast there"),
        ({"members": (3,)}, "there are 1 groups here and 2 there"),
        ({"members": (5, 3)}, "group g1 has 5 members here and 3 there: p3 and p4 are new"),
        ({"members": (3, 1)}, "group g2 has 1 members here and 3 there: p1 and p2 are missing"),
        ({"epoch_s": 8}, "epoch_s is 8 here and 7 there"),
        ({"options": {"overlay": [2, 1]}}, "the option overlay is [2, 1] here and [1, 2] there"),
        ({"options": {}}, "the option overlay is None here and [1, 2] there"),
        ({}, None),
    ],
)
def test_what_differs_between_layouts_is_said_in_words(change: dict[str, object], words: str | None) -> None:
    layout = DataLayout("flexcast", (3, 3), 7, {"overlay": [1, 2]})
    assert difference(replace(layout, **change), "here", layout, "there") == words


def test_a_layout_with_any_number_of_members_is_told_in_few_words() -> None:
    layout = layout_of(plan(Path("c"), "fastcast", groups=1))
    found = difference(layout, "here", replace(layout, members=(1 << 62,)), "there")
    assert found == f"group g1 has 3 members here and {1 << 62} there: {(1 << 62) - 3} are missing"


def test_what_data_does_not_depend_on_may_change(tmp_path: Path) -> None:
    config = planned(tmp_path, options={"resend_us": 1_000})
    changed = replace(config, network="wan", options={}, durability=Durability.ASYNC, trace=True, keep_messages=5)
    assert layout_of(changed) == layout_of(config)


# -- folders


def test_a_folder_is_formatted_once_and_its_boots_are_counted(tmp_path: Path) -> None:
    config = planned(tmp_path)
    with pytest.raises(UsageError, match=r"is not formatted: run `amcast init` if the cluster is new, or `amcast repl"):
        DataFolder.open(config, "g1.p0")
    format_folder(config, "g1.p0")
    with pytest.raises(UsageError, match="is formatted already"):
        format_folder(config, "g1.p0")
    boots(config, 2)
    folder = DataFolder.open(config, "g1.p0")
    assert (folder.boot, folder.incarnation, folder.state, folder.is_new) == (3, 0, State.NEW, True)
    with pytest.raises(UsageError, match="is running already"):
        DataFolder.open(config, "g1.p0")
    folder.close()
    again = DataFolder.open(config, "g1.p0")
    assert again.life(5).nonce != folder.life(5).nonce
    again.close()


def test_a_folder_with_something_in_it_is_not_formatted(tmp_path: Path) -> None:
    config = planned(tmp_path)
    path = config.data_folder("g1.p0")
    path.mkdir(parents=True)
    (path / "thesis.txt").write_text("important")
    with pytest.raises(UsageError, match=r"is not empty, it holds thesis\.txt"):
        format_folder(config, "g1.p0")


def test_a_cluster_without_an_id_is_not_formatted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'no id: add a line such as id = "[0-9a-f]{16}"'):
        format_folder(replace(planned(tmp_path), id=""), "g1.p0")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster": "other"}, "is a folder of cluster '.*', and this is 'other'"),
        (
            {"id": "77"},
            "is a folder of another cluster that is called '.*' too: its id is [0-9a-f]+, and .* this one 77",
        ),
        ({"epoch_s": 7}, "epoch_s is 7 in cluster.toml and [0-9]+ in this folder"),
        ({"protocol": "basecast"}, "the protocol is basecast in cluster.toml and fastcast in this folder"),
    ],
)
def test_a_folder_of_something_else_is_refused(change: dict[str, object], words: str, tmp_path: Path) -> None:
    config = planned(tmp_path)
    format_folder(config, "g1.p0")
    with pytest.raises(UsageError, match=words):
        DataFolder.open(replace(config, **change), "g1.p0")
    boots(config, 1)  # it is neither locked nor changed


def test_the_folder_of_another_process_is_refused(tmp_path: Path) -> None:
    config = planned(tmp_path)
    format_folder(config, "g1.p1")
    shutil.copytree(config.data_folder("g1.p1"), config.data_folder("g1.p0"))
    with pytest.raises(UsageError, match=r"is the folder of g1\.p1, and this is g1\.p0"):
        DataFolder.open(config, "g1.p0")


def test_a_folder_of_an_earlier_version_is_explained(tmp_path: Path) -> None:
    config = planned(tmp_path)
    path = config.data_folder("g1.p0")
    path.mkdir(parents=True)
    (path / "boot").write_text("3")
    with pytest.raises(UsageError, match="is a folder of an earlier version of amcast"):
        DataFolder.open(config, "g1.p0")


@pytest.mark.parametrize("name", ["identity", "peers"])
def test_every_damaged_byte_is_noticed(name: str, tmp_path: Path) -> None:
    config = planned(tmp_path)
    format_folder(config, "g1.p0")
    path = config.data_folder("g1.p0") / name
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CorruptLogError, match=r"damaged.*run `amcast replace` for this process"):
            open_both(config)
    path.write_bytes(b"")
    with pytest.raises(CorruptLogError, match="is damaged"):
        open_both(config)
    path.write_bytes(content)
    open_both(config)


def open_both(config: ClusterConfig) -> None:
    folder = DataFolder.open(config, "g1.p0")
    try:
        asyncio.run(opened(folder.path))
    finally:
        folder.close()


async def opened(path: Path) -> Witnesses:
    return Witnesses(path)


def test_peers_that_are_missing_are_not_forgotten_in_silence(tmp_path: Path) -> None:
    config = planned(tmp_path)
    format_folder(config, "g1.p0")
    (config.data_folder("g1.p0") / "peers").unlink()
    with pytest.raises(CorruptLogError, match=r"peers: is missing: .*amcast replace"):
        open_both(config)


def test_a_folder_is_used_from_its_first_record_on_and_lost_ones_begin_anew(tmp_path: Path) -> None:
    config = planned(tmp_path)
    format_folder(config, "g1.p0")
    folder = DataFolder.open(config, "g1.p0")
    first = folder.record_folder
    folder.mark_used(0)
    assert folder.state is State.USED
    folder.begin_incarnation(Life(4, 9, 0, 100))
    assert (folder.state, folder.incarnation, folder.boot, folder.is_new) == (State.LOST, 5, 10, False)
    assert folder.record_folder != first
    folder.mark_used(0)  # from the thread of the log that was given up
    assert folder.state is State.LOST
    folder.close()
    again = DataFolder.open(config, "g1.p0")
    assert (again.state, again.incarnation, again.boot, again.is_new) == (State.LOST, 5, 11, False)
    again.close()


def test_who_finds_its_records_gone_keeps_the_number_of_its_boot(tmp_path: Path) -> None:
    """Nobody has heard of the boot yet. If it were skipped, a run would lack the trace of it for ever."""
    config = planned(tmp_path, durability=Durability.ASYNC)
    format_folder(config, "g1.p0")
    path = config.data_folder("g1.p0")
    for boot in (1, 2):
        folder = DataFolder.open(config, "g1.p0")
        if boot == 1:
            folder.mark_started()
            folder.mark_used(0)  # and the power fails before any record is on the disk
        folder.close()

    async def start() -> None:
        server = NodeServer(config, "g1.p0")
        assert (server.folder.state, server.folder.incarnation, server.folder.boot) == (State.LOST, 1, 3)
        server.folder.mark_started()
        await server.stop()

    asyncio.run(start())
    assert boots_of(path) == Boots(3, frozenset({2}))


def test_an_old_copy_is_not_believed_that_the_boot_in_which_it_was_made_did_nothing(tmp_path: Path) -> None:
    config = planned(tmp_path)
    format_folder(config, "g1.p0")
    path = config.data_folder("g1.p0")
    for boot in range(1, 5):
        folder = DataFolder.open(config, "g1.p0")
        if boot in (2, 3):
            folder.mark_started()
        folder.close()
    copy = (path / "identity").read_bytes()  # boot 4 waits until the others let it in
    folder = DataFolder.open(config, "g1.p0")
    assert folder.idle == (1, 4)
    folder.close()
    (path / "identity").write_bytes(copy)
    restored = DataFolder.open(config, "g1.p0")
    restored.begin_incarnation(Life(0, 4, 0, 100))  # others have seen what boot 4 did after the copy was made
    restored.mark_started()
    restored.close()
    assert boots_of(path) == Boots(5, frozenset({1}))


def test_in_memory_mode_each_further_start_is_another_incarnation(tmp_path: Path) -> None:
    config = planned(tmp_path, durability=Durability.MEMORY)
    format_folder(config, "g1.p0")
    for incarnation in range(3):
        folder = DataFolder.open(config, "g1.p0")
        assert (folder.incarnation, folder.is_new) == (incarnation, incarnation == 0)
        folder.close()
    durable = DataFolder.open(replace(config, durability=Durability.SYNC), "g1.p0")
    assert not durable.is_new
    durable.mark_used(durable.incarnation)
    durable.close()
    with pytest.raises(UsageError, match="holds a durable log, which memory mode would contradict"):
        DataFolder.open(config, "g1.p0")


def test_a_replaced_folder_keeps_what_was_there_aside(tmp_path: Path) -> None:
    config = planned(tmp_path)
    path = config.data_folder("g1.p0")
    assert replace_folder(config, "g1.p0") is None
    for number in (1, 2):
        (path / "log-0").mkdir()
        (path / "log-0" / "records").write_text("precious")
        assert replace_folder(config, "g1.p0") == path / f"replaced-{number}"
        assert (path / f"replaced-{number}" / "log-0" / "records").read_text() == "precious"
        assert (path / f"replaced-{number}" / "identity").exists()
    folder = DataFolder.open(config, "g1.p0")
    assert (folder.state, folder.is_new) == (State.LOST, False)
    with pytest.raises(UsageError, match="is running already"):
        replace_folder(config, "g1.p0")
    folder.close()


def test_who_is_alone_can_not_be_replaced(tmp_path: Path) -> None:
    config = planned(tmp_path, "skeen", 1)
    format_folder(config, "g1.p0")
    with pytest.raises(UsageError, match=r"g1\.p0 is alone in its group: nobody could hand it its state"):
        replace_folder(config, "g1.p0")


# -- witnesses


@pytest.mark.parametrize(
    ("life", "doubt"),
    [
        (Life(2, 7, 5, 100), None),
        (Life(2, 7, 5, 20), None),  # it connects again: it had 20 when it started
        (Life(2, 8, 6, 100), None),
        (Life(3, 8, 6, 0), None),
        (Life(3, 7, 5, 0), None),  # it became another incarnation in this boot
        (Life(3, 7, 6, 0), "says that it is at start 7, and 7 was seen"),
        (Life(3, 1, 6, 0), "says that it is at start 1, and 7 was seen"),
        (Life(2, 8, 6, 99), "has 99 records on its disk, and 100 were seen"),
        (Life(2, 6, 4, 500), "start 6 of incarnation 2, and start 7 of incarnation 2 was seen"),
        (Life(2, 7, 6, 500), "was seen at start 7 before, and this is another one"),
        (Life(1, 90, 6, 500), "start 90 of incarnation 1, and start 7 of incarnation 2 was seen"),
    ],
)
def test_who_comes_back_with_less_than_was_seen_is_doubted(life: Life, doubt: str | None, tmp_path: Path) -> None:
    async def test() -> None:
        write_peers(tmp_path, {"g1.p0": Life(2, 7, 5, 100)})
        found = Witnesses(tmp_path).doubt("g1.p0", life)
        assert (found is None) if doubt is None else (found is not None and doubt in found)

    run(test)


def test_what_was_seen_is_remembered_over_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        write_peers(tmp_path, {})
        witnesses = Witnesses(tmp_path)
        witnesses.start()
        seen = witnesses.note("g1.p0", Life(0, 1, 5, 10))
        assert not witnesses.is_saved("g1.p0", seen)
        saved = asyncio.get_running_loop().create_future()
        witnesses.when_saved(saved.set_result)
        assert await saved is None
        assert witnesses.is_saved("g1.p0", seen)
        assert Witnesses(tmp_path).known("g1.p0") == Life(0, 1, 5, 10)
        seen.records = 12  # a mark came
        await witnesses.close()
        assert Witnesses(tmp_path).known("g1.p0") == Life(0, 1, 5, 12)

    run(test)


def test_who_was_once_seen_on_an_older_disk_must_become_another_incarnation(tmp_path: Path) -> None:
    """Its log grows while it runs with members who remember less: one day it has as many records as were seen."""

    async def test() -> None:
        write_peers(tmp_path, {"g1.p0": Life(0, 5, 1, 900)})
        witnesses = Witnesses(tmp_path)
        witnesses.start()
        assert witnesses.doubt("g1.p0", Life(0, 6, 2, 120)) is not None
        witnesses.condemn("g1.p0")
        await witnesses.close()
        again = Witnesses(tmp_path)
        assert "has not become another incarnation" in str(again.doubt("g1.p0", Life(0, 7, 3, 950)))
        assert again.doubt("g1.p0", Life(1, 8, 3, 0)) is None

    run(test)


def test_marks_of_an_earlier_boot_do_not_count_for_a_later_one(tmp_path: Path) -> None:
    async def test() -> None:
        write_peers(tmp_path, {})
        witnesses = Witnesses(tmp_path)
        old = witnesses.note("g1.p0", Life(0, 1, 5, 10))
        new = witnesses.note("g1.p0", Life(1, 2, 6, 0))
        old.records = 500
        assert witnesses.known("g1.p0") == Life(1, 2, 6, 0) == new

    run(test)


# -- at HELLO


def test_a_peer_with_another_layout_or_cluster_is_told_what_differs(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            layout = layout_of(cluster.config)
            members = {
                r"group g1 has 3 members at g1.p0 and 5 at g1.p1: p3 and p4 are missing": Member(
                    cluster.config.id, replace(layout, members=(5,)), Life(0, 99, 1, 0)
                ),
                "this is another cluster that is called 'c' too": Member("77", layout, Life(0, 99, 1, 0)),
                "g1.p1 does not say how far it has got": None,
            }
            for reason, member in members.items():
                async with Caller.dial(cluster) as caller:
                    caller.say(framed(replace(peer_hello(cluster, 99), member=member)))
                    assert reason in await caller.reason()

    run(test)


def test_a_new_boot_that_can_not_be_written_down_is_not_welcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *parts: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def test() -> None:
        async with running(tmp_path / "c", groups=1) as cluster:
            await cluster.stop("g1.p1")
            with monkeypatch.context() as patch:
                patch.setattr(_witnesses, "write_file", full)
                for _ in range(2):  # nor at the second attempt, when it is known in memory
                    async with Caller.dial(cluster) as caller:
                        caller.say(framed(peer_hello(cluster, 99)))
                        reason = await caller.reason()
                        assert reason == "g1.p0 can't write down that g1.p1 has started: No space left on device"
                problem = cluster.servers["g1.p0"].witnesses.problem
                assert "No space left" in str(problem)
            await cluster.start("g1.p1")  # its boot is below the one that was said, and was never welcome

    run(test)
