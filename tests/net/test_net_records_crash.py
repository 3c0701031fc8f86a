"""The record log after crashes and damage: records that were reported durable are found, or the log refuses to open.

No record is found that was not written, and none without those before it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amcast.core import encode
from amcast.net.disk import _segments, _writer
from amcast.net.disk._segments import FILE_HEADER, FRAME_HEADER, SegmentReader, file_header, pack_frame
from amcast.net.disk.records import CorruptLogError, Durability
from tests.net.logs import WAIT_S, FaultyDisk, Owner, copy_of, only_segment, recovered

BATCHES = [(b"one", b"two"), (b"three",), (b"", b"five" * 5), (b"six",)]
RECORDS = [record for batch in BATCHES for record in batch]
PAGE = 4096


def _small_log(folder: Path) -> dict[int, int]:
    """How long the segment was when each number was reported durable."""
    owner = Owner(folder)
    sizes: dict[int, int] = {}

    def note_size(number: int) -> None:
        sizes[number] = only_segment(folder).stat().st_size

    owner.on_report = note_size
    for batch in BATCHES:
        owner.write(*batch)
    owner.log.close()
    return sizes


@pytest.mark.usefixtures("without_sync")
def test_a_kill_at_any_byte_leaves_a_prefix_with_all_that_was_reported(tmp_path: Path) -> None:
    sizes = _small_log(tmp_path / "log")
    assert list(sizes) == [2, 3, 5, 6]
    segment = only_segment(tmp_path / "log").read_bytes()
    for length in range(len(segment) + 1):
        folder = copy_of(tmp_path / "log", tmp_path / "copy")
        only_segment(folder).write_bytes(segment[:length])
        reported = max([0, *(number for number, size in sizes.items() if size <= length)])
        owner = Owner(folder)
        found = list(owner.log.recovered)
        assert found == RECORDS[: len(found)]
        assert len(found) >= reported
        if FILE_HEADER < length < sizes[2]:
            assert f"cut off {length - FILE_HEADER} bytes after record 0" in str(owner.log.note)
        owner.write(b"new")
        owner.log.close()
        assert recovered(folder) == [*found, b"new"]


@pytest.mark.usefixtures("without_sync")
def test_zeros_at_the_tail_are_cut_off(tmp_path: Path) -> None:
    sizes = _small_log(tmp_path / "log")
    segment = only_segment(tmp_path / "log").read_bytes()
    for kept, expected in ((0, 0), (sizes[2], 2), (sizes[3], 3), (len(segment), 6)):
        for zeros in (1, 39, 40, 41, 10_000):
            folder = copy_of(tmp_path / "log", tmp_path / "copy")
            only_segment(folder).write_bytes(segment[:kept] + bytes(zeros))
            assert recovered(folder) == RECORDS[:expected]
            assert recovered(folder) == RECORDS[:expected]


@pytest.mark.usefixtures("without_sync")
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_anywhere_in_a_closed_log_is_recognised(tmp_path: Path, mask: int) -> None:
    sizes = _small_log(tmp_path / "log")
    owner = Owner(tmp_path / "log")
    owner.snapshot(b"state")
    owner.write(b"after")
    owner.log.close()
    assert sizes
    refused = 0
    for path in sorted((tmp_path / "log").glob("*")):
        content = path.read_bytes()
        for at in range(len(content)):
            folder = copy_of(tmp_path / "log", tmp_path / "copy")
            damaged = bytearray(content)
            damaged[at] ^= mask
            (folder / path.name).write_bytes(damaged)
            problem = _problem(folder)
            if problem is not None:
                assert problem.startswith(str(folder / path.name))
                assert problem.endswith("let its group take it back")
                assert "\n" not in problem
                refused += 1
            else:  # the last frame holds no record, only a high-water mark
                assert recovered(folder) == [b"state", b"after"]
    assert refused > 100


def _problem(folder: Path) -> str | None:
    try:
        Owner(folder).log.close()
    except CorruptLogError as error:
        return str(error)
    return None


@pytest.mark.usefixtures("without_sync")
def test_a_flipped_byte_in_a_log_that_was_not_closed_never_makes_a_wrong_record(tmp_path: Path) -> None:
    sizes = _small_log(tmp_path / "log")
    segment = only_segment(tmp_path / "log").read_bytes()[: sizes[6]]  # nothing says that the last batch is durable
    refused = 0
    for at in range(len(segment)):
        folder = copy_of(tmp_path / "log", tmp_path / "copy")
        damaged = bytearray(segment)
        damaged[at] ^= 0x10
        only_segment(folder).write_bytes(damaged)
        try:
            assert recovered(folder) in (RECORDS[:5], RECORDS)
        except CorruptLogError:
            refused += 1
            assert at < sizes[5]
    assert refused >= sizes[3]


@pytest.mark.usefixtures("without_sync")
def test_pages_of_an_unsynced_batch_may_be_lost_in_any_order(tmp_path: Path) -> None:
    owner = Owner(tmp_path / "log")
    owner.on_report = lambda number: copy_of(tmp_path / "log", tmp_path / f"at {number}") and None
    owner.write(b"durable", b"as well")
    owner.write(*[bytes([i]) * 3000 for i in range(1, 6)])
    owner.log.close()
    durable_size = only_segment(tmp_path / "at 2").stat().st_size
    whole = only_segment(tmp_path / "at 7").read_bytes()
    pages = range(0, len(whole), PAGE)
    for lost in [pair for n in (1, 2, 3) for pair in combinations(pages, n)]:
        data = bytearray(whole)
        for page in lost:
            start = max(page, durable_size)
            data[start : page + PAGE] = bytes(len(data[start : page + PAGE]))
        folder = copy_of(tmp_path / "at 7", tmp_path / "copy")
        only_segment(folder).write_bytes(data)
        assert recovered(folder) == [b"durable", b"as well"]


@pytest.mark.usefixtures("without_sync")
def test_async_batches_may_be_lost_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk(monkeypatch)
    owner = Owner(tmp_path / "log", Durability.ASYNC)
    records = [bytes([i]) * 2500 for i in range(1, 10)]
    for record in records:
        owner.log.append(record)
        owner.log.commit()
        disk.wait_written(record)  # so that each makes a batch of its own
    unsynced = tmp_path / "unsynced"
    owner.before_snapshot = lambda: shutil.copytree(tmp_path / "log", unsynced) and None
    owner.log.append_snapshot(b"")
    owner.log.close()
    whole = only_segment(unsynced).read_bytes()
    assert recovered(copy_of(unsynced, tmp_path / "copy")) == records
    for lost in [pair for n in (1, 2) for pair in combinations(range(0, len(whole), PAGE), n)]:
        data = bytearray(whole)
        for page in lost:
            data[page : page + PAGE] = bytes(len(data[page : page + PAGE]))
        folder = copy_of(unsynced, tmp_path / "copy")
        only_segment(folder).write_bytes(data)
        found = recovered(folder)
        assert found == records[: len(found)]
        assert len(found) < len(records)
        assert len(found) >= lost[0] // 2560 - 1


def test_damage_before_the_last_segment_is_no_torn_tail(tmp_path: Path) -> None:
    owner = Owner(tmp_path, segment_bytes=100)
    for i in range(6):
        owner.write(bytes([i]) * 100)
    owner.log.close()
    first, second, *_ = sorted(tmp_path.glob("log-*"))
    content = second.read_bytes()
    second.write_bytes(content[:100])
    with pytest.raises(CorruptLogError, match=r"what was durable is damaged at byte 20, after record 1"):
        Owner(tmp_path)
    second.unlink()
    with pytest.raises(CorruptLogError, match=r"the file with the records 2 to 2 is missing"):
        Owner(tmp_path)
    second.write_bytes(first.read_bytes())
    with pytest.raises(CorruptLogError, match="its first bytes are damaged, or it is a file of another log"):
        Owner(tmp_path)
    second.write_bytes(content)
    assert len(recovered(tmp_path)) == 6
    first.unlink()
    with pytest.raises(CorruptLogError, match=r"the file with the records 1 to 1 is missing"):
        Owner(tmp_path)


def test_another_version_is_named(tmp_path: Path) -> None:
    _small_log(tmp_path)
    path = only_segment(tmp_path)
    content = bytearray(path.read_bytes())
    content[7] = 1
    path.write_bytes(content)
    with pytest.raises(CorruptLogError, match=r"format version 1, and this program reads 2"):
        Owner(tmp_path)


@pytest.mark.usefixtures("without_sync")
def test_a_crash_around_a_snapshot(tmp_path: Path) -> None:
    """Before the rename the records count, after it the snapshot, whatever was or was not deleted by then."""
    log, before, after = tmp_path / "log", tmp_path / "before", tmp_path / "after"
    owner = Owner(log, segment_bytes=60)
    owner.snapshot(b"oldest")
    for i in range(4):
        owner.write(bytes([i]) * 50)
    owner.before_snapshot = lambda: shutil.copytree(log, before) and None
    owner.snapshot(b"state")
    owner.log.close()
    shutil.copytree(log, after)
    (snapshot,) = after.glob("snapshot-*")

    draft = copy_of(before, tmp_path / "copy")
    (draft / snapshot.with_suffix(".tmp").name).write_bytes(snapshot.read_bytes()[:-2])
    assert recovered(draft) == [b"oldest", *[bytes([i]) * 50 for i in range(4)]]
    assert not list(draft.glob("*.tmp"))

    old = [path.name for path in before.glob("*-*")]
    assert len(old) == 5
    for n in range(len(old) + 1):
        for left in combinations(old, n):
            folder = copy_of(after, tmp_path / "copy")
            for name in left:
                shutil.copy(before / name, folder / name)
            owner = Owner(folder)
            assert owner.log.recovered == [b"state"]
            owner.write(b"after")
            owner.log.close()
            assert recovered(folder) == [b"state", b"after"]
            assert len(list(folder.glob("*-*"))) == 2


@pytest.mark.usefixtures("without_sync")
def test_what_is_left_in_a_file_that_is_used_again_never_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old and new frames are of the same lengths, so that a kill between two of them leaves an old one in its place."""
    monkeypatch.setattr(_writer, "_IDLE_S", WAIT_S)  # no frames but those of the batches
    log = tmp_path / "log"
    owner = Owner(log)
    for batch in (*BATCHES, *BATCHES):
        owner.write(*batch)
    old, inode = only_segment(log).read_bytes(), only_segment(log).stat().st_ino
    owner.snapshot(b"state")
    assert not list(log.glob("log-*"))
    ends = {FILE_HEADER: 0}  # of the new frames, and the records up to there
    for batch in BATCHES:
        owner.write(*[record.upper() for record in batch])
        ends[max(ends) + FRAME_HEADER + len(encode(batch))] = max(ends.values()) + len(batch)
    new = only_segment(log).read_bytes()
    assert only_segment(log).stat().st_ino == inode
    assert new[max(ends) :] == old[max(ends) :] != b""
    killed = copy_of(log, tmp_path / "killed")
    for length in range(FILE_HEADER, max(ends) + 1):
        folder = copy_of(killed, tmp_path / "copy")
        only_segment(folder).write_bytes(new[:length] + old[length:])
        end = max(end for end in ends if end <= length)
        again = Owner(folder)
        assert again.log.recovered == [b"state", *[record.upper() for record in RECORDS[: ends[end]]]]
        if length == end or length - end >= FRAME_HEADER:  # in between the header may look whole already
            assert (again.log.note is not None) == (length > end)
        again.write(b"more")
        again.log.close()
        assert recovered(folder)[-2:] == [*again.log.recovered, b"more"][-2:]
    owner.log.close()


