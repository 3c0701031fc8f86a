"""Collects the raw files of all nodes and boots into one run, with the same tables as a simulated one.

- A multicast is recorded by every process that hears of it from its sender: it goes in once, with its earliest time.
- A process that restarts delivers again what came since its last snapshot: repeats are dropped. A row that delivers
  something else at a position than before is kept, for the checker to see.
- Each boot of a process but its first is recorded as a crash and a restart; files that were never closed are recorded
  as a crash. Nobody wrote down when exactly the process died: the crash gets the time of its last row.
- A client that left for good with messages unanswered is recorded as a crash of that client.
- What should have been recorded and was not (a process, a boot, the last deliveries) is listed in `run.json`, and no
  checker lets such a run pass. What should be there, the caller knows: `Expect`.
- So is what a node dropped to keep its trace within its limits, unless it was taken in before.
- A torn last row is dropped. Rows are written before anything leaves for other processes, so nobody saw its effects.
- Times are relative to the earliest one.

`collect` runs when all nodes have ended, `Collector` while they work, for `amcast watch`. A collector writes a
multicast when the first record of it is found, even if an earlier time turns up later; times are relative to the
earliest one of the first step that found any.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...trace import GrowingRun, write_run
from ._intake import CollectReport, Describe, Intake
from .evidence import Boots, Expect, Expected

__all__ = ["Boots", "CollectReport", "Collector", "Describe", "Expect", "Expected", "collect"]


def collect(
    raw_folder: str | Path,
    out_folder: str | Path,
    describe: Describe,
    expect: Expect = dict,
    histories: Path | None = None,
) -> CollectReport:
    """Writes the run `out_folder`, whole or not at all. `histories`: what clients wrote down (`history.py`)."""
    intake = Intake(Path(raw_folder), expect, histories)
    tables = intake.take(is_last=True)
    write_run(out_folder, intake.description(describe), tables)
    return intake.report


class Collector:
    """Follows nodes at work: each step appends what they wrote since the last one to a growing run.

    After an error it can't go on: rows that were read are not in the run.
    """

    def __init__(
        self,
        raw_folder: str | Path,
        out_folder: str | Path,
        describe: Describe,
        expect: Expect = dict,
        histories: Path | None = None,
    ) -> None:
        self._intake = Intake(Path(raw_folder), expect, histories)
        self._describe = describe
        self._info = describe(())
        self._run = GrowingRun(out_folder, self._info)

    def step(self) -> CollectReport:
        """Reports on all steps so far. If rows are missing, `run.json` says so before those that follow are there."""
        tables = self._intake.take(is_last=False)
        dropped = self._intake.dropped(self._info)
        if dropped != self._info.missing:
            self._info = msgspec.structs.replace(self._info, missing=dropped)
            self._run.describe(self._info)
        self._run.append(tables)
        return self._intake.report

    def finish(self) -> CollectReport:
        """Takes in the rest, when all nodes have ended, and describes the whole run in `run.json`."""
        tables = self._intake.take(is_last=True)
        info = self._intake.description(self._describe)
        if info.missing != self._info.missing:
            self._run.describe(msgspec.structs.replace(self._info, missing=info.missing))
        self._run.append(tables)
        self._run.close(info)
        return self._intake.report
