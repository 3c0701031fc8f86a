"""Random runs that satisfy every property, as plain objects that a test can damage before the check."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

from amcast.check.report import ABOUT_OPERATIONS, CONFLICT_ORDER, PROPERTIES
from amcast.trace import FINAL, GroupInfo, Recorder, Run, RunInfo

ALL_CLAIMS = ("timestamps", "fifo", "genuine", "minimality", "quasi-genuine", "partially-genuine", "local-order")

# What these runs are judged by: they have no operations, and the order of conflicts would take the place of prefix and
# acyclic order.
JUDGED = tuple(name for name in PROPERTIES if name not in (CONFLICT_ORDER, *ABOUT_OPERATIONS))


@dataclass
class Sent:
    msg: int
    sender: int
    seq: int
    dst: tuple[int, ...]
    t_us: int


@dataclass
class Row:
    """One delivery. `process` and `kind` are those of the log it is in."""

    pos: int
    msg: int
    grp: int
    ts: int | None
    t_us: int


@dataclass
class Trace:
    groups: dict[int, tuple[int, ...]]
    sent: list[Sent] = field(default_factory=list)
    logs: dict[int, list[Row]] = field(default_factory=dict)
    optimistic: dict[int, list[Row]] = field(default_factory=dict)
    wire: list[tuple[int, int, str, int | None, int, int]] = field(default_factory=list)
    faults: list[tuple[int, int, str, str]] = field(default_factory=list)
    correct: tuple[int, ...] = ()
    claims: tuple[str, ...] = ALL_CLAIMS
    complete: bool = True
    missing: tuple[str, ...] = ()
    unproven: dict[str, str] = field(default_factory=dict)

    def group_of(self, process: int) -> int | None:
        return next((group for group, members in self.groups.items() if process in members), None)

    def message(self, msg: int) -> Sent:
        return next(sent for sent in self.sent if sent.msg == msg)

    def info(self) -> RunInfo:
        return RunInfo(
            run_id="test",
            protocol="none",
            seed=0,
            complete=self.complete,
            groups=tuple(GroupInfo(group, members) for group, members in self.groups.items()),
            correct=self.correct,
            claims=self.claims,
            missing=self.missing,
            unproven=self.unproven,
        )

    def recorder(self) -> Recorder:
        recorder = Recorder()
        for sent in self.sent:
            recorder.multicast(sent.msg, sent.sender, sent.seq, sent.dst, sent.t_us, 64)
        for kind, logs in ((FINAL, self.logs), (1, self.optimistic)):
            for process, log in logs.items():
                for row in log:
                    recorder.delivery(process, row.grp, row.pos, row.msg, kind, row.ts, row.t_us)
        for src, dst, kind_name, msg, sent_us, received_us in self.wire:
            recorder.wire(src, dst, kind_name, msg, 64, sent_us, received_us)
        for process, t_us, what, detail in self.faults:
            recorder.fault(process, t_us, what, detail)
        return recorder

    def run(self) -> Run:
        return self.recorder().run(self.info())

    # ------------------------------------------------------------------------ small repairs and damages

    def renumber(self, process: int) -> None:
        for position, row in enumerate(self.logs[process]):
            row.pos = position

    def swap(self, process: int, one: int, other: int) -> None:
        """Two deliveries change places, in order and in time; their messages keep their timestamps."""
        log = self.logs[process]
        a, b = log[one], log[other]
        a.msg, b.msg, a.ts, b.ts = b.msg, a.msg, b.ts, a.ts

    def drop(self, process: int, index: int) -> Row:
        row = self.logs[process].pop(index)
        self.renumber(process)
        return row

    def restore(self, process: int, start: int, stop: int) -> None:
        """The process was down, and was handed the state that positions start to stop led to."""
        self.logs[process] = [row for row in self.logs[process] if not start <= row.pos < stop]
        self.faults.append((process, 1, "restored", json.dumps({"position": stop})))


def empty_trace(groups: int, replicas: int) -> Trace:
    members = {g + 1: tuple(range(g * replicas, (g + 1) * replicas)) for g in range(groups)}
    everyone = tuple(range(groups * replicas))
    return Trace(members, correct=everyone, logs={process: [] for process in everyone})


def good_trace(
    rng: Random, groups: int = 3, replicas: int = 2, messages: int = 12, dst_max: int = 3, clients: int = 2
) -> Trace:
    """One total order of all messages, of which every process delivers its part."""
    trace = empty_trace(groups, replicas)
    first_client = groups * replicas
    seqs = [0] * clients
    for number in range(messages):
        client = rng.randrange(clients)
        dst = sorted(rng.sample(sorted(trace.groups), rng.randint(1, min(dst_max, groups))))
        sent = Sent(number, first_client + client, seqs[client], tuple(dst), number * 100)
        seqs[client] += 1
        trace.sent.append(sent)
        send_and_deliver(trace, sent, ts=number * 10 + rng.randint(1, 5), rng=rng)
    return trace


def send_and_deliver(trace: Trace, sent: Sent, ts: int | None, rng: Random) -> None:
    for group in sent.dst:
        for process in trace.groups[group]:
            arrival = sent.t_us + rng.randint(20, 60)
            trace.wire.append((sent.sender, process, "START", sent.msg, sent.t_us, arrival))
            log = trace.logs[process]
            log.append(Row(len(log), sent.msg, group, ts, arrival + rng.randint(1, 20)))


def lose_rows(rng: Random, trace: Trace) -> None:
    """Rows that nobody recorded, as of a boot that left no trace: what happened did happen."""
    for process, log in trace.logs.items():
        if rng.random() < 0.3:
            start = rng.randint(0, len(log))
            del log[start : rng.randint(start, len(log))]
            trace.missing += (f"process {process}: no trace of its boot 2",)
    if rng.random() < 0.3 or not trace.missing:
        trace.sent = [sent for sent in trace.sent if rng.random() < 0.8]
        trace.missing += ("no trace of g1.p0",)


def from_logs(
    dst: dict[int, tuple[int, ...]],
    logs: dict[int, list[int]],
    replicas: int = 1,
) -> Trace:
    """`logs` is what each group delivered: {1: [7, 9]} says that all replicas of g1 delivered m7, then m9."""
    groups = max(max(destinations) for destinations in dst.values())
    trace = empty_trace(groups, replicas)
    trace.claims = ()
    client = groups * replicas
    trace.sent = [
        Sent(msg, client, seq, destinations, seq * 100) for seq, (msg, destinations) in enumerate(dst.items())
    ]
    for group, log in logs.items():
        for process in trace.groups[group]:
            trace.logs[process] = [
                Row(position, msg, group, None, 1000 + position * 100) for position, msg in enumerate(log)
            ]
    return trace


# ------------------------------------------------------------------------------------------- damages


def damage(rng: Random, trace: Trace) -> None:
    """Something goes wrong somewhere. It need not break a property: the oracle tells."""
    busy = [process for process, log in trace.logs.items() if len(log) >= 2]
    if not busy:
        return
    process = rng.choice(busy)
    log = trace.logs[process]
    index = rng.randrange(len(log) - 1)
    match rng.randrange(19):
        case 0:
            trace.swap(process, index, index + 1)
        case 1:
            trace.swap(process, index, rng.randrange(len(log)))
        case 2 | 3:  # in the whole group: replicas agree, groups may not
            group = trace.group_of(process)
            assert group is not None
            for member in trace.groups[group]:
                if len(trace.logs[member]) > index + 1:
                    trace.swap(member, index, index + 1)
        case 4:
            trace.drop(process, index)
        case 5:
            log.pop(index)  # and its position with it
        case 6:
            log.append(Row(len(log), log[index].msg, log[index].grp, log[index].ts, log[-1].t_us + 1))
        case 7:
            log[index].msg = rng.choice(trace.sent).msg
        case 8:
            log[index].msg = 10_000 + rng.randrange(3)
        case 9:
            log[index].grp = rng.choice(sorted(trace.groups))
        case 10:
            log[index].pos += rng.choice((-1, 1))
        case 11:
            del log[rng.randrange(len(log)) :]
        case 12:
            log[index].ts = rng.choice((None, 3, 17, log[-1].ts))
        case 13:
            trace.correct = tuple(p for p in trace.correct if p != process)
            del log[rng.randrange(len(log)) :]
        case 18:  # a guess after the fact
            guesses = trace.optimistic.setdefault(process, [])
            guesses.append(Row(len(guesses), log[index].msg, log[index].grp, None, log[-1].t_us + 1))
        case 14:
            start = rng.randrange(len(log))
            trace.restore(process, start, rng.randint(start, len(log) + 1))
        case 15 | 16:  # somebody speaks to somebody, about something or nothing
            ends = rng.sample([*trace.logs, *{sent.sender for sent in trace.sent}, 99], 2)
            about = rng.choice([None, None, 10_000, *(sent.msg for sent in trace.sent)])
            trace.wire.append((ends[0], ends[1], "GOSSIP", about, 1, 2))
        case _:
            group = trace.group_of(process)
            assert group is not None
            for member in trace.groups[group]:
                del trace.logs[member][index:]
