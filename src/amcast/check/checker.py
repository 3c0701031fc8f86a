"""Every property of a run, in memory: a million deliveries in about a second.

This is the one exact judge. The command line gives it runs in memory; a task on Spark gives it a run that it reads
from files, small ones and those that the proofs on Spark (`amcast.pipeline.checks`) did not get through. Its
independent witnesses are the two oracles of the tests, those proofs, and the verifier of growing runs.
"""

from __future__ import annotations

from ..trace import Run
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
from .report import CONFLICT_ORDER, Findings, Report
from .source import RunSource, source_of


def check_run(run: Run) -> Report:
    """Judges a run: of `SimCluster.trace`, of `SimResult.run`, or of a folder (`amcast.trace.read_run`)."""
    return check_source(source_of(run))


def check_source(source: RunSource) -> Report:
    index = RunIndex(source)
    groups = arrange_replicas(index)
    findings = Findings(source.info.missing, unproven=source.info.unproven)
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
    findings.refuse_strange(source.info.claims)
    return findings.report()


def check_wire_only(source: RunSource) -> Report:
    """What the run claims about its wire; deliveries are not read."""
    findings = Findings(source.info.missing, unproven=source.info.unproven)
    check_wire(MessageIndex(source), source, findings)
    return findings.report()
