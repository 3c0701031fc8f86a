"""Runs the stream: passes every batch to the verifier, commits it to the checkpoint, and notices the end of the run.

A run is written so that `run.json` says `complete` after the last file is there. So the run has ended when a trigger
that began after `run.json` said so finds no new file. Triggers without rows are passed to the verifier too, since it
counts in triggers how late a row is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ...check import Verdict, Violation
from ...core import UsageError
from ...trace import read_run_info
from ...trace.schema import RunInfo
from .._errors import first_line
from ..spark import is_connect
from ._spool import spool_writer, spooled_batches
from .checkpoint import Checkpoint
from .reporter import verdict_of
from .source import arrived_of, growing_run
from .verifier import Arrived, Verifier

Event = dict[str, Any]
OnEvent = Callable[[Event], None]


class Watch:
    """One run, one checkpoint. `now` is the time in seconds, for the lag; `on_event` is called from Spark's thread."""

    def __init__(
        self,
        spark: SparkSession,
        run: str | Path,
        checkpoint: str | Path,
        on_event: OnEvent = lambda event: None,
        now: Callable[[], float] = lambda: 0.0,
        patience: int = 1,
    ) -> None:
        self._spark = spark
        self._folder = Path(run)
        self._on_event = on_event
        self._now = now
        self._info = read_run_info(self._folder)
        if not self._info.groups:
            raise UsageError(f"{self._folder}: it has operations alone, and no deliveries to watch: use amcast check")
        self._checkpoint = Checkpoint(Path(checkpoint))
        try:
            self.state = self._checkpoint.load(self._info.run_id)
            self._verifier = Verifier(self._info, self.state, patience)
        except BaseException:
            self._checkpoint.close()
            raise
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._batches = 0
        self._is_closed = False

    # ------------------------------------------------------------------------------------- two ways to run

    def run_once(self) -> Verdict:
        """Verifies the files that are there now, and ends."""
        try:
            info = read_run_info(self._folder)  # before the files: if it says complete, all files are there
            query = self._start({"availableNow": True})
            try:
                self._await(query.awaitTermination)
            finally:
                _stop(query)
            self._take_spooled()
            if not self._batches:
                self._idle()
            if info.complete:
                self._finish(info)
            return verdict_of(self.state)
        finally:
            self._close()

    def run(self, trigger_s: float = 1.0, wait: Callable[[float], Any] | None = None) -> Verdict:
        """Verifies until the run is complete."""
        pause = wait or threading.Event().wait
        try:
            query = self._start({"processingTime": f"{int(trigger_s * 1000)} milliseconds"})
            try:
                while not self.state.finished:
                    info = self._reread()
                    seen = self._batches
                    self._await(query.processAllAvailable)
                    self._take_spooled()
                    if seen == self._batches:
                        self._idle()
                    if info.complete:
                        self._finish(info)
                    else:
                        pause(trigger_s)
            finally:
                _stop(query)
            return verdict_of(self.state)
        finally:
            self._close()

    def _close(self) -> None:
        """After this no batch is committed, not even one that Spark's thread is just taking."""
        with self._lock:
            self._is_closed = True
            self._checkpoint.close()

    def _start(self, trigger: dict[str, Any]) -> StreamingQuery:
        takes = spool_writer(self._checkpoint.spool) if is_connect(self._spark) else self._on_batch
        stream = growing_run(self._spark, self._folder).writeStream.foreachBatch(takes)
        stream = stream.option("checkpointLocation", str(self._checkpoint.spark.resolve()))
        return stream.trigger(**trigger).start()

    def _await(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:
            if isinstance(self._error, UsageError):
                raise self._error from None
            raise UsageError(f"{self._folder}: the watch stopped: {first_line(self._error or error)}") from error

    def _reread(self) -> RunInfo:
        """If run.json is just being replaced and can't be read, the one before holds until the next trigger."""
        try:
            self._info = read_run_info(self._folder)
        except UsageError:
            if not self._folder.is_dir():
                raise
        return self._info

    # -------------------------------------------------------------------------------------------- batches

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        try:
            if batch > self.state.batch:  # else it was committed before a kill, and Spark repeats it
                self._take(batch, frame.toArrow())
        except Exception as error:
            self._error = error
            raise

    def _take_spooled(self) -> None:
        for batch, rows in spooled_batches(self._checkpoint.spool):
            if batch > self.state.batch:
                self._take(batch, rows)

    def _take(self, batch: int, table: pa.Table) -> None:
        rows, written_ms = arrived_of(table)
        with self._lock:
            if self._is_closed:
                raise UsageError("the watch is over")  # without an error Spark would count the batch as done
            self._batches += 1
            self._verifier.look_for_evidence(self._reread())
            found = self._verifier.feed(rows)
            self.state.batch = batch
            self._commit("batch", found, written_ms)

    def _idle(self) -> None:
        with self._lock:
            if not self.state.finished:
                self._commit("idle", self._verifier.feed(Arrived()))

    def _finish(self, info: RunInfo) -> None:
        with self._lock:
            if not self.state.finished:
                self._commit("end", self._verifier.finish(info))
            else:
                self._on_event(self.status("end"))

    def _commit(self, what: str, found: list[Violation], written_ms: int = 0) -> None:
        self._checkpoint.commit(self.state, found)
        for violation in found:
            self._on_event({"event": "violation", **self._when(), **msgspec.to_builtins(violation)})
        status = self.status(what)
        if written_ms:
            status["lag_s"] = round(max(0.0, self._now() - written_ms / 1000), 3)
        self._on_event(status)

    def _when(self) -> Event:
        return {"batch": self.state.batch, "trigger": self.state.tick}

    def status(self, what: str) -> Event:
        """The verdicts and counts so far, as an event."""
        state = self.state
        return {
            "event": what,
            **self._when(),
            "verdict": verdict_of(state),
            "properties": dict(state.verdicts),
            "reasons": dict(state.reasons),
            "violations": sum(state.violations.values()),
            "multicasts": state.multicasts,
            "deliveries": state.deliveries,
            "verified": state.settled.count,
            "in_flight": len(state.open),
            "held": state.held,
        }


def _stop(query: StreamingQuery) -> None:
    with suppress(Exception):  # the Spark session may have ended, and the query with it
        query.stop()