@pytest.mark.usefixtures("without_sync")
def test_nothing_is_left_in_a_file_that_is_full_or_closed(tmp_path: Path) -> None:
    owner = Owner(tmp_path, segment_bytes=500)
    owner.write(b"o" * 2_000)
    owner.snapshot(b"state")
    owner.write(b"n" * 600)  # in the same file
    assert only_segment(tmp_path).stat().st_size > 2_000
    owner.write(b"next" * 75)
    full, _ = sorted(tmp_path.glob("log-*"))
    assert full.stat().st_size < 1_000
    owner.snapshot(b"another")
    owner.write(b"last")
    assert b"next" in only_segment(tmp_path).read_bytes()
    owner.log.close()
    assert b"next" not in only_segment(tmp_path).read_bytes()
    assert not list(tmp_path.glob("spare*"))
    assert recovered(tmp_path) == [b"another", b"last"]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=80)),
        st.tuples(st.just("snapshot"), st.binary(max_size=80)),
        st.tuples(st.sampled_from(["commit", "wait", "reopen", "kill"]), st.just(b"")),
    ),
    max_size=40,
)


@pytest.mark.usefixtures("without_sync")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(OPERATIONS, st.sampled_from([1, 200, 1 << 20]))
def test_the_log_behaves_like_a_list(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, bytes]], segment_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("model") / "0"
    owner = Owner(folder, segment_bytes=segment_bytes)
    written: list[tuple[bytes, bool]] = []  # and whether it is a snapshot
    committed = 0
    for operation, record in operations:
        match operation:
            case "append" | "snapshot":
                is_snapshot = operation == "snapshot"
                append = owner.log.append_snapshot if is_snapshot else owner.log.append
                written.append((record, is_snapshot))
                assert append(record) == len(written)
            case "commit" | "wait":
                owner.log.commit()
                committed = len(written)
                if operation == "wait" and committed > owner.log.durable:
                    owner.wait_durable(committed)
            case _:
                kept = 0
                if operation == "kill":
                    kept = owner.log.durable
                    folder = _copy_while_written(folder)
                owner.log.close()
                owner = Owner(folder, segment_bytes=segment_bytes)
                last = owner.log.durable
                assert (kept <= last <= committed) if operation == "kill" else last == len(written)
                del written[last:]
                committed = last
                assert owner.log.recovered == _since_snapshot(written)
    owner.log.close()
    assert recovered(folder) == _since_snapshot(written)


