"""The record log without crashes: what was appended is found, in order, when it is opened again."""

from __future__ import annotations

from pathlib import Path

import pytest

from amcast.core import UsageError
from amcast.net.disk.records import Durability
from tests.net.logs import Owner, copy_of, only_segment, recovered


def test_what_was_durable_is_found_again(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    assert owner.log.recovered == []
    owner.write(b"a", b"")
    owner.write(b"c" * 100_000)
    assert owner.log.durable == 3
    owner.log.close()

    again = Owner(tmp_path)
    assert again.log.recovered == [b"a", b"", b"c" * 100_000]
    assert again.log.durable == 3
    assert again.log.note is None
    again.log.forget_recovered()
    assert again.log.recovered == []
    assert again.log.append(b"d") == 4
    again.log.close()
    assert recovered(tmp_path) == [b"a", b"", b"c" * 100_000, b"d"]


def test_numbers_are_reported_in_order_and_only_after_commit(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    assert [owner.log.append(bytes([i])) for i in range(5)] == [1, 2, 3, 4, 5]
    assert owner.durable == []
    assert owner.log.durable == 0
    owner.log.commit()
    owner.wait_durable(5)
    for i in range(200):
        owner.log.append(bytes([i]))
        owner.log.commit()
    owner.log.close()
    assert owner.durable == sorted(set(owner.durable))
    assert owner.durable[-1] == 205


@pytest.mark.parametrize("durability", [Durability.SYNC, Durability.ASYNC])
def test_the_owner_is_called_once_before_the_first_record_counts(tmp_path: Path, durability: Durability) -> None:
    """A log that never held anything looks like one that was lost: the owner writes down which it is."""
    for _ in range(2):
        owner = Owner(tmp_path / "log", durability)
        seen: list[list[int]] = []
        owner.before_first = lambda owner=owner, seen=seen: seen.append(list(owner.durable))
        assert seen == []
        owner.write(b"a")
        owner.write(b"b")
        owner.log.close()
        assert seen == [[]]


def test_only_what_was_synced_counts_as_synced(tmp_path: Path) -> None:
    owner = Owner(tmp_path / "sync")
    owner.write(b"a")
    assert (owner.log.durable, owner.log.synced) == (1, 1)
    owner.log.close()
    owner = Owner(tmp_path / "async", Durability.ASYNC, segment_bytes=1)
    owner.write(b"a")
    assert (owner.log.durable, owner.log.synced) == (1, 0)
    owner.write(b"b")  # the segment of the first is full, and synced
    assert (owner.log.durable, owner.log.synced) == (2, 1)
    owner.log.close()


def test_segments_follow_each_other(tmp_path: Path) -> None:
    owner = Owner(tmp_path, segment_bytes=1000)
    records = [bytes([i]) * 300 for i in range(40)]
    for record in records:
        owner.write(record)
    owner.log.close()
    assert len(list(tmp_path.glob("log-*"))) > 8
    assert recovered(tmp_path) == records


def test_a_snapshot_replaces_what_came_before(tmp_path: Path) -> None:
    owner = Owner(tmp_path, segment_bytes=1000)
    for i in range(20):
        owner.write(bytes([i]) * 300)
    owner.log.append(b"before")
    assert owner.log.append_snapshot(b"snapshot") == 22
    owner.log.append(b"after")
    owner.log.commit()
    owner.wait_durable(23)
    owner.log.close()
    assert [path.name[:12] for path in sorted(tmp_path.glob("*-*"))] == ["log-00000000", "snapshot-000"]
    assert recovered(tmp_path) == [b"snapshot", b"after"]

    again = Owner(tmp_path)
    again.snapshot(b"another")
    again.log.close()
    assert recovered(tmp_path) == [b"another"]
    assert [path.name[:9] for path in tmp_path.glob("*-*")] == ["snapshot-"]


def test_the_hook_runs_before_a_snapshot_takes_the_place_of_records(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    owner.write(b"a")
    seen: list[tuple[int, list[str]]] = []
    owner.before_snapshot = lambda: seen.append((owner.log.durable, [path.name[:3] for path in tmp_path.glob("*-*")]))
    owner.log.append(b"b")
    owner.log.append_snapshot(b"s")
    owner.log.commit()
    owner.wait_durable(3)
    owner.log.close()
    assert seen == [(2, ["log"])]


def test_two_openers(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    for durability in (Durability.SYNC, Durability.ASYNC):
        with pytest.raises(UsageError, match=r"another process uses this folder: stop it, or"):
            Owner(tmp_path, durability)
    owner.write(b"a")
    owner.log.close()
    owner.log.close()
    assert recovered(tmp_path) == [b"a"]


def test_async_counts_when_the_kernel_has_it(tmp_path: Path) -> None:
    owner = Owner(tmp_path / "log", Durability.ASYNC, segment_bytes=1000)
    records = [bytes([i]) * 300 for i in range(20)]
    for number, record in enumerate(records, 1):
        assert owner.log.append(record) == number
        assert owner.log.durable < number
        owner.log.commit()
        owner.wait_durable(number)
        assert recovered(copy_of(tmp_path / "log", tmp_path / "copy")) == records[:number]  # as after a kill
    owner.log.close()
    assert recovered(tmp_path / "log") == records


def test_memory_forgets_and_leaves_nothing(tmp_path: Path) -> None:
    owner = Owner(tmp_path / "log", Durability.MEMORY)
    owner.log.append(b"a")
    assert owner.log.append_snapshot(b"b") == 2
    assert (owner.log.durable, owner.log.synced) == (2, 0)
    owner.log.commit()
    owner.log.close()
    assert not (tmp_path / "log").exists()


def test_a_foreign_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(UsageError, match=r"thesis\.txt: is no file of this log"):
        Owner(tmp_path)
    (tmp_path / "thesis.txt").unlink()
    Owner(tmp_path).log.close()


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"can't use this folder: Not a directory"):
        Owner(tmp_path / "file" / "log")


def test_a_record_that_looks_like_a_log_is_a_record(tmp_path: Path) -> None:
    """The record is a segment of another log, high-water marks included, and its own write was torn."""
    other = Owner(tmp_path / "other")
    for i in range(9):
        other.write(bytes([i]))
    other.log.close()
    content = only_segment(tmp_path / "other").read_bytes()
    owner = Owner(tmp_path / "log")
    owner.write(b"a")
    owner.log.append(content)
    owner.log.close()
    path = only_segment(tmp_path / "log")
    whole = bytearray(path.read_bytes())
    at = whole.index(content)
    whole[at - 1] ^= 1  # the batch with the content is torn, but the content is there
    path.write_bytes(whole[: at + len(content)])
    assert recovered(tmp_path / "log") == [b"a"]
