"""Linearizability of what clients did with objects: see `amcast.check.linear`."""

from __future__ import annotations

from collections.abc import Callable

from ..trace import RunInfo
from .linear.judge import Judged, judge
from .report import Findings, listing
from .source import RunSource

_NAME = "linearizability"

NO_OPERATIONS = "no operation was recorded"
NOTHING_TOLD = "no answer tells anything about a state"


def check_linearizability(source: RunSource, findings: Findings, is_over: Callable[[], bool] | None = None) -> None:
    if source.operations is None:
        return
    operations = source.operations()
    if len(operations) or is_judged(source.info):
        report_judged(judge(operations, source.names, is_over), findings)


def is_judged(info: RunInfo) -> bool:
    """Even if there is no operation: of a run that claims it, and of one that has nothing else."""
    return _NAME in info.claims or not info.groups


def report_judged(judged: Judged, findings: Findings) -> None:
    findings.begin(_NAME)
    reason = _unknown(judged)
    if reason is not None:
        findings.unknown(_NAME, reason)
    # An operation that nobody recorded might explain any answer: what is found is found by absence.
    for failure in sorted(judged.failures, key=lambda each: (len(each.operations), each.name)):
        clients = dict.fromkeys(each.client for each in failure.operations)
        findings.fail_by_absence(_NAME, [], clients, failure.explanation, failure.operations)


def _unknown(judged: Judged) -> str | None:
    if not judged.rows:
        return NO_OPERATIONS
    if judged.undecided:
        objects = listing(list(dict.fromkeys(name for name, _ in judged.undecided)))
        return f"the budget was used up before an order of what was done with {objects} was found or ruled out"
    if judged.silent:
        return f"answers whose results were not recorded: {judged.silent:,}"
    return None if judged.telling else NOTHING_TOLD