def _since_snapshot(written: list[tuple[bytes, bool]]) -> list[bytes]:
    start = max([0, *(index for index, (_, is_snapshot) in enumerate(written) if is_snapshot)])
    return [record for record, _ in written[start:]]


def _copy_while_written(folder: Path) -> Path:
    """Old files first: a kill shows one moment, but a copy takes longer, and must not miss what was moved on."""
    target = folder.parent / str(int(folder.name) + 1)
    target.mkdir()
    while True:
        before = sorted(path.name for path in folder.iterdir())
        for path in target.iterdir():
            path.unlink()
        try:
            for name in before:
                shutil.copy(folder / name, target / name)
        except FileNotFoundError:
            continue
        if sorted(path.name for path in folder.iterdir()) == before:
            return target


CHILD = """
import sys, threading
from pathlib import Path
from amcast.net.disk.records import Durability, RecordLog

reported = threading.Event()

def report(number):
    reported.set()
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()

log = RecordLog.open(Path(sys.argv[1]), Durability.SYNC, report, lambda error: None, segment_bytes=2000)
number = log.durable
while True:
    for _ in range(7):
        number += 1
        if number % 50 == 0:
            log.append_snapshot(b"s%d" % number)
        else:
            log.append(b"r%d" % number)
    log.commit()
    while number - log.durable > 100:
        reported.wait()
        reported.clear()
"""


