"""The report of one run among many."""

from __future__ import annotations

from ...check import Report


class RunReport(Report, frozen=True):
    run_id: str
    path: str
    unreadable: str | None = None  # why there is no verdict at all
