"""Traces as another system would write them: plain CSV by docs/trace-format.md, with names, and nothing of amcast."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

GROUPS = {
    "orders": ["db-1", "db-2", "db-10"],
    "stock": ["db-3", "db-4", "db-5"],
    "billing": ["db-6", "db-7", "db-8"],
}
GROUP_OPTIONS = [word for name, members in GROUPS.items() for word in ("--group", f"{name}={','.join(members)}")]

Row = Sequence[object]


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


class ForeignTrace:
    """Messages `tx-N` of five clients to one, two or three groups, delivered by all in one order."""

    def __init__(self, messages: int, seed: int = 1) -> None:
        rng = random.Random(seed)
        sent = dict.fromkeys((f"client-{name}" for name in "abcde"), 0)
        self.multicasts: list[Row] = []
        self.deliveries: dict[str, list[tuple[str, int]]] = {name: [] for group in GROUPS.values() for name in group}
        self.group_of = {process: group for group, members in GROUPS.items() for process in members}
        for number in range(messages):
            sender = rng.choice(list(sent))
            dst = rng.sample(list(GROUPS), rng.choice((1, 1, 2, 2, 3)))
            t_us = 1_000_000 + 50 * number
            self.multicasts.append((f"tx-{number}", sender, sent[sender], " ".join(dst), t_us, rng.randrange(2_000)))
            sent[sender] += 1
            for group in dst:
                for process in GROUPS[group]:
                    self.deliveries[process].append((f"tx-{number}", t_us + rng.randrange(200, 900)))

    def swap(self, processes: Sequence[str], first: str, second: str) -> None:
        """Two messages that these processes deliver, the other way round."""
        for process in processes:
            log = self.deliveries[process]
            names = [message for message, _ in log]
            one, other = names.index(first), names.index(second)
            log[one], log[other] = log[other], log[one]

    def neighbours(self, group: str, other: str) -> tuple[str, str]:
        """Two messages, one after the other at both groups and addressed to both, in the middle of the trace."""
        both = [row[0] for row in self.multicasts if {group, other} <= set(str(row[3]).split())]
        return str(both[len(both) // 2]), str(both[len(both) // 2 + 1])

    def delivery_rows(self) -> list[Row]:
        return [
            (process, self.group_of[process], position, message, t_us)
            for process, log in self.deliveries.items()
            for position, (message, t_us) in enumerate(log)
        ]

    def write(self, folder: Path) -> Path:
        header = ("msg", "sender", "client_seq", "dst", "t_us", "bytes")
        write_csv(folder / "multicasts.csv", header, self.multicasts)
        write_csv(folder / "deliveries.csv", ("process", "group", "pos", "msg", "t_us"), self.delivery_rows())
        return folder
