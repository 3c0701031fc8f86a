"""The verdict on a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from amcast.check import check_run
from amcast.core.ids import SEQ_BITS
from amcast.net.client.observer import Delivery
from amcast.trace import Deliveries, Fault, Multicasts, Objects, Run, read_run
from amcast.trace.run import make_run
from amcast.trace.schema import CRASH, FINAL, OPTIMISTIC
from bench.nemesis._judge import Reading

from ._cluster import AttackedCluster

Content = tuple[int, tuple[int, ...], bytes]  # id, destinations and a digest of the payload
Mask = npt.NDArray[np.bool_]

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


class Told(Reading):
    """What a client got from a group, with the contents: a liar may give one id to several messages."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[Content] = []

    def add(self, delivery: Delivery) -> None:
        super().add(delivery)
        message = delivery.message
        self.contents.append((message.id, message.dst, blake2b(message.payload, digest_size=16).digest()))


def judge_trace(
    cluster: AttackedCluster, out: Path, complete: bool, liars: set[int], told: Mapping[str, Told]
) -> tuple[str, list[str]]:
    cluster.collect(out, complete)
    contents = {int(group[1:]): each.contents for group, each in told.items()}
    report = check_run(told_apart(read_run(out), liars, contents))
    reasons = [f"{name}: {reason}" for name, reason in report.reasons.items()]
    return report.verdict, [violation.explanation for violation in report.violations[:_SHOWN]] + reasons


def told_apart(run: Run, liars: set[int], contents: Mapping[int, Sequence[Content]]) -> Run:
    """The same run, in which nothing is promised to liars, and each of their messages has an id of its own.

    What they sent need not be delivered. All that was delivered is judged as ever, theirs too: in one order, once, and
    everywhere or nowhere. `contents` is what each group delivered, by position.
    """
    senders = np.array(sorted(liars), np.int64)
    sent, delivered = run.multicasts, run.deliveries
    is_lie = np.isin(delivered.msg >> SEQ_BITS, senders)
    true_ids: dict[Content, int] = {}
    msg = delivered.msg.copy()
    for at in np.flatnonzero(is_lie & (delivered.kind == FINAL)).tolist():
        known, position = contents.get(int(delivered.grp[at]), ()), int(delivered.pos[at])
        if position < len(known) and known[position][0] == msg[at]:
            content = known[position]
            sender = content[0] >> SEQ_BITS
            msg[at] = true_ids.setdefault(content, sender << SEQ_BITS | len(true_ids))
    deliveries = _without(replace(delivered, msg=msg), is_lie & (delivered.kind == OPTIMISTIC))
    ended_us = int(delivered.t_us.max()) if len(delivered) else 0
    faults = [fault for fault in run.faults if fault.process not in liars]
    faults += [
        Fault(liar, ended_us, CRASH, '{"settled":0}')
        for liar in sorted({id_ >> SEQ_BITS for id_ in msg[is_lie].tolist()})
    ]
    multicasts = _sent_apart(sent, np.isin(sent.sender, senders), true_ids)
    by_time = sorted(faults, key=lambda fault: fault.t_us)
    objects = _touched_apart(run.objects, liars, true_ids)
    return make_run(run.info, multicasts, deliveries, run.wire, by_time, objects=objects)


def _touched_apart(objects: Objects, liars: set[int], true_ids: Mapping[Content, int]) -> Objects:
    """A liar's operations with one id are on the same objects here (`Liar.message`)."""
    pairs = list(zip(objects.msg.tolist(), objects.object.tolist(), strict=True))
    lies = [(id_, each) for content, id_ in true_ids.items() for msg, each in pairs if msg == content[0]]
    rows = np.array([pair for pair in pairs if pair[0] >> SEQ_BITS not in liars] + lies, np.int64).reshape(-1, 2)
    return Objects(rows[:, 0].copy(), rows[:, 1].copy())


def _without(rows: Deliveries, dropped: Mask) -> Deliveries:
    """Without some optimistic deliveries: what was heard of at one place only is never ordered. Positions move up."""
    pos = rows.pos.copy()
    for process in np.unique(rows.process[dropped]):
        here = (rows.kind == OPTIMISTIC) & (rows.process == process)
        pos[here] -= np.searchsorted(np.sort(rows.pos[here & dropped]), rows.pos[here])
    columns = {field.name: getattr(rows, field.name)[~dropped] for field in fields(Deliveries)}
    return Deliveries(**{**columns, "pos": pos[~dropped]})


def _sent_apart(sent: Multicasts, is_lie: Mask, true_ids: Mapping[Content, int]) -> Multicasts:
    """Correct clients' messages as they were sent, and liars' that were delivered, whose numbers say nothing."""
    first: dict[int, int] = {}  # of a liar's id -> its row
    for at in np.flatnonzero(is_lie).tolist():
        first.setdefault(int(sent.msg[at]), at)
    kept = np.flatnonzero(~is_lie)
    sizes = np.diff(sent.dst_start)
    lies = [(id_, first[content[0]], content[1]) for content, id_ in true_ids.items() if content[0] in first]
    rows = np.concatenate((kept, np.array([at for _, at, _ in lies], np.int64)))
    msg, seq = sent.msg[rows], sent.client_seq[rows]
    msg[len(kept) :] = [id_ for id_, _, _ in lies]
    seq[len(kept) :] = 0
    starts = np.concatenate(([0], np.cumsum([*sizes[kept], *(len(dst) for _, _, dst in lies)], dtype=np.int64)))
    own = np.repeat(~is_lie, sizes)
    dst = np.concatenate((sent.dst[own], np.array([group for _, _, dst in lies for group in dst], sent.dst.dtype)))
    return Multicasts(msg, sent.sender[rows], seq, starts, dst, sent.t_us[rows], sent.bytes[rows])
