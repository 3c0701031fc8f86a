"""Final timestamps, where a protocol has them: one for each message, no two alike, rising at every process.

Rows without a timestamp are passed over, so a protocol may give them to some of its messages only.
"""

from __future__ import annotations

import numpy as np

from ..trace import NULL
from ..trace.run import Int64s
from ._index import ProcessDeliveries, RunIndex
from .report import NO_STAMPS, VIOLATIONS_PER_PROPERTY, Findings


def check_timestamps(index: RunIndex, findings: Findings) -> None:
    stamped = [(each, each.ts) for each in index.all_final() if each.ts is not None]
    if not stamped:
        if "timestamps" in index.info.claims and index.delivery_rows:
            findings.unknown("timestamps", NO_STAMPS)
        elif "timestamps" in index.info.claims:
            findings.begin("timestamps")
        return
    findings.begin("timestamps")
    first = _First(index)
    # Replicas that delivered the same share their arrays: where one of them is in order, all are.
    good: set[int] = set()
    for deliveries, ts in stamped:
        if id(ts) not in good and _has_one_each(index, deliveries, ts, first, findings):
            good.add(id(ts))
    _check_distinct(index, first, findings)
    good.clear()
    for deliveries, ts in stamped:
        if id(ts) not in good and _is_rising(index, deliveries, ts, findings):
            good.add(id(ts))


class _First:
    """The first timestamp that a message was delivered with, and the process that delivered it so."""

    def __init__(self, index: RunIndex) -> None:
        self.ts = np.full(len(index.ids), NULL, np.int64)
        self.process = np.full(len(index.ids), -1, np.int64)

    def add(self, process: int, message: Int64s, ts: Int64s) -> None:
        new = self.ts[message] == NULL
        self.process[message[new]] = process
        self.ts[message[new][::-1]] = ts[new][::-1]  # of several the first stays, since it is written last


def _has_one_each(
    index: RunIndex, deliveries: ProcessDeliveries, ts: Int64s, first: _First, findings: Findings
) -> bool:
    rows = np.flatnonzero(ts != NULL)
    message = deliveries.message[rows]
    first.add(deliveries.process, message, ts[rows])
    others = rows[first.ts[message] != ts[rows]]
    for row in others[:VIOLATIONS_PER_PROPERTY].tolist():
        number = int(deliveries.message[row])
        one, other = int(first.process[number]), deliveries.process
        what = (
            f"{index.message_name(number)} has timestamp {first.ts[number]} at {index.name(one)}"
            f" and {ts[row]} at {index.name(other)}"
        )
        findings.fail("timestamps", [index.id_of(number)], [one, other], what)
    return not len(others)


def _check_distinct(index: RunIndex, first: _First, findings: Findings) -> None:
    given = np.flatnonzero(first.ts != NULL)
    by_ts = given[np.argsort(first.ts[given], kind="stable")]
    for at in np.flatnonzero(np.diff(first.ts[by_ts]) == 0)[:VIOLATIONS_PER_PROPERTY].tolist():
        pair = by_ts[at : at + 2].tolist()
        one, other = (index.message_name(message) for message in pair)
        what = f"{one} and {other} have the same timestamp {first.ts[pair[0]]}"
        findings.fail("timestamps", [index.id_of(message) for message in pair], first.process[pair], what)


def _is_rising(index: RunIndex, deliveries: ProcessDeliveries, ts: Int64s, findings: Findings) -> bool:
    rows = np.flatnonzero(ts != NULL)
    falls = ts[rows[1:]] <= ts[rows[:-1]]
    if not falls.any():
        return True
    at = int(np.argmax(falls))
    pair = [int(rows[at]), int(rows[at + 1])]
    messages = [int(deliveries.message[row]) for row in pair]
    one, other = (
        f"{index.message_name(message)} with timestamp {ts[row]}" for message, row in zip(messages, pair, strict=True)
    )
    what = f"{index.name(deliveries.process)} delivered {one} before {other}"
    findings.fail("timestamps", [index.id_of(message) for message in messages], [deliveries.process], what)
    return False
