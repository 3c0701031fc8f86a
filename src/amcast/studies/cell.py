"""Runs a cell: simulates it, has it checked, and measures it."""

from __future__ import annotations

import msgspec
import numpy as np

from ..check import Verdict, check_run, worst
from ..sim import SimResult, simulate
from ..sim.fuzz import violations_of
from ..trace import FINAL, NULL, Run
from ..trace.latency import FIRST_REPLICA, distribution_us, latencies_us
from .plan import Cell

_WHY_MAX = 300


class Result(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Verdict
    why: str  # if the verdict is not pass
    sent: int
    delivered: int  # by all destination groups
    wire_messages: int
    simulated_us: int  # from the first multicast to the last delivery
    latency: dict[str, dict[str, float] | None]  # where it is measured -> p50_us, ...; None: no message has one


def run_cell(cell: Cell) -> Result:
    result = simulate(cell.scenario())
    run = result.run()
    verdict, why = judge_run(result, run)
    found = {at: took[took != NULL] for at, took in latencies_us(run).items()}
    final_us = run.deliveries.t_us[run.deliveries.kind == FINAL]
    start_us = int(run.multicasts.t_us.min(initial=np.iinfo(np.int64).max))
    return Result(
        verdict=verdict,
        why=why[:_WHY_MAX],
        sent=result.messages,
        delivered=len(found[FIRST_REPLICA]),
        wire_messages=result.wire_messages,
        simulated_us=max(0, int(final_us.max()) - start_us) if len(final_us) else 0,
        latency={at: distribution_us(took) if len(took) else None for at, took in found.items()},
    )


def judge_run(result: SimResult, run: Run) -> tuple[Verdict, str]:
    """A run that stood still is unknown, unless what it did is wrong: what is missing might have come later."""
    report = check_run(run)
    found = violations_of(result, report)
    if found:
        of_all: Verdict = "unknown" if found[0].property == "liveness" else "fail"
        return worst([report.verdict, of_all]), f"{found[0].property}: {found[0].explanation}"
    reasons = [f"{name}: {reason}" for name, reason in report.reasons.items()]
    return report.verdict, "" if report.verdict == "pass" else "; ".join(reasons)
