"""Local order: no process delivers a message optimistically after it has delivered it for good."""

from __future__ import annotations

import numpy as np

from ._index import ProcessDeliveries, RunIndex
from .report import Findings


def check_local_order(index: RunIndex, findings: Findings) -> None:
    if "local-order" not in index.info.claims:
        return
    findings.begin("local-order")
    for guesses in index.all_optimistic():
        if guesses.group is not None:
            _check_process(index, guesses, index.final(guesses.process), findings)


def _check_process(index: RunIndex, guesses: ProcessDeliveries, final: ProcessDeliveries, findings: Findings) -> None:
    assert guesses.t_us is not None and final.t_us is not None, "times are kept of runs that claim local order"
    delivered_us = np.full(len(index.ids), np.iinfo(np.int64).max)
    delivered_us[final.message] = final.t_us
    for row in np.flatnonzero(guesses.t_us > delivered_us[guesses.message]).tolist():
        if findings.is_full("local-order"):
            return
        message = int(guesses.message[row])
        what = (
            f"{index.name(guesses.process)} delivered {index.message_name(message)} optimistically at"
            f" {guesses.t_us[row]} us, after its final delivery at {delivered_us[message]} us"
        )
        findings.fail("local-order", [index.id_of(message)], [guesses.process], what)
