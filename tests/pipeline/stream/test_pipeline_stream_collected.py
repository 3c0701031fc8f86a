"""Nodes at work write raw files, a collector makes them a growing run, and the watch on Spark verifies it."""

from __future__ import annotations

from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from amcast.net.trace.collect import Collector, collect
from amcast.net.trace.writer import Bounds, TraceWriter
from amcast.pipeline.ingest import check_runs, read_runs
from amcast.pipeline.stream import Event, Watch
from amcast.trace import FINAL
from tests.check.traces import Trace, good_trace

EPOCH_US = 1_790_000_000_000_000
_WHOLE = Bounds()


class LiveNodes:
    """The processes of a trace as nodes: each restarts in the middle, and says again what it said just before."""

    def __init__(self, trace: Trace, folder: Path, bounds: Bounds) -> None:
        self._trace = trace
        self._bounds = bounds
        self._folder = folder
        self._writers = {process: self._writer(process, 0) for process in trace.logs}

    def _writer(self, process: int, boot: int) -> TraceWriter:
        group = self._trace.group_of(process)
        assert group is not None
        return TraceWriter(self._folder, process, group, boot, wire=False, bounds=self._bounds)

    def multicast(self) -> None:
        for writer in self._writers.values():
            for sent in self._trace.sent:
                writer.multicast(sent.msg, sent.sender, sent.seq, sent.dst, EPOCH_US + sent.t_us, 64)
            writer.flush()

    def deliver(self, start: int, stop: int) -> None:
        for process, writer in self._writers.items():
            for row in self._trace.logs[process]:
                if start <= row.pos < stop:
                    writer.delivery(row.pos, row.msg, FINAL, row.ts, EPOCH_US + row.t_us)
            writer.flush()

    def restart(self) -> None:
        for process, writer in self._writers.items():
            writer.close()
            self._writers[process] = self._writer(process, 1)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def live_run(trace: Trace, tmp_path: Path, bounds: Bounds = _WHOLE) -> tuple[LiveNodes, Collector]:
    nodes = LiveNodes(trace, tmp_path / "raw", bounds)
    return nodes, Collector(tmp_path / "raw", tmp_path / "run", lambda sent: trace.info())


def test_a_collected_run_is_watched_while_it_grows(watch_spark: SparkSession, tmp_path: Path) -> None:
    trace = good_trace(Random(2), groups=2, replicas=2, messages=40)
    trace.claims = ("timestamps", "fifo")  # without the wire nobody can tell what is genuine
    nodes, collector = live_run(trace, tmp_path)
    events: list[Event] = []

    def look() -> str:
        return Watch(watch_spark, tmp_path / "run", tmp_path / "checkpoint", events.append).run_once()

    nodes.multicast()
    nodes.deliver(0, 12)
    collector.step()
    assert look() == "unknown"
    nodes.restart()
    nodes.deliver(8, 20)
    collector.step()
    collector.step()  # nothing new: no file
    assert look() == "unknown"
    nodes.deliver(20, 1_000)
    nodes.close()
    report = collector.finish()
    assert look() == "pass"
    assert not [event for event in events if event["event"] == "violation"]
    assert events[-1]["verified"] == 40
    assert (report.repeats, report.restarts) == (4 * 4, 4)
    # The growing run, when it has ended, and the one that is collected at the end are runs for every other check.
    collect(tmp_path / "raw", tmp_path / "whole", lambda sent: trace.info())
    runs = read_runs(watch_spark, [str(tmp_path / "run"), str(tmp_path / "whole")])
    assert not runs.quarantined
    assert [run.verdict for run in check_runs(watch_spark, runs)] == ["pass", "pass"]


def test_nothing_fails_or_passes_by_what_a_limit_dropped(watch_spark: SparkSession, tmp_path: Path) -> None:
    """Between two looks the nodes drop what nobody has read: the run says so before the rows that follow."""
    trace = good_trace(Random(2), groups=2, replicas=2, messages=40)
    trace.claims = ("timestamps", "fifo")
    nodes, collector = live_run(trace, tmp_path, Bounds(1_000))
    events: list[Event] = []

    def look() -> str:
        return Watch(watch_spark, tmp_path / "run", tmp_path / "checkpoint", events.append).run_once()

    nodes.multicast()
    for start, stop in ((0, 6), (6, 40)):
        for position in range(start, stop):
            nodes.deliver(position, position + 1)
        collector.step()
        assert look() == "unknown"
    nodes.close()
    assert all("dropped by the limit of 1 kB" in word for word in collector.finish().missing)
    assert look() == "unknown"
    assert not [event for event in events if event["event"] == "violation"]
    assert "dropped by the limit of 1 kB" in events[-1]["reasons"]["agreement"]
    collect(tmp_path / "raw", tmp_path / "whole", lambda sent: trace.info())
    runs = read_runs(watch_spark, [str(tmp_path / "run"), str(tmp_path / "whole")])
    found = [(run.verdict, run.violations) for run in check_runs(watch_spark, runs)]
    assert found == [("unknown", []), ("unknown", [])]


def test_a_wrong_order_in_a_later_file_is_told(watch_spark: SparkSession, tmp_path: Path) -> None:
    trace = good_trace(Random(1), groups=2, replicas=2, messages=40, dst_max=2)
    shared = [row.pos for row in trace.logs[0] if len(trace.message(row.msg).dst) == 2]
    one, other = [position for position in shared if position >= 15][:2]
    for process in (0, 1):
        trace.swap(process, one, other)
    nodes, collector = live_run(trace, tmp_path)
    events: list[Event] = []
    verdicts = []
    nodes.multicast()
    for start, stop in ((0, 15), (15, 1_000)):
        nodes.deliver(start, stop)
        collector.step()
        watch = Watch(watch_spark, tmp_path / "run", tmp_path / "checkpoint", events.append)
        verdicts.append(watch.run_once())
    nodes.close()
    collector.finish()
    assert verdicts == ["unknown", "fail"]
    assert {"prefix", "acyclic"} <= {event["property"] for event in events if event["event"] == "violation"}
