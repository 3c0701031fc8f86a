"""A workload that was recorded: when messages were multicast, to which groups, and how large they were.

    time_us,destinations,bytes
    0,g1,64
    1500,g1 g2,200

Messages are dealt out to the clients in turn. Each is sent at its time, however the others fare (open loop), or with
`timed=False` as fast as the load wants.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from random import Random

from ..core import GroupId, Topology, UsageError
from ..core.ids import GROUP_ID_LIMIT
from ..core.message import PAYLOAD_LIMIT
from .base import Draft, Geography, Seat, Stream, Workload

COLUMNS = ("time_us", "destinations", "bytes")
MESSAGES_MAX = 1_000_000
_TIME_MAX_US = 1 << 53
_GROUP = re.compile(r"g([1-9]\d{0,8})")

Recorded = tuple[int, tuple[GroupId, ...], int]  # time, destinations, bytes


class Replay(Workload, frozen=True, forbid_unknown_fields=True, tag="replay"):
    source: str  # where it was recorded, for messages to people
    destinations: tuple[tuple[GroupId, ...], ...]  # each set once
    places: tuple[int, ...]  # the line or row of the source in which each of them first stands
    messages: tuple[tuple[int, int, int], ...]  # microseconds since the first one, number of the set, bytes
    timed: bool = True
    speed: float = 1.0  # 2: twice as fast as it was recorded

    @property
    def length(self) -> int:
        return len(self.messages)

    def title(self) -> str:
        how = "" if not self.timed else " in time" if self.speed == 1 else f" at speed {self.speed:g}"
        return f"replay of {self.source}{how}"

    def check(self, topology: Topology) -> None:
        if not 0 < self.speed < float("inf"):
            raise UsageError(f"a speed of {self.speed:g} is none: use a number above 0")
        for dst, place in zip(self.destinations, self.places, strict=True):
            unknown = next((group for group in dst if not topology.has_group(group)), None)
            if unknown is not None:
                raise UsageError(f"{self.source}: line {place}: there is no group g{unknown}: use more groups")

    def stream(self, geography: Geography, seat: Seat, rng: Random) -> ReplayStream:
        return ReplayStream(self, seat)


class ReplayStream(Stream):
    def __init__(self, workload: Replay, seat: Seat) -> None:
        self._workload = workload
        self._messages = workload.messages[seat.number :: seat.clients]
        self._next = 0

    def draw(self, count: int) -> list[Draft]:
        drawn = self._messages[self._next : self._next + count]
        assert len(drawn) == count, "nobody asks for more than was recorded"
        self._next += count
        return [(self._workload.destinations[dst], bytes(size)) for _, dst, size in drawn]

    def due_us(self) -> int | None:
        if not self._workload.timed:
            return None
        at = min(self._next, len(self._messages) - 1)
        return int(self._messages[at][0] / self._workload.speed) if self._messages else 0


def replay_of(source: str, recorded: Iterable[tuple[int, Recorded]]) -> Replay:
    """From messages in any order, each with the line or row that it stands in."""
    sets: dict[tuple[GroupId, ...], tuple[int, int]] = {}  # -> number, where it first stands
    found: list[tuple[int, int, int]] = []
    for place, (time_us, dst, size) in recorded:
        if len(found) == MESSAGES_MAX:
            raise UsageError(f"{source}: more than {MESSAGES_MAX:,} messages are too many to replay")
        number, _ = sets.setdefault(dst, (len(sets), place))
        found.append((time_us, number, size))
    if not found:
        raise UsageError(f"{source} has no message to replay")
    found.sort(key=lambda each: each[0])
    first = found[0][0]
    messages = tuple((time_us - first, number, size) for time_us, number, size in found)
    return Replay(source, tuple(sets), tuple(place for _, place in sets.values()), messages)


def parse_replay(text: str, source: str) -> Replay:
    """From CSV. Raises a `UsageError` that names the line."""
    return replay_of(source, _rows(text, source))


def _rows(text: str, source: str) -> Iterable[tuple[int, Recorded]]:
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        head = tuple([cell.strip() for cell in next(reader, [])])
        if head != COLUMNS:
            raise UsageError(f"{source}: line 1 must be {','.join(COLUMNS)}, and the next ones such as 1500,g1 g2,64")
        for cells in reader:
            where = f"{source}: line {reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(COLUMNS):
                raise UsageError(f"{where} has {len(cells)} fields instead of 3: write 1500,g1 g2,64")
            time_us = _number(cells[0], _TIME_MAX_US, f"{where}: time_us")
            size = _number(cells[2], PAYLOAD_LIMIT, f"{where}: bytes")
            yield reader.line_num, (time_us, _destinations(cells[1], where), size)
    except csv.Error as error:
        raise UsageError(f"{source}: line {reader.line_num}: {error}") from error


def _number(text: str, most: int, what: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) > most:
        raise UsageError(f"{what} '{text[:40]}' is no number from 0 to {most:,}")
    return int(text)


def _destinations(text: str, where: str) -> tuple[GroupId, ...]:
    groups: list[GroupId] = []
    for word in text.split():
        found = _GROUP.fullmatch(word)
        if found is None or int(found[1]) >= GROUP_ID_LIMIT:
            raise UsageError(f"{where}: destinations: '{word[:40]}' is no group: write g1, g2, ...")
        groups.append(int(found[1]))
    if not groups or len(set(groups)) != len(groups):
        raise UsageError(f"{where}: destinations: name one group or more, none twice")
    return tuple(sorted(groups))
