"""The thread that writes a record log: one write and one sync for all records that came during the last sync.

In sync mode, records are reported as durable when a sync that covers them has succeeded, and never otherwise. If the
disk is full, the same bytes are written to the same place until they fit. After any other error, and after every failed
sync, the writer stops for good.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from queue import Empty
from typing import NamedTuple

from ...core import encode
from ..system import Jobs, system
from ._recovery import Recovered, delete_before, snapshot_parts
from ._segments import RECORDS, SNAPSHOT, SegmentFile, pack_frame, path_of
from .files import is_full, sync, sync_folder, write_file

_PAUSE_S = 0.2  # between attempts on a full disk
_SPARE = "spare.tmp"  # a segment that a snapshot replaced, kept to be used again; recovery deletes it
_IDLE_S = 0.02  # after so long without a job, the high-water mark is written


class ClosingError(Exception):
    """The owner is closing, and could not make durable what a snapshot would replace: the snapshot is not written."""


class Job(NamedTuple):
    first: int
    records: list[bytes]
    is_snapshot: bool


class RecordWriter:
    def __init__(
        self,
        folder: Path,
        recovered: Recovered,
        is_sync: bool,
        on_durable: Callable[[int], None],
        on_failure: Callable[[OSError], None],
        before_first: Callable[[], None],
        before_snapshot: Callable[[], None],
        segment_bytes: int,
    ) -> None:
        self._folder = folder
        self._spare = folder / _SPARE
        self._salt = recovered.salt
        self._segment = recovered.segment
        self._is_sync = is_sync
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._before_first = before_first
        self._before_snapshot = before_snapshot
        self._segment_bytes = segment_bytes
        self._written = recovered.last
        self.synced = recovered.last  # recovery synced it
        self._noted = 0  # the last record of which the segment itself says that it is durable
        self._is_first = True
        self.durable = recovered.last
        self.has_failed = False
        self.waits_for_space = False
        self._jobs: Jobs[Job | None] = system().jobs()  # None: no more will come
        self._closing = system().event()
        self._thread = system().start_thread(self._run, f"log {folder}")

    # -- called by the owner

    def submit(self, job: Job) -> None:
        if not self.has_failed:
            self._jobs.put(job)

    def close(self) -> None:
        self._closing.set()
        self._jobs.put(None)
        self._thread.join()
        if self._segment is not None:
            self._segment.close()

    # -- the thread

    def _run(self) -> None:
        try:
            is_open = True
            while is_open:
                jobs = self._take()
                is_open = jobs[-1] is not None
                self._write([job for job in jobs if job is not None])
            self._finish()
        except ClosingError:
            self.has_failed = True
        except OSError as error:
            self.has_failed = True
            self._on_failure(error)

    def _take(self) -> list[Job | None]:
        jobs = [self._next()]
        try:
            while jobs[-1] is not None:
                jobs.append(self._jobs.get(block=False))
        except Empty:
            pass
        return jobs

    def _next(self) -> Job | None:
        try:
            return self._jobs.get(timeout=_IDLE_S)
        except Empty:
            self._write_high_water()
            return self._jobs.get()

    def _write(self, jobs: list[Job]) -> None:
        batch: list[Job] = []
        for job in jobs:
            if job.is_snapshot:
                self._write_batch(batch)
                batch = []
                self._write_snapshot(job.first, job.records[0])
            else:
                batch.append(job)
        self._write_batch(batch)

    def _write_batch(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        records = jobs[0].records if len(jobs) == 1 else list(chain.from_iterable([job.records for job in jobs]))
        body = encode(records)
        self._retry_while_full(lambda: self._append(jobs[0].first, len(records), body))
        self._written += len(records)
        if self._is_sync:
            segment = self._segment
            assert segment is not None
            sync(segment.fd)
            self._on_synced(self._written)
        else:
            self._report(self._written)

    def _append(self, first: int, count: int, body: bytes) -> None:
        segment = self._segment
        if segment is not None and segment.size >= self._segment_bytes:
            # If a later segment exists, recovery takes this one for durable to its last byte. So make it so first.
            segment.trim()
            sync(segment.fd)
            self.synced = self._written
            segment.close()
            self._segment = segment = None
        if segment is None:
            self._segment = segment = self._begin_segment(first)
            sync_folder(self._folder)
        segment.append(pack_frame(self._salt, first, count, self.synced + 1, body))
        self._noted = self.synced

    def _begin_segment(self, first: int) -> SegmentFile:
        if system().exists(self._spare):
            return SegmentFile.reuse(self._spare, self._folder, RECORDS, first, self._salt)
        return SegmentFile.create(self._folder, RECORDS, first, self._salt)

    def _write_snapshot(self, number: int, record: bytes) -> None:
        self._retry_while_full(self._before_snapshot)
        parts = snapshot_parts(number, record, self._salt)
        self._retry_while_full(lambda: write_file(path_of(self._folder, SNAPSHOT, number), *parts))
        if self._segment is not None:
            self._segment.close()
            system().rename(self._segment.path, self._spare)
            self._segment = None
        self._written = self._noted = number
        self._on_synced(number)
        delete_before(self._folder, number)

    def _on_synced(self, number: int) -> None:
        self.synced = number
        self._report(number)

    def _report(self, number: int) -> None:
        if self._is_first:
            self._retry_while_full(self._before_first)
            self._is_first = False
        self.durable = number
        self._on_durable(number)

    def _write_high_water(self) -> None:
        """Notes in the segment that its records are durable: otherwise damage to the last would pass for a torn write.

        No sync is needed: the note outlives the process at once, and the machine as soon as the kernel has written it.
        """
        segment = self._segment
        if segment is None or self._noted == self.synced:
            return
        try:
            segment.append(pack_frame(self._salt, self._written + 1, 0, self.synced + 1, b""))
        except OSError as error:
            if not is_full(error):
                raise
        else:
            self._noted = self.synced

    def _finish(self) -> None:
        segment = self._segment
        if segment is not None:
            segment.trim()
            sync(segment.fd)
            self.synced = self._written
            self._write_high_water()
            sync(segment.fd)
        if system().exists(self._spare):
            system().unlink(self._spare)

    def _retry_while_full(self, action: Callable[[], None]) -> None:
        while True:
            is_last_attempt = self._closing.is_set()
            try:
                action()
                break
            except OSError as error:
                if is_last_attempt or not is_full(error):
                    raise
                self.waits_for_space = True
                self._closing.wait(_PAUSE_S)
        self.waits_for_space = False
