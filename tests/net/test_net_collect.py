"""Raw files of nodes become the run that one observer of everything would have recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest

from amcast.check import check_run
from amcast.core.ids import SEQ_BITS
from amcast.net.trace._multicasts import Ids
from amcast.net.trace.collect import Collector, collect
from amcast.net.trace.writer import TraceWriter
from amcast.sim.faults import KINDS
from amcast.sim.fuzz import fuzz_scenario
from amcast.sim.watch import FinalDeliveries, OptimisticDeliveries
from amcast.trace import FINAL, OPTIMISTIC, GroupInfo, Recorder, Run, RunInfo, read_run, read_run_info
from amcast.trace.schema import CRASH, RESTART, RESTORED, encode_run_info
from tests.net.raw_traces import kill, restored_of, simulate_nodes

INFO = RunInfo(
    run_id="real",
    protocol="fastcast",
    seed=0,
    complete=True,
    groups=(GroupInfo(1, (0, 1)), GroupInfo(2, (2, 3))),
    correct=(0, 1, 2, 3),
)
CLIENT = 9


def described(sent: object) -> RunInfo:
    return INFO


def assert_same_rows(found: Run, wanted: Run, shift_us: int = 0) -> None:
    """Multicasts in any order; messages on the wire in any order."""
    for name in ("process", "grp", "pos", "msg", "kind", "ts"):
        assert getattr(found.deliveries, name).tolist() == getattr(wanted.deliveries, name).tolist(), name
    assert (found.deliveries.t_us + shift_us).tolist() == wanted.deliveries.t_us.tolist()
    assert multicast_rows(found, shift_us) == multicast_rows(wanted, 0)
    assert wire_rows(found, shift_us) == wire_rows(wanted, 0)


def multicast_rows(run: Run, shift_us: int) -> list[tuple[object, ...]]:
    sent = run.multicasts
    dst = [tuple(part) for part in np.split(sent.dst, sent.dst_start[1:-1])] if len(sent) else []
    numbers = (sent.msg, sent.sender, sent.client_seq, sent.bytes, sent.t_us + shift_us)
    return sorted(zip(*(column.tolist() for column in numbers), dst, strict=True))


def wire_rows(run: Run, shift_us: int) -> list[tuple[object, ...]]:
    wire = run.wire
    kinds = [wire.kinds[number] for number in wire.kind]
    received = [value if value < 0 else value + shift_us for value in wire.received_us.tolist()]
    numbers = (wire.src, wire.dst, wire.msg, wire.bytes, wire.sent_us + shift_us)
    return sorted(zip(*(column.tolist() for column in numbers), kinds, received, strict=True))


# ------------------------------------------------------------------------------------------- simulated runs

HONEST_KINDS = tuple(kind for kind in KINDS if kind != "lying-client")  # nodes record no client's lies


@pytest.mark.parametrize("name", ["basecast", "fastcast", "multipaxos", "oam", "sequencer"])
def test_nodes_of_a_simulated_run_tell_what_the_simulator_saw(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeats = restored = restarts = 0
    for seed in range(20, 26):
        raw, out = tmp_path / f"raw-{seed}", tmp_path / f"run-{seed}"
        forgetful = msgspec.structs.replace(fuzz_scenario(name, seed, HONEST_KINDS, replicas=3), history_max=2)
        result = simulate_nodes(forgetful, raw, monkeypatch)
        info = result.info
        report = collect(raw, out, lambda sent, info=info: info)
        found, wanted = read_run(out), result.run()
        assert encode_run_info(found.info) == encode_run_info(wanted.info)
        first = min(int(wanted.multicasts.t_us.min()), int(wanted.wire.sent_us.min()))
        assert_same_rows(found, wanted, first)
        assert sorted(restored_of(found.faults)) == sorted(restored_of(wanted.faults))
        assert check_run(found).verdict == check_run(wanted).verdict == "pass", f"seed {seed}"
        repeats += report.repeats
        restarts += report.restarts
        restored += len(restored_of(found.faults))
    assert min(repeats, restarts, restored) > 0, "runs in which nothing of that happens show nothing"


def test_a_swapped_delivery_is_caught(tmp_path: Path) -> None:
    for process, log in ((0, [1, 2]), (1, [2, 1])):
        writer = TraceWriter(tmp_path / "raw", process, 1, 0, wire=False)
        for seq in (1, 2):
            writer.multicast(CLIENT << SEQ_BITS | seq, CLIENT, seq, (1,), seq, 8)
        for position, seq in enumerate(log):
            writer.delivery(position, CLIENT << SEQ_BITS | seq, FINAL, None, 10 + position)
        writer.close()
    info = msgspec.structs.replace(INFO, groups=(GroupInfo(1, (0, 1)),), correct=(0, 1))
    collect(tmp_path / "raw", tmp_path / "run", lambda sent: info)
    properties = dict(check_run(read_run(tmp_path / "run")).properties)
    assert {name for name, verdict in properties.items() if verdict == "fail"} == {"replicas", "prefix", "acyclic"}


# --------------------------------------------------------------------------------- anything that processes may do


class RandomProcesses:
    """Processes that deliver, crash and restart at random, and what an observer of all of them records."""

    def __init__(self, rng: Random, folder: Path) -> None:
        self.recorder = Recorder()
        self.restored: list[tuple[int, str]] = []
        self._rng = rng
        self._folder = folder
        self._now = 5_000
        self._final = {process: FinalDeliveries() for process in range(4)}
        self._guesses = {process: OptimisticDeliveries() for process in range(4)}
        self._guessed: dict[int, list[int]] = {process: [] for process in range(4)}  # in all boots
        self._guessed_now = dict.fromkeys(range(4), 0)  # in this boot
        self._sent: dict[int, tuple[int, ...]] = {}

    def go_on(self) -> Iterator[None]:
        """Stops wherever the files can be looked at."""
        rng = self._rng
        boots = dict.fromkeys((0, 1, 2, 3, CLIENT), 0)
        writers = {process: self._writer(process, 0) for process in boots}
        for _ in range(rng.randint(1, 60)):
            process = rng.choice(sorted(boots))
            self._now += rng.randint(0, 30)
            if process == CLIENT:
                self._multicast(writers)
            elif rng.random() < 0.15:
                kill(writers[process])
                self._tear(process, boots[process])
                boots[process] += 1
                writers[process] = self._writer(process, boots[process])
                self._guesses[process].begin_boot(self._final[process])
                self._guessed_now[process] = 0
                # A row, from which it is seen when the boot began.
                self._deliver(writers[process], process)
            elif rng.random() < 0.1:
                self._restore(writers[process], process)
            else:
                for _ in range(rng.randint(1, 4)):
                    self._deliver(writers[process], process)
            if rng.random() < 0.5:
                writers[process].flush()
            yield
        for writer in writers.values():
            writer.close()
        self.boots = boots

    def _writer(self, process: int, boot: int) -> TraceWriter:
        return TraceWriter(self._folder, process, -1 if process == CLIENT else process // 2 + 1, boot, wire=True)

    def _tear(self, process: int, boot: int) -> None:
        for table, size in (("deliveries", 32), ("multicasts", 39), ("wire", 39), ("faults", 9)):
            torn = b'[1, "cra' if table == "faults" else self._rng.randbytes(self._rng.randrange(size))
            with (self._folder / f"{table}.{process}.{boot}.raw").open("ab") as file:
                file.write(torn)

    def _multicast(self, writers: dict[int, TraceWriter]) -> None:
        seq = len(self._sent)
        dst = self._rng.choice([(1,), (2,), (1, 2)])
        message = CLIENT << SEQ_BITS | seq
        self._sent[message] = dst
        self.recorder.multicast(message, CLIENT, seq, dst, self._now, 64)
        writers[CLIENT].multicast(message, CLIENT, seq, dst, self._now, 64)
        for process in self._rng.sample(range(4), 2):
            delay = self._rng.randint(0, 50)
            writers[process].multicast(message, CLIENT, seq, dst, self._now + delay, 64)
            writers[process].wire(CLIENT, process, f"START{process}", message, 70, self._now, self._now + delay)
            self.recorder.wire(CLIENT, process, f"START{process}", message, 70, self._now, self._now + delay)

    def _deliver(self, writer: TraceWriter, process: int) -> None:
        """Delivers the next message, one that it delivered before or, wrongly, another one at an old position."""
        rng = self._rng
        if rng.random() < 0.3:
            self._guess(writer, process)
            return
        final = self._final[process]
        message, ts = CLIENT << SEQ_BITS | rng.randrange(50), rng.choice((None, 7, 8))
        position = len(final.ids)
        if position and rng.random() < 0.4:
            position = rng.randrange(position)
            if rng.random() < 0.8 and final.ids[position] >= 0:
                message, ts = final.ids[position], None if final._ts[position] < 0 else final._ts[position]
        writer.delivery(position, message, FINAL, ts, self._now)
        if not final.repeats(position, message, ts):
            self.recorder.delivery(process, process // 2 + 1, position, message, FINAL, ts, self._now)

    def _guess(self, writer: TraceWriter, process: int) -> None:
        """Guesses something new, or what it guessed or delivered in any of its boots."""
        rng, guessed = self._rng, self._guessed[process]
        known = [*guessed, *(id_ for id_ in self._final[process].ids if id_ >= 0)]
        message = rng.choice(known) if known and rng.random() < 0.5 else CLIENT << SEQ_BITS | 1_000 + len(guessed)
        guessed.append(message)
        position = self._guessed_now[process]
        self._guessed_now[process] += 1
        writer.delivery(position, message, OPTIMISTIC, None, self._now)
        place = self._guesses[process].position(position, message)
        if place is not None:
            self.recorder.delivery(process, process // 2 + 1, place, message, OPTIMISTIC, None, self._now)

    def _restore(self, writer: TraceWriter, process: int) -> None:
        final = self._final[process]
        position = self._rng.randrange(len(final.ids) + 5)
        writer.restored(position, self._now)
        if position > len(final.ids):
            final.skip_to(position)
            self.restored.append((process, json.dumps({"position": position})))


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_equals_what_an_observer_of_everything_records(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 20):
        processes = RandomProcesses(Random(seed), tmp_path / f"raw-{seed}")
        for _ in processes.go_on():
            pass
        wanted = processes.recorder.run(INFO)
        report = collect(tmp_path / f"raw-{seed}", tmp_path / f"run-{seed}", described)
        found = read_run(tmp_path / f"run-{seed}")
        shift = earliest(wanted) - earliest(found) if len(wanted.deliveries) + len(wanted.multicasts) else 0
        assert_same_rows(found, wanted, shift)
        assert sorted(restored_of(found.faults)) == sorted(processes.restored), f"seed {seed}"
        down = sorted((fault.process, fault.what) for fault in found.faults if fault.what != RESTORED)
        restarts = [(process, what) for process, boot in processes.boots.items() for what in (CRASH, RESTART) * boot]
        assert down == sorted(restarts), f"seed {seed}"
        assert report.restarts == sum(processes.boots.values())
        assert report.deliveries == len(wanted.deliveries)


def earliest(run: Run) -> int:
    return min(int(column.min()) for column in (run.deliveries.t_us, run.multicasts.t_us) if len(column))


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_a_growing_run_ends_as_the_one_that_is_collected_at_the_end(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 8):
        rng = Random(seed)
        raw, live, whole = (tmp_path / f"{name}-{seed}" for name in ("raw", "live", "whole"))
        raw.mkdir()
        collector = Collector(raw, live, described)
        assert not read_run_info(live).complete
        for _ in RandomProcesses(rng, raw).go_on():
            if rng.random() < 0.3:
                collector.step()
        report = collector.finish()
        assert collect(raw, whole, described) == report
        found, wanted = read_run(live), read_run(whole)
        assert found.info.complete
        assert wire_rows(found, 0) == wire_rows(wanted, wire_shift(found, wanted))
        for name in ("process", "pos", "kind", "msg", "ts"):
            # Rows that contradict each other have one position, and no order among them.
            both = [sorted(zip(*deliveries(run, name), strict=True)) for run in (found, wanted)]
            assert both[0] == both[1], f"seed {seed}: {name}"
        assert found.restored == wanted.restored
        # The time of a multicast is the earliest that was known when it was found.
        ids = [[row[:4] + row[5:] for row in multicast_rows(run, 0)] for run in (found, wanted)]
        assert ids[0] == ids[1], f"seed {seed}"


def deliveries(run: Run, name: str) -> list[list[int]]:
    rows = run.deliveries
    return [column.tolist() for column in (rows.process, rows.kind, rows.pos, getattr(rows, name))]


def wire_shift(found: Run, wanted: Run) -> int:
    return int(found.wire.sent_us.min() - wanted.wire.sent_us.min()) if len(found.wire) else 0


# ------------------------------------------------------------------------------------------- single rules


@pytest.mark.parametrize("other", [(1, 2), (2,)])
def test_one_id_for_two_messages_stays_twice(other: tuple[int, ...], tmp_path: Path) -> None:
    for process, dst in ((0, (1,)), (1, (1,)), (2, other)):
        writer = TraceWriter(tmp_path / "raw", process, process // 2 + 1, 0, wire=False)
        writer.multicast(CLIENT << SEQ_BITS, CLIENT, 0, dst, 100 + process, 8)
        writer.close()
    assert collect(tmp_path / "raw", tmp_path / "run", described).multicasts == 2
    report = check_run(read_run(tmp_path / "run"))
    assert dict(report.properties)["integrity"] == "fail"


def test_the_earliest_time_of_a_multicast_counts_and_all_times_begin_at_0(tmp_path: Path) -> None:
    for process, t_us in ((0, 1_700), (1, 1_650), (CLIENT, 1_500)):
        writer = TraceWriter(tmp_path / "raw", process, 1, 0, wire=False)
        writer.multicast(CLIENT << SEQ_BITS, CLIENT, 0, (1,), t_us, 8)
        writer.fault("slow disk", "fsync took 3 s\nor more", t_us + 1)
        writer.close()
    collect(tmp_path / "raw", tmp_path / "run", described)
    run = read_run(tmp_path / "run")
    assert run.multicasts.t_us.tolist() == [0]
    assert [(fault.process, fault.t_us) for fault in run.faults] == [(CLIENT, 1), (1, 151), (0, 201)]
    assert run.faults[0].detail == "fsync took 3 s\nor more"


def test_a_crash_is_between_the_boots(tmp_path: Path) -> None:
    for boot, t_us in ((3, 100), (4, 250), (7, 240)):  # the clock was set back before the last one
        writer = TraceWriter(tmp_path / "raw", 0, 1, boot, wire=False)
        writer.delivery(0, CLIENT << SEQ_BITS, FINAL, 1, t_us)
        writer.close()
    report = collect(tmp_path / "raw", tmp_path / "run", described)
    faults = [(fault.what, fault.t_us) for fault in read_run(tmp_path / "run").faults]
    assert faults == [(CRASH, 0), (CRASH, 140), (RESTART, 140), (RESTART, 150)]
    assert (report.restarts, report.repeats, report.deliveries) == (2, 2, 1)


def test_times_of_a_process_never_go_back(tmp_path: Path) -> None:
    """Its clock was set back between two deliveries, which are in the order in which it made them."""
    writer = TraceWriter(tmp_path / "raw", 0, 1, 1, wire=False)
    writer.multicast(7, 9, 7, (1,), 1_000, 8)
    writer.delivery(0, 7, OPTIMISTIC, None, 5_000)
    writer.delivery(0, 7, FINAL, 3, 2_000)
    writer.delivery(1, 8, FINAL, 4, 6_000)
    writer.close()
    collect(tmp_path / "raw", tmp_path / "run", described)
    assert sorted(read_run(tmp_path / "run").deliveries.t_us.tolist()) == [4_000, 4_000, 5_000]


def test_files_that_were_never_closed_are_a_crash(tmp_path: Path) -> None:
    for process in (0, 1, CLIENT):
        writer = TraceWriter(tmp_path / "raw", process, 1, 0, wire=False)
        writer.multicast(CLIENT << SEQ_BITS | process, CLIENT, process, (1,), 100 + process, 8)
        kill(writer) if process == CLIENT else writer.close()
    collect(tmp_path / "raw", tmp_path / "run", described)
    faults = [(fault.process, fault.what, fault.t_us) for fault in read_run(tmp_path / "run").faults]
    assert faults == [(CLIENT, CRASH, CLIENT)]


def test_a_live_run_shows_a_received_state_when_others_have_its_positions(tmp_path: Path) -> None:
    """Otherwise the process would seem to have received a state that no replica was ever in."""
    behind, ahead = (TraceWriter(tmp_path / "raw", process, 1, 0, wire=False) for process in (1, 0))
    collector = Collector(tmp_path / "raw", tmp_path / "run", described)
    behind.restored(2, 50)
    behind.delivery(2, CLIENT << SEQ_BITS | 2, FINAL, 3, 51)
    behind.flush()
    assert collector.step().deliveries == 0
    for position in range(3):
        ahead.delivery(position, CLIENT << SEQ_BITS | position, FINAL, position + 1, 40 + position)
    ahead.flush()
    assert collector.step().deliveries == 4
    for writer in (behind, ahead):
        writer.close()
    report = collector.finish()
    assert (report.deliveries, report.faults, report.torn_bytes) == (4, 1, 0)
    assert read_run(tmp_path / "run").restored == {1: (2,)}


def test_ranges_of_ids_close_up() -> None:
    rng = np.random.default_rng(4)
    numbers = rng.permutation(np.concatenate((np.arange(500), np.arange(500) + (CLIENT << SEQ_BITS))))
    ids = Ids()
    for part in np.split(numbers, 20):
        assert not ids.has(part).any()
        ids.add(part)
        assert ids.has(part).all()
    assert ids.ranges == 2
    assert ids.has(np.array([-1, 0, 499, 500, CLIENT << SEQ_BITS, (CLIENT << SEQ_BITS) + 500])).tolist() == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
