"""Two promises weaker than genuineness, from the wire.

- minimality: whoever sends or receives something about a message is the sender or a destination of some message of the
  run, not necessarily of this one. Rows that name no message are upkeep, and are not judged.
- partially-genuine: for a message to a single group, only its sender and that group take steps.
"""

from __future__ import annotations

import numpy as np

from ..trace import NULL
from ..trace.run import Int32s
from ._genuine import check_named, group_indexes
from ._history import Bools, History
from .report import VIOLATIONS_PER_PROPERTY, Findings


def check_minimality(history: History, findings: Findings) -> None:
    if not _begin("minimality", history, findings):
        return
    wire = history.run.wire
    named = np.flatnonzero(wire.msg != NULL)
    good = _takes_part(history, wire.src[named]) & _takes_part(history, wire.dst[named])
    for row in named[~good][:VIOLATIONS_PER_PROPERTY].tolist():
        ends = [int(wire.src[row]), int(wire.dst[row])]
        strangers = [end for end in ends if not _takes_part(history, np.array([end], np.int32))[0]]
        said = f"{history.name(ends[0])} sent {wire.kinds[wire.kind[row]]} to {history.name(ends[1])}"
        findings.fail(
            "minimality", [wire.msg[row]], ends, f"{said}, but no message concerns {history.names(strangers)}"
        )


def check_partially_genuine(history: History, findings: Findings) -> None:
    if not _begin("partially-genuine", history, findings):
        return
    wire = history.run.wire
    ids = history.ids[: history.multicast_count]
    rows = np.flatnonzero(np.isin(wire.msg, ids[history.sizes == 1]))
    check_named(history, "partially-genuine", rows, findings)


def _begin(name: str, history: History, findings: Findings) -> bool:
    if name not in history.info.claims:
        return False
    if not len(history.run.wire) and len(history.run.deliveries):
        findings.unknown(name, "the wire was not recorded: nobody can say who spoke to whom")
        return False
    findings.begin(name)
    return True


def _takes_part(history: History, process: Int32s) -> Bools:
    """Does any message involve the process?"""
    reached = np.zeros(len(history.groups) + 1, np.bool_)
    reached[history.dst] = True
    reached[-1] = False  # clients
    found: Bools = reached[group_indexes(history, process)] | np.isin(process, history.sender)
    return found
