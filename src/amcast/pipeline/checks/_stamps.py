"""Final timestamps, where a run has them: one for each message, no two alike, rising along every log.

Rows without a timestamp are passed over.
"""

from __future__ import annotations

import numpy as np

from ...check.report import NO_STAMPS, VIOLATIONS_PER_PROPERTY, Findings
from ...trace.schema import FINAL
from ._layout import Layout, Log
from ._read import NULL, Int64s


def check_timestamps(layout: Layout, findings: Findings) -> None:
    stamped = [log for log in layout.logs if log.kind == FINAL and log.ts is not None]
    if not stamped:
        if "timestamps" in layout.info.claims:
            findings.begin("timestamps")
            if layout.delivery_rows:
                findings.unknown("timestamps", NO_STAMPS)
        return
    findings.begin("timestamps")
    first = _First(len(layout.ids))
    seen: set[tuple[int, int]] = set()
    for log in stamped:
        assert log.ts is not None
        arrays = (id(log.ts), id(log.number))
        if arrays not in seen:  # replicas that agree share them
            seen.add(arrays)
            _check_one_each(layout, log, log.ts, first, findings)
            _check_rising(layout, log, log.ts, findings)
    _check_distinct(layout, first, findings)


class _First:
    """The first timestamp of each message, and who gave it."""

    def __init__(self, messages: int) -> None:
        self.ts = np.full(messages, NULL, np.int64)
        self.process = np.full(messages, -1, np.int64)

    def add(self, process: int, number: Int64s, ts: Int64s) -> Int64s:
        """Rows that contradict an earlier one."""
        new = self.ts[number] == NULL
        self.process[number[new]] = process
        self.ts[number[new][::-1]] = ts[new][::-1]  # of several the first stays, since it is written last
        return np.flatnonzero(self.ts[number] != ts)


def _check_one_each(layout: Layout, log: Log, ts: Int64s, first: _First, findings: Findings) -> None:
    rows = np.flatnonzero(ts != NULL)
    others = rows[first.add(log.process, log.number[rows], ts[rows])]
    for row in others[:VIOLATIONS_PER_PROPERTY].tolist():
        number = int(log.number[row])
        one = int(first.process[number])
        what = (
            f"{layout.message(number)} has timestamp {first.ts[number]} at {layout.name(one)}"
            f" and {ts[row]} at {layout.name(log.process)}"
        )
        findings.fail("timestamps", [layout.id_of(number)], [one, log.process], what)


def _check_rising(layout: Layout, log: Log, ts: Int64s, findings: Findings) -> None:
    rows = np.flatnonzero(ts != NULL)
    falls = ts[rows[1:]] <= ts[rows[:-1]]
    if falls.any():
        at = int(np.argmax(falls))
        pair = [int(rows[at]), int(rows[at + 1])]
        one, other = (f"{layout.message(int(log.number[row]))} with timestamp {ts[row]}" for row in pair)
        what = f"{layout.name(log.process)} delivered {one} before {other}"
        findings.fail("timestamps", [log.msg[row] for row in pair], [log.process], what)


def _check_distinct(layout: Layout, first: _First, findings: Findings) -> None:
    given = np.flatnonzero(first.ts != NULL)
    by_ts = given[np.argsort(first.ts[given], kind="stable")]
    for at in np.flatnonzero(np.diff(first.ts[by_ts]) == 0)[:VIOLATIONS_PER_PROPERTY].tolist():
        pair = by_ts[at : at + 2].tolist()
        one, other = (layout.message(number) for number in pair)
        what = f"{one} and {other} have the same timestamp {first.ts[pair[0]]}"
        findings.fail("timestamps", [layout.id_of(number) for number in pair], first.process[pair], what)
