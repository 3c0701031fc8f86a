"""Every property of a run, in memory: a million deliveries in about a second.

Written apart from the Spark checks, against the same definitions, so that each can be held against the other.
"""

from __future__ import annotations

from ..trace import Run
from ._delivery import check_integrity, check_positions, check_replicas, check_validity_and_agreement
from ._fifo import check_fifo
from ._genuine import check_wire
from ._history import History
from ._optimistic import check_local_order
from ._order import check_order
from ._replicas import arrange_replicas
from ._timestamps import check_timestamps
from .report import Findings, Report


def check_run(run: Run) -> Report:
    history = History(run)
    groups = arrange_replicas(history)
    findings = Findings()
    check_positions(history, groups, findings)
    check_integrity(history, findings)
    check_validity_and_agreement(history, groups, findings)
    check_replicas(history, groups, findings)
    check_order(history, groups, findings)
    check_timestamps(history, findings)
    check_fifo(history, groups, findings)
    check_wire(history, findings)
    check_local_order(history, findings)
    findings.refuse_strange(run.info.claims)
    return findings.report()
