"""A disk with group commit: what is written is durable one sync later, and one sync covers all that was written.

After a crash the records of finished syncs are there. Of those still under way a prefix may be there as well: the disk
was asked to write them, and nobody can know how far it came.
"""

from __future__ import annotations

from random import Random


class Disk:
    """Records are counted from the first one ever written, whether it is still kept or not."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._forgotten = 0  # replaced by a durable snapshot
        self._durable = 0
        self._snapshots: list[int] = []  # the numbers of snapshots that are not durable yet

    @property
    def written(self) -> int:
        return self._forgotten + len(self._records)

    def write(self, record: bytes, is_snapshot: bool) -> None:
        if is_snapshot:
            self._snapshots.append(self.written)
        self._records.append(record)

    def is_durable(self, written: int) -> bool:
        return written <= self._durable

    def sync(self, written: int) -> None:
        """The first `written` records become durable. Those before a durable snapshot are deleted."""
        self._durable = written
        while self._snapshots and self._snapshots[0] < written:
            index = self._snapshots.pop(0)
            del self._records[: index - self._forgotten]
            self._forgotten = index

    def sync_all(self) -> None:
        if self._snapshots:
            self.sync(self.written)
        else:
            self._durable = self._forgotten + len(self._records)

    def crash(self, rng: Random) -> None:
        kept = self._durable + rng.randrange(self.written - self._durable + 1)
        del self._records[kept - self._forgotten :]
        self._snapshots = [index for index in self._snapshots if index < kept]
        self.sync(kept)

    def wipe(self) -> None:
        self._records, self._snapshots = [], []
        self._forgotten = self._durable = 0

    def records(self) -> list[bytes]:
        return self._records
