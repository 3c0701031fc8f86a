"""The definitions of the properties, word for word and slowly: loops over pairs and a transitive closure.

It reads the rows of a run and nothing of the checker's own arrangement of them. If rows of the run are missing, only
what is there is evidence, never that something is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

from amcast.trace import FINAL, NULL, Run

Sequence = list[int]  # messages in the order of delivery


class Oracle:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.info = run.info
        self.group_of = {p: g.id for g in run.info.groups for p in g.processes}
        rows = run.multicasts
        self.sender: dict[int, int] = {}
        self.seq: dict[int, int] = {}
        self.dst: dict[int, set[int]] = {}
        for i, msg in enumerate(rows.msg.tolist()):
            self.sender[msg] = int(rows.sender[i])
            self.seq[msg] = int(rows.client_seq[i])
            self.dst[msg] = set(rows.dst[rows.dst_start[i] : rows.dst_start[i + 1]].tolist())
        d = run.deliveries
        columns = (d.process, d.kind, d.pos, d.msg, d.grp, d.ts)
        self.rows = list(zip(*(column.tolist() for column in columns), strict=True))
        self.positions = {
            p: [(pos, msg) for q, kind, pos, msg, _, _ in self.rows if q == p and kind == FINAL] for p in self.group_of
        }
        self.restored = {
            p: [
                json.loads(fault.detail)["position"]
                for fault in run.faults
                if fault.process == p and fault.what == "restored"
            ]
            for p in self.group_of
        }
        self.known = {p: self._known(p) for p in self.group_of}
        self.lost_positions = False
        self.held = {p: self._held(p) for p in self.group_of}
        self.ordered = {p: self._ordered(p) for p in self.group_of}

    def _held(self, p: int) -> Sequence:
        """What the state of p went through: its own deliveries and what it was handed."""
        held = list(self.known[p])
        lost: list[int] = []
        for start, stop in self._excused(p):
            for position in range(start, stop):
                others = [q for q in self._replicas(p) if any(pos == position for pos, _ in self.known[q])]
                if not others:
                    self.lost_positions = True
                    lost.append(position)
                    continue
                longest = max(others, key=lambda q: len(self.known[q]))
                held.append(next((pos, msg) for pos, msg in self.known[longest] if pos == position))
        end = min(lost) if lost and self.info.missing else None
        return [msg for pos, msg in sorted(held, key=lambda item: item[0]) if end is None or pos < end]

    def _known(self, p: int) -> list[tuple[int, int]]:
        """The deliveries of p whose place is known: those after a gap that may be one of the trace are not."""
        rows = self.positions[p]
        if self.info.missing:
            for i, ((before, _), (after, _)) in enumerate(pairwise([(-1, 0), *rows])):
                if after > before + 1 and after not in self.restored[p]:
                    return rows[:i]
        return rows

    def _excused(self, p: int) -> Iterable[tuple[int, int]]:
        positions = [-1, *(pos for pos, _ in self.known[p])]
        for before, after in pairwise(positions):
            if after > before + 1 and after in self.restored[p]:
                yield before + 1, after
        end = max(self.restored[p], default=0)
        if end > positions[-1] + 1:
            yield positions[-1] + 1, end

    def _replicas(self, p: int) -> list[int]:
        return [q for q, group in self.group_of.items() if group == self.group_of[p]]

    def _ordered(self, p: int) -> Sequence:
        return list(dict.fromkeys(m for m in self.held[p] if self.group_of[p] in self.dst.get(m, ())))

    # ------------------------------------------------------------------------------------ properties

    def failed(self) -> set[str]:
        checks = {
            "positions": self.positions_hold,
            "integrity": self.integrity_holds,
            "replicas": self.replicas_hold,
            "prefix": lambda: self.shortest_cycle() != 2,
            "acyclic": lambda: self.shortest_cycle() is None,
            "timestamps": self.timestamps_hold,
            "fifo": self.fifo_holds,
            "local-order": self.local_order_holds,
        }
        if len(self.run.wire):
            checks |= {
                "genuine": self.genuine_holds,
                "minimality": self.minimality_holds,
                "quasi-genuine": self.quasi_genuine_holds,
                "partially-genuine": self.partially_genuine_holds,
            }
        if self.info.missing:
            checks.pop("minimality", None)
            checks.pop("quasi-genuine", None)
        elif self.info.complete:
            checks |= {"validity": self.validity_holds, "agreement": self.agreement_holds}
        return {name for name, holds in checks.items() if not holds()}

    def positions_hold(self) -> bool:
        for p in {row[0] for row in self.rows}:
            for kind in (0, 1):
                excused = set(dict(self._excused(p)).values()) if kind == FINAL and p in self.group_of else set()
                positions = [-1, *(pos for q, k, pos, *_ in self.rows if (q, k) == (p, kind))]
                for before, after in pairwise(positions):
                    if after == before or (after != before + 1 and after not in excused and not self.info.missing):
                        return False
        return not self.lost_positions or bool(self.info.missing)

    def integrity_holds(self) -> bool:
        seen = set()
        for p, kind, _, msg, grp, _ in self.rows:
            if (p, kind, msg) in seen or p not in self.group_of or grp != self.group_of[p]:
                return False
            if grp not in self.dst.get(msg, (grp,) if self.info.missing else ()):
                return False
            seen.add((p, kind, msg))
        return len(self.run.multicasts) == len(self.dst)

    def _everywhere(self, msg: int) -> bool:
        return all(msg in self.held[p] for p in self.info.correct if self.group_of[p] in self.dst[msg])

    def validity_holds(self) -> bool:
        down = {}
        for fault in self.run.faults:
            if fault.what in ("crash", "restart"):
                down[fault.process] = fault if fault.what == "crash" else None

        def is_due(msg: int) -> bool:
            p = self.sender[msg]
            if p in self.group_of:
                return p in self.info.correct
            crash = down.get(p)
            return crash is None or self.seq[msg] < json.loads(crash.detail or "{}").get("settled", 0)

        return all(self._everywhere(msg) for msg in self.dst if is_due(msg))

    def agreement_holds(self) -> bool:
        return all(self._everywhere(row[3]) for row in self.rows if row[1] == FINAL and row[3] in self.dst)

    def replicas_hold(self) -> bool:
        for group in self.info.groups:
            logs = [self.held[p] for p in group.processes]
            longest = max(logs, key=len)
            if any(log != longest[: len(log)] for log in logs):
                return False
            correct = [self.held[p] for p in group.processes if p in self.info.correct]
            if self.info.complete and not self.info.missing and any(log != correct[0] for log in correct):
                return False
        return True

    def precedences(self) -> dict[int, set[int]]:
        """m -> all m' that some process delivers after m, or not at all although it delivers m."""
        delivered = {m for log in self.ordered.values() for m in log}
        after: dict[int, set[int]] = {m: set() for m in delivered}
        for p, log in self.ordered.items():
            addressed = {m for m in delivered if self.group_of[p] in self.dst[m]}
            for i, m in enumerate(log):
                after[m] |= addressed - set(log[: i + 1])
        return after

    def shortest_cycle(self) -> int | None:
        """The number of messages in the shortest cycle of the relation, by powers of it."""
        after = self.precedences()
        reach = {m: set(then) for m, then in after.items()}
        for length in range(1, len(after) + 1):
            if any(m in then for m, then in reach.items()):
                return length
            reach = {m: set().union(*(after[n] for n in then)) for m, then in reach.items()}
        return None

    def timestamps_hold(self) -> bool:
        stamped = [(p, msg, ts) for p, kind, _, msg, _, ts in self.rows if kind == FINAL and ts != NULL]
        for p, msg, ts in stamped:
            for _, other_msg, other_ts in stamped:
                if (msg == other_msg) != (ts == other_ts):
                    return False
            mine = [t for q, _, t in stamped if q == p]
            if any(late <= early for early, late in pairwise(mine)):
                return False
        return True

    def concerned(self, msg: int) -> set[int]:
        """The sender of a message and the members of its destinations."""
        if msg not in self.dst:
            return set()
        return {self.sender[msg], *(p for p, group in self.group_of.items() if group in self.dst[msg])}

    def spoken(self) -> list[tuple[int, int, int]]:
        """From, to, and the message that it was about."""
        wire = self.run.wire
        return list(zip(wire.src.tolist(), wire.dst.tolist(), wire.msg.tolist(), strict=True))

    def local_order_holds(self) -> bool:
        return not self.late_guesses()

    def late_guesses(self) -> set[tuple[int, int]]:
        """Processes, and messages that they delivered optimistically after they had delivered them for good."""
        rows = self.run.deliveries
        times = zip(rows.process.tolist(), rows.msg.tolist(), rows.kind.tolist(), rows.t_us.tolist(), strict=True)
        final: dict[tuple[int, int], int] = {}
        guesses: list[tuple[int, int, int]] = []
        for process, msg, kind, t_us in times:
            if kind == FINAL:
                final[process, msg] = t_us
            else:
                guesses.append((process, msg, t_us))
        return {(p, msg) for p, msg, t_us in guesses if t_us > final.get((p, msg), t_us)}

    def genuine_holds(self) -> bool:
        spoken = [row for row in self.spoken() if row[2] in self.dst or not self.info.missing]
        return all(self.may_speak(src, dst, msg) for src, dst, msg in spoken)

    def minimality_holds(self) -> bool:
        return all({src, dst} <= self.busy() for src, dst, msg in self.spoken() if msg != NULL)

    def quasi_genuine_holds(self) -> bool:
        return all({src, dst} <= self.busy() for src, dst, _ in self.spoken())

    def busy(self) -> set[int]:
        """All that some message concerns."""
        return set().union(*(self.concerned(msg) for msg in self.dst))

    def partially_genuine_holds(self) -> bool:
        return all(self.may_speak_of_local(src, dst, msg) for src, dst, msg in self.spoken())

    def may_speak_of_local(self, src: int, dst: int, msg: int) -> bool:
        return len(self.dst.get(msg, ())) != 1 or {src, dst} <= self.concerned(msg)

    def may_speak(self, src: int, dst: int, msg: int) -> bool:
        if msg != NULL:
            return {src, dst} <= self.concerned(msg)
        same_group = src in self.group_of and self.group_of[src] == self.group_of.get(dst)
        return src == dst or same_group or any({src, dst} <= self.concerned(m) for m in self.dst)

    def fifo_holds(self) -> bool:
        for p, log in self.ordered.items():
            for i, msg in enumerate(log):
                for other in self.dst:
                    same_sender = self.sender[other] == self.sender[msg]
                    is_earlier = same_sender and self.seq[other] < self.seq[msg]
                    if is_earlier and self.group_of[p] in self.dst[other] and other not in log[:i]:
                        return False
        return True
