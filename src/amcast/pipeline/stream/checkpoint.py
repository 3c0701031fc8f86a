"""The checkpoint of a watch: a folder from which a killed watch goes on, and repeats and misses no violation.

    DIR/state.msgpack     the state after the last committed batch; replaced as a whole
    DIR/violations.jsonl  one line for each violation
    DIR/spark             Spark's own checkpoint: which files belong to which batch
    DIR/handed            batches on their way from a Spark Connect server to the watch (`_spool.py`)
    DIR/lock              held by the watch that is running

A batch is committed in two steps: its violations are appended to violations.jsonl, then the state is replaced, which
says how long that file is now. A watch that is killed between the two leaves lines too many: the next watch cuts the
file back to the length in the state, gets the same batch from Spark again, and appends the same lines. After both steps
Spark may still repeat the batch; the state has its number, so it is skipped.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import msgspec

from ...check import Violation
from ...core import UsageError
from ...trace.whole import write_whole
from .state import VERSION, WatchState

_FRESH = "name an empty folder as --checkpoint to start over"


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.violations = folder / "violations.jsonl"
        self.spark = folder / "spark"
        self.spool = folder / "handed"
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
            raise UsageError(f"{folder}: another watch is using this checkpoint") from error

    def close(self) -> None:
        self._lock.close()

    def load(self, run_id: str) -> WatchState:
        """The state to go on with. Refuses one of another run, and one that does not fit the other files here."""
        if not self._state_file.exists():
            if self.spark.exists() and any(self.spark.glob("offsets/[0-9]*")):
                raise UsageError(f"{self.folder}: {self._state_file.name} is missing; {_FRESH}")
            state = WatchState(run_id)
            self.commit(state, [])  # before Spark writes anything: if the state is missing later, it was lost
        else:
            state = self._read()
        if state.run_id != run_id:
            raise UsageError(f"{self.folder} belongs to the run {state.run_id}, not to {run_id}; {_FRESH}")
        if state.batch >= 0 and not (self.spark / "offsets" / str(state.batch)).exists():
            raise UsageError(f"{self.folder}: Spark's record of batch {state.batch} is missing; {_FRESH}")
        self._cut_violations(state.violations_bytes)
        return state

    def _read(self) -> WatchState:
        try:
            state = msgspec.msgpack.decode(self._state_file.read_bytes(), type=WatchState)
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(f"{self._state_file}: can't be read ({error}); {_FRESH}") from error
        if state.version != VERSION:
            raise UsageError(f"{self._state_file} was written by another version of amcast; {_FRESH}")
        return state

    def _cut_violations(self, size: int) -> None:
        with self.violations.open("ab") as file:
            if file.tell() < size:
                raise UsageError(f"{self.violations} is shorter than {self._state_file.name} says; {_FRESH}")
            file.truncate(size)

    def commit(self, state: WatchState, found: list[Violation]) -> None:
        lines = [msgspec.json.encode(self._line(state, violation)) + b"\n" for violation in found]
        if lines:
            with self.violations.open("ab") as file:
                file.truncate(state.violations_bytes)
                file.seek(0, os.SEEK_END)
                file.write(b"".join(lines))
                file.flush()
                os.fsync(file.fileno())
            state.violations_bytes += sum(map(len, lines))
        write_whole(self._state_file, msgspec.msgpack.encode(state))

    @staticmethod
    def _line(state: WatchState, violation: Violation) -> dict[str, Any]:
        return {"batch": state.batch, "trigger": state.tick, **msgspec.to_builtins(violation)}
