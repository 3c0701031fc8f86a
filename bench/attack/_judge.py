"""The verdict on a round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from amcast.check import check_run
from amcast.trace import Deliveries, Fault, Multicasts, Run, read_run
from amcast.trace.run import make_run
from amcast.trace.schema import CRASH, FINAL, OPTIMISTIC

from ._cluster import AttackedCluster

KEPT_MIN = 0.5
MEMORY_MAX_MB = 512.0
_SHOWN = 5


class Outcome(msgspec.Struct, frozen=True):
    protocol: str
    attacks: list[str]
    done: dict[str, int]  # what the attackers did, as far as they know
    calm_rate: float  # messages of correct clients a second
    attacked_rate: float
    is_waiting: bool  # correct clients still are, for answers, long after the attack
    ended: list[str]
    peak_mb: dict[str, float]
    verdict: str
    violations: list[str]  # and why a verdict is unknown
    lost: int  # acknowledged, and not to be had from one of its groups
    problems: list[str]

    @property
    def kept(self) -> float:
        return self.attacked_rate / self.calm_rate if self.calm_rate else 0.0

    @property
    def complaints(self) -> list[str]:
        found = [f"ended: {each}" for each in self.ended]
        if self.kept < KEPT_MIN:
            found.append(f"correct clients kept {self.kept:.0%} of their throughput")
        if self.is_waiting:
            found.append("correct clients still wait for answers")
        found += [f"{name} had {mb:.0f} MB" for name, mb in self.peak_mb.items() if mb >= MEMORY_MAX_MB]
        if self.verdict != "pass":
            found.append(f"the trace: {self.verdict}: {'; '.join(self.violations) or 'no reason'}")
        if self.lost:
            found.append(f"{self.lost} acknowledged messages are lost")
        return found + self.problems

    @property
    def is_good(self) -> bool:
        return not self.complaints

    def to_json(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "kept": self.kept, "complaints": self.complaints, "good": self.is_good}


def judge_trace(cluster: AttackedCluster, out: Path, complete: bool, attackers: Iterable[int]) -> tuple[str, list[str]]:
    cluster.collect(out, complete)
    report = check_run(without_promises(read_run(out), set(attackers)))
    reasons = [f"{name}: {reason}" for name, reason in report.reasons.items()]
    return report.verdict, [violation.explanation for violation in report.violations[:_SHOWN]] + reasons


def without_promises(run: Run, liars: set[int]) -> Run:
    """The same run, in which nothing is promised to liars: what they sent need not be delivered.

    All that was delivered is judged as ever, theirs too: everywhere in one order, once, and by all members of a group
    or by none. A liar may have sent several messages under one id: the one counts that went where it was delivered.
    """
    faults = [fault for fault in run.faults if fault.process not in liars]
    ended_us = int(run.deliveries.t_us.max()) if len(run.deliveries) else 0
    senders = set(run.multicasts.sender.tolist())
    faults += [Fault(liar, ended_us, CRASH, '{"settled":0}') for liar in sorted(liars & senders)]
    multicasts = _one_for_each(run, liars)
    deliveries = _without_guesses(run, liars)
    return make_run(run.info, multicasts, deliveries, run.wire, sorted(faults, key=lambda fault: fault.t_us))


def _without_guesses(run: Run, liars: set[int]) -> Deliveries:
    """Without optimistic deliveries of liars' messages: one that was heard of at one place only is never ordered."""
    rows = run.deliveries
    theirs = run.multicasts.msg[np.isin(run.multicasts.sender, np.array(sorted(liars), np.int64))]
    is_guess = rows.kind == OPTIMISTIC
    dropped = is_guess & np.isin(rows.msg, theirs)
    pos = rows.pos.copy()
    for process in np.unique(rows.process[dropped]):
        here = is_guess & (rows.process == process)
        pos[here] -= np.searchsorted(np.sort(rows.pos[here & dropped]), rows.pos[here])
    columns = {field.name: getattr(rows, field.name)[~dropped] for field in fields(Deliveries)}
    return Deliveries(**{**columns, "pos": pos[~dropped]})


def _one_for_each(run: Run, liars: set[int]) -> Multicasts:
    rows, delivered = run.multicasts, run.deliveries
    is_lie = np.isin(rows.sender, np.array(sorted(liars), np.int64))
    if not is_lie.any():
        return rows
    where: dict[int, set[int]] = {}
    theirs = np.isin(delivered.msg, rows.msg[is_lie]) & (delivered.kind == FINAL)
    for msg, group in zip(delivered.msg[theirs].tolist(), delivered.grp[theirs].tolist(), strict=True):
        where.setdefault(msg, set()).add(group)
    kept: list[int] = []
    dst: list[int] = []
    starts = [0]
    seen: set[int] = set()
    for at, (msg, lies) in enumerate(zip(rows.msg.tolist(), is_lie.tolist(), strict=True)):
        if lies and msg in seen:
            continue
        seen.add(msg)
        own = rows.dst[rows.dst_start[at] : rows.dst_start[at + 1]].tolist()
        dst += sorted(where[msg]) if lies and msg in where else own
        kept.append(at)
        starts.append(len(dst))
    order = np.array(kept, np.int64)
    return Multicasts(
        rows.msg[order],
        rows.sender[order],
        rows.client_seq[order],
        np.array(starts, np.int64),
        np.array(dst, rows.dst.dtype),
        rows.t_us[order],
        rows.bytes[order],
    )
