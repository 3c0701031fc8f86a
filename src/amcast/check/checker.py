"""Every property of a run, in memory: a million deliveries in about a second.

This is the one exact judge. The command line gives it runs in memory; a task on Spark gives it a run that it reads
from files, small ones and those that the proofs on Spark (`amcast.pipeline.checks`) did not get through. Its
independent witnesses are the two oracles of the tests, those proofs, and the verifier of growing runs.
"""

from __future__ import annotations

from collections.abc import Callable

from ..trace import Run, RunInfo
from ._conflicts import check_conflict_order
from ._delivery import check_integrity, check_positions, check_replicas, check_validity_and_agreement
from ._fifo import check_fifo
from ._index import RunIndex
from ._messages import MessageIndex
from ._optimistic import check_local_order
from ._order import check_order
from ._replicas import arrange_replicas
from ._timestamps import check_timestamps
from ._wire import check_wire
from .linear.judge import Judged
from .linearizability import check_linearizability, report_judged
from .report import ABOUT_OPERATIONS, CONFLICT_ORDER, NO_GROUPS, PROPERTIES, Findings, Report
from .source import RunSource, source_of


def check_run(run: Run, is_over: Callable[[], bool] | None = None) -> Report:
    """Judges a run: of `SimCluster.trace`, of `SimResult.run`, or of a folder (`amcast.trace.read_run`).

    `is_over` may end the search for an order of what clients did: it is asked now and then. Without it, the search ends
    when it has tried a fixed number of ways.
    """
    return check_source(source_of(run), is_over)


def check_source(source: RunSource, is_over: Callable[[], bool] | None = None) -> Report:
    findings = Findings(source.info.missing, unproven=source.info.unproven)
    if source.info.groups:
        _check_deliveries(source, findings)
    check_linearizability(source, findings, is_over)
    if not source.info.groups:
        for claim in source.info.claims:
            if claim in PROPERTIES and claim not in ABOUT_OPERATIONS:
                findings.unknown(claim, NO_GROUPS)
    findings.refuse_strange(source.info.claims)
    return findings.report()


def _check_deliveries(source: RunSource, findings: Findings) -> None:
    index = RunIndex(source)
    groups = arrange_replicas(index)
    check_positions(index, groups, findings)
    check_integrity(index, findings)
    check_validity_and_agreement(index, groups, findings)
    check_replicas(index, groups, findings)
    if CONFLICT_ORDER in source.info.claims:
        check_conflict_order(index, groups, source.objects(), findings)
    else:
        check_order(index, groups, findings)
    check_timestamps(index, findings)
    check_fifo(index, groups, findings)
    check_wire(index, source, findings)
    check_local_order(index, findings)


def check_wire_only(source: RunSource) -> Report:
    """What the run claims about its wire; deliveries are not read."""
    findings = Findings(source.info.missing, unproven=source.info.unproven)
    check_wire(MessageIndex(source), source, findings)
    return findings.report()


def report_on_operations(info: RunInfo, judged: Judged) -> Report:
    """What was found out about operations, in parts that were put together."""
    findings = Findings(info.missing, unproven=info.unproven)
    report_judged(judged, findings)
    return findings.report()
