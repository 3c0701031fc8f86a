"""All properties of one run, exactly, inside one task. What it says is final."""

from __future__ import annotations

from ...check.report import Findings
from ..files import RunFiles
from ._delivery import check_integrity, check_positions, check_replicas, check_validity_and_agreement
from ._fifo import check_fifo
from ._layout import Layout
from ._local import check_local_order
from ._order import check_order
from ._replicas import arrange
from ._stamps import check_timestamps
from ._wire import check_wire


def judge(files: RunFiles) -> Findings:
    """Raises UnreadableError where the run contradicts its schema or itself."""
    layout = Layout(files)
    groups = arrange(layout)
    findings = Findings()
    check_positions(layout, groups, findings)
    check_integrity(layout, findings)
    check_validity_and_agreement(layout, groups, findings)
    check_replicas(layout, groups, findings)
    check_order(layout, groups, findings)
    check_timestamps(layout, findings)
    check_fifo(layout, groups, findings)
    check_wire(layout, findings, layout.delivery_rows)
    check_local_order(layout, findings)
    findings.refuse_strange(files.info.claims)
    return findings
