"""Final timestamps, where a protocol has them: one for each message, no two alike, rising along every log.

Rows without a timestamp are passed over, so a protocol may give them to some of its messages only.
"""

from __future__ import annotations

import numpy as np

from ..trace import FINAL, NULL
from ..trace.run import Int64s
from ._history import History, Log
from .report import NO_STAMPS, VIOLATIONS_PER_PROPERTY, Findings


def check_timestamps(history: History, findings: Findings) -> None:
    rows = history.run.deliveries
    stamped = np.flatnonzero((rows.kind == FINAL) & (rows.ts != NULL))
    if not len(stamped):
        if "timestamps" in history.info.claims and len(rows):
            findings.unknown("timestamps", NO_STAMPS)
        elif "timestamps" in history.info.claims:
            findings.begin("timestamps")
        return
    findings.begin("timestamps")
    message, ts = history.message[stamped], rows.ts[stamped]
    row_of = np.full(len(history.ids), -1, np.int64)
    row_of[message[::-1]] = stamped[::-1]  # the first row of each message, since the last one written stays
    _check_one_each(history, stamped[ts != rows.ts[row_of[message]]], row_of, findings)
    _check_distinct(history, row_of[row_of >= 0], findings)
    for log in history.logs:
        if log.kind == FINAL:
            _check_rising(history, log, findings)


def _check_one_each(history: History, others: Int64s, row_of: Int64s, findings: Findings) -> None:
    rows = history.run.deliveries
    for row in others[:VIOLATIONS_PER_PROPERTY]:
        message = int(history.message[row])
        first = row_of[message]
        one, other = int(rows.process[first]), int(rows.process[row])
        findings.fail(
            "timestamps",
            [history.id_of(message)],
            [one, other],
            f"{history.message_name(message)} has timestamp {rows.ts[first]} at {history.name(one)}"
            f" and {rows.ts[row]} at {history.name(other)}",
        )


def _check_distinct(history: History, first_rows: Int64s, findings: Findings) -> None:
    rows = history.run.deliveries
    by_ts = first_rows[np.argsort(rows.ts[first_rows], kind="stable")]
    equal = np.flatnonzero(np.diff(rows.ts[by_ts]) == 0)
    for at in equal[:VIOLATIONS_PER_PROPERTY]:
        pair = by_ts[at : at + 2]
        one, other = (history.message_name(int(message)) for message in history.message[pair])
        findings.fail(
            "timestamps",
            rows.msg[pair].tolist(),
            rows.process[pair].tolist(),
            f"{one} and {other} have the same timestamp {rows.ts[pair[0]]}",
        )


def _check_rising(history: History, log: Log, findings: Findings) -> None:
    ts = history.run.deliveries.ts[log.start : log.stop]
    stamped = np.flatnonzero(ts != NULL)
    falls = ts[stamped[1:]] <= ts[stamped[:-1]]
    if falls.any():
        at = int(np.argmax(falls))
        before, after = int(stamped[at]), int(stamped[at + 1])
        one, other = (history.message_name(int(log.message[row])) for row in (before, after))
        findings.fail(
            "timestamps",
            [history.id_of(int(log.message[row])) for row in (before, after)],
            [log.process],
            f"{history.name(log.process)} delivered {one} with timestamp {ts[before]}"
            f" before {other} with timestamp {ts[after]}",
        )
