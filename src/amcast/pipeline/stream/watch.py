"""Runs the stream: every batch goes through the verifier and is committed; the end of the run is noticed.

The run has ended when `run.json` says `complete` and a trigger that began afterwards finds no new file: whoever writes
a run writes its last file first and `run.json` last. Triggers without rows count as well, since what is late is late
by triggers.
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
from ..session import is_connect
from ._handed import handed_batches, writer_of
from .checkpoint import Checkpoint
from .reporter import verdict_of
from .rows import arrived_of, growing_run
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
        """What is there now, and no more."""
        try:
            info = read_run_info(self._folder)  # before the files: what is complete now has all of them
            query = self._start({"availableNow": True})
            try:
                self._await(query.awaitTermination)
            finally:
                _stop(query)
            self._take_handed()
            if not self._batches:
                self._idle()
            if info.complete:
                self._finish(info)
            return verdict_of(self.state)
        finally:
            self._close()

    def run(self, trigger_s: float = 1.0, wait: Callable[[float], Any] | None = None) -> Verdict:
        """Until the run is complete."""
        pause = wait or threading.Event().wait
        try:
            query = self._start({"processingTime": f"{int(trigger_s * 1000)} milliseconds"})
            try:
                while not self.state.finished:
                    info = self._reread()
                    seen = self._batches
                    self._await(query.processAllAvailable)
                    self._take_handed()
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
        """After this no batch is committed, also none that Spark's thread is at."""
        with self._lock:
            self._is_closed = True
            self._checkpoint.close()

    def _start(self, trigger: dict[str, Any]) -> StreamingQuery:
        takes = writer_of(self._checkpoint.handed) if is_connect(self._spark) else self._on_batch
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
        """The description may be replaced at this very moment: then the one before holds for another trigger."""
        try:
            self._info = read_run_info(self._folder)
        except UsageError:
            if not self._folder.is_dir():
                raise
        return self._info

    # -------------------------------------------------------------------------------------------- batches

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        try:
            if batch > self.state.batch:  # else it was committed here, and Spark was killed before it noted that
                self._take(batch, frame.toArrow())
        except Exception as error:
            self._error = error
            raise

    def _take_handed(self) -> None:
        for batch, rows in handed_batches(self._checkpoint.handed):
            if batch > self.state.batch:
                self._take(batch, rows)

    def _take(self, batch: int, table: pa.Table) -> None:
        rows, written_ms = arrived_of(table)
        with self._lock:
            if self._is_closed:
                raise UsageError("the watch is over")  # in silence, Spark would note the batch as taken
            self._batches += 1
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
        """How things stand, as an event."""
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
    with suppress(Exception):  # a session that is gone has no queries either
        query.stop()
