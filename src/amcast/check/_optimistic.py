"""Local order: no process delivers a message optimistically after it has delivered it for good."""

from __future__ import annotations

import numpy as np

from ._history import History, Log
from .report import Findings


def check_local_order(history: History, findings: Findings) -> None:
    if "local-order" not in history.info.claims:
        return
    findings.begin("local-order")
    for guesses in history.optimistic_logs():
        if guesses.group is not None:
            _check_process(history, guesses, history.final_log(guesses.process), findings)


def _check_process(history: History, guesses: Log, final: Log, findings: Findings) -> None:
    time = history.run.deliveries.t_us
    delivered_us = np.full(len(history.ids), np.iinfo(np.int64).max)
    delivered_us[final.message] = time[final.start : final.stop]
    late = np.flatnonzero(time[guesses.start : guesses.stop] > delivered_us[guesses.message])
    for row in late.tolist():
        if findings.is_full("local-order"):
            return
        message = int(guesses.message[row])
        name = history.message_name(message)
        findings.fail(
            "local-order",
            [history.id_of(message)],
            [guesses.process],
            f"{history.name(guesses.process)} delivered {name} optimistically at {time[guesses.start + row]} us,"
            f" after its final delivery at {delivered_us[message]} us",
        )
