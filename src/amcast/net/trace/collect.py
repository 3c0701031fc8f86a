"""From the raw files of all nodes and boots to one run, in the tables that the simulator writes as well.

- A multicast is recorded by everyone who hears of it from its sender: it counts once, as of the earliest time.
- After a restart a process delivers again what came since its last snapshot: a repeat is dropped. A row that says
  something else than the first one at its position stays, since that is what a check must see.
- Each boot after a process's first one is a crash and a restart, and files that were never closed are a crash. When
  exactly a process died nobody wrote down: the crash has the time of the last row before it.
- A torn last row is dropped. What was torn off was seen by nobody.
- Times are relative to the earliest one.

`collect` does it when all is over, `Collector` while the nodes are at work, for `amcast watch`. Live, a message counts
as it was first found, and times are relative to the earliest one of the first rows.
"""

from __future__ import annotations

from pathlib import Path

from ...trace import GrowingRun, write_run
from ._intake import CollectReport, Describe, Intake

__all__ = ["CollectReport", "Collector", "Describe", "collect"]


def collect(raw_folder: str | Path, out_folder: str | Path, describe: Describe) -> CollectReport:
    """Writes the run `out_folder`, whole or not at all."""
    intake = Intake(Path(raw_folder))
    tables = intake.take(is_last=True)
    write_run(out_folder, intake.description(describe), tables)
    return intake.report


class Collector:
    """Follows nodes at work: each step appends what they wrote since the last one to a run that grows.

    An error ends it: what was just read is told nowhere.
    """

    def __init__(self, raw_folder: str | Path, out_folder: str | Path, describe: Describe) -> None:
        self._intake = Intake(Path(raw_folder))
        self._describe = describe
        self._run = GrowingRun(out_folder, describe(()))

    def step(self) -> CollectReport:
        """What was taken in so far, with this step."""
        self._run.append(self._intake.take(is_last=False))
        return self._intake.report

    def finish(self) -> CollectReport:
        """All nodes have ended: takes in the rest, and describes the whole run in `run.json`."""
        self._run.append(self._intake.take(is_last=True))
        self._run.close(self._intake.description(self._describe))
        return self._intake.report