def test_kill_9_loses_nothing_that_was_reported(tmp_path: Path) -> None:
    rng = Random(5)
    folder = tmp_path / "log"
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        try:
            lines = [child.stdout.readline() for _ in range(rng.randrange(1, 60))]
        finally:
            child.kill()
        lines += child.stdout.readlines()
        child.stdout.close()
        child.wait()
        reported = int(lines[-1])
        owner = Owner(copy_of(folder, tmp_path / "copy"))
        found = owner.log.recovered
        last = owner.log.durable
        owner.log.close()
        assert last >= reported
        start = last - len(found) + 1
        assert start == max(1, last // 50 * 50)
        assert found == [b"%s%d" % (b"r" if number % 50 else b"s", number) for number in range(start, last + 1)]


def test_the_folder_of_a_killed_process_is_free(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline()
    os.kill(child.pid, 9)
    child.stdout.close()
    child.wait()
    assert recovered(tmp_path)


def test_a_note_that_was_not_synced_is_written_again_with_the_record_after_it(tmp_path: Path) -> None:
    """A sync fails that covers a note of the high-water mark and the record after it. The note may be lost as well.

    The record's own mark says that all records before it are durable. It says nothing of the note, which is no record.
    """
    path = tmp_path / "log-00000000000000000001.amc"
    record = encode([b"r"])
    synced = file_header(_segments.RECORDS, 1, 7) + pack_frame(7, 1, 1, 1, record)
    path.write_bytes(synced + pack_frame(7, 2, 0, 2, b"") + pack_frame(7, 2, 1, 2, record))
    reader = SegmentReader(path, _segments.RECORDS, 1, 7)
    assert [count for _, count, _, _ in reader.frames()] == [1, 0, 1]
    assert reader.durable_end == len(synced)
