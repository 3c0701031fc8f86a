"""What survives a kill: the state of a watch, with the batch it belongs to, and the verdict log.

    DIR/state.msgpack     the state; replaced as a whole
    DIR/violations.jsonl  one line for each violation
    DIR/spark             where Spark notes which files belong to which batch
    DIR/handed            batches that are handed over as files (Spark Connect only)
    DIR/lock              held by the watch that is at work

A batch is committed in two steps: its violations are appended to the log, then the state is replaced. The state says
how long the log was then. Killed between the two, the next watch cuts the log back to what its state says, is given the
same batch by Spark, and appends the same lines. Killed after both, it is given the batch again and passes it over.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import msgspec

from ...check import Violation
from ...core import UsageError
from .._whole import write_whole
from .state import VERSION, WatchState

_FRESH = "name an empty folder as --checkpoint to begin anew"


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "violations.jsonl"
        self.spark = folder / "spark"
        self.handed = folder / "handed"
        self._state_file = folder / "state.msgpack"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
        except OSError as error:
            raise UsageError(f"{folder}: can't be a checkpoint: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise UsageError(f"{folder}: another watch is at work there") from error

    def close(self) -> None:
        self._lock.close()

    def load(self, run_id: str) -> WatchState:
        """The state to go on with: of this run, and not older or newer than what goes with it."""
        if not self._state_file.exists():
            if self.spark.exists() and any(self.spark.glob("offsets/[0-9]*")):
                raise UsageError(f"{self.folder}: {self._state_file.name} is missing; {_FRESH}")
            state = WatchState(run_id)
            self.commit(state, [])  # before Spark notes anything: a state that is missing later was lost
        else:
            state = self._read()
        if state.run_id != run_id:
            raise UsageError(f"{self.folder} belongs to the run {state.run_id}, not to {run_id}; {_FRESH}")
        if state.batch >= 0 and not (self.spark / "offsets" / str(state.batch)).exists():
            raise UsageError(f"{self.folder}: Spark's notes of batch {state.batch} are missing; {_FRESH}")
        self._cut_journal(state.journal_bytes)
        return state

    def _read(self) -> WatchState:
        try:
            state = msgspec.msgpack.decode(self._state_file.read_bytes(), type=WatchState)
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(f"{self._state_file}: can't be read ({error}); {_FRESH}") from error
        if state.version != VERSION:
            raise UsageError(f"{self._state_file} was written by another version of amcast; {_FRESH}")
        return state

    def _cut_journal(self, size: int) -> None:
        with self.journal.open("ab") as journal:
            if journal.tell() < size:
                raise UsageError(f"{self.journal} is shorter than its state says; {_FRESH}")
            journal.truncate(size)

    def commit(self, state: WatchState, found: list[Violation]) -> None:
        lines = [msgspec.json.encode(self._line(state, violation)) + b"\n" for violation in found]
        if lines:
            with self.journal.open("ab") as journal:
                journal.truncate(state.journal_bytes)
                journal.seek(0, os.SEEK_END)
                journal.write(b"".join(lines))
                journal.flush()
                os.fsync(journal.fileno())
            state.journal_bytes += sum(map(len, lines))
        write_whole(self._state_file, msgspec.msgpack.encode(state))

    @staticmethod
    def _line(state: WatchState, violation: Violation) -> dict[str, Any]:
        return {"batch": state.batch, "trigger": state.tick, **msgspec.to_builtins(violation)}
