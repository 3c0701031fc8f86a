"""The microbenchmark of the papers: messages of one size to a random set of groups."""

from __future__ import annotations

from itertools import accumulate
from random import Random

from ..core import GroupId, Topology, UsageError
from ..core.message import PAYLOAD_LIMIT
from .base import Draft, Geography, Seat, Stream, Workload


def parse_destinations(text: str) -> tuple[int, int]:
    """The fewest and the most groups that a message goes to, from "2" or "1-3"."""
    low, _, high = text.partition("-")
    try:
        return int(low), int(high or low)
    except ValueError:
        raise UsageError(f"'{text}' is no number of destinations: write 2, or 1-3") from None


class Micro(Workload, frozen=True, forbid_unknown_fields=True, tag="micro"):
    """Each message goes to `dst_min` to `dst_max` groups; the number and the groups are drawn uniformly.

    With a `global_share`, this share of the messages goes to `dst_max` groups, and all others to `dst_min`.
    With a `skew`, the groups are drawn by Zipf's law: the n-th of them is as popular as 1 / n^skew.
    """

    dst_min: int = 1
    dst_max: int = 2
    payload_bytes: int = 64
    targets: int = 0  # messages go to the first so many groups; the others only help. 0: to all
    global_share: float | None = None  # see above
    objects: int = 4  # of each group, where messages are operations: one goes to one object of each of its groups
    moves: float = 0.0  # this share of the operations moves their objects to another site
    skew: float = 0.0  # see above
    # Messages are drawn from a stream of their own, the same for every protocol. Otherwise from the random numbers that
    # a client has for all purposes: schedules that were found so (of errata, of fuzzing) stay as they were.
    own_stream: bool = False

    def check(self, topology: Topology) -> None:
        if not 1 <= self.dst_min <= self.dst_max:
            raise UsageError(f"destinations {self.dst_min}-{self.dst_max} make no range: use for example 1-2")
        if not 0 <= self.targets <= len(topology.groups):
            raise UsageError(f"messages can't go to the first {self.targets} groups: there are {len(topology.groups)}")
        groups = topology.groups[: self.targets or None]
        if self.dst_max > len(groups):
            raise UsageError(
                f"a message can't go to {self.dst_max} groups: there are {len(groups)}; "
                "use fewer destinations or more groups"
            )
        if not 0 <= self.payload_bytes <= PAYLOAD_LIMIT:
            raise UsageError(
                f"a payload of {self.payload_bytes} bytes is over the limit of {PAYLOAD_LIMIT}: use a smaller --payload"
            )
        if self.objects < 1 or not 0 <= self.moves <= 1:
            raise UsageError(
                f"{self.objects} objects and {self.moves:g} of moves make no operations: use 1 or more, 0 to 1"
            )
        if self.global_share is not None and not 0 <= self.global_share <= 1:
            raise UsageError(f"{self.global_share:g} is no share of the messages: use a number from 0 to 1")
        if not 0 <= self.skew <= 10:
            raise UsageError(f"a skew of {self.skew:g} is out of range: use 0 (all groups alike) to 10")

    @property
    def has_own_stream(self) -> bool:
        return self.own_stream

    def stream(self, geography: Geography, seat: Seat, rng: Random) -> Stream:
        return _MicroStream(self, geography.topology, rng)

    def draw(self, topology: Topology, rng: Random, count: int) -> list[Draft]:
        """Destinations and payload of the next messages."""
        payload, groups = bytes(self.payload_bytes), topology.groups[: self.targets or None]
        if self.dst_min == len(groups):
            return [(groups, payload)] * count
        return [(self._destinations(groups, rng), payload) for _ in range(count)]

    def _destinations(self, groups: tuple[GroupId, ...], rng: Random) -> tuple[GroupId, ...]:
        count = self._count(rng)
        if count == len(groups):
            return groups
        if self.skew:
            return self._skewed(groups, count, rng)
        if count == 1:
            return (groups[rng.randrange(len(groups))],)
        return tuple(sorted(rng.sample(groups, count)))

    def _skewed(self, groups: tuple[GroupId, ...], count: int, rng: Random) -> tuple[GroupId, ...]:
        """By popularity, until there are enough different ones."""
        sums = list(accumulate([rank**-self.skew for rank in range(1, len(groups) + 1)]))
        found: set[GroupId] = set()
        while len(found) < count:
            found.update(rng.choices(groups, cum_weights=sums))
        return tuple(sorted(found))

    def _count(self, rng: Random) -> int:
        if self.dst_min == self.dst_max:
            return self.dst_min
        if self.global_share is not None:
            return self.dst_max if rng.random() < self.global_share else self.dst_min
        return rng.randint(self.dst_min, self.dst_max)


class _MicroStream(Stream):
    def __init__(self, workload: Micro, topology: Topology, rng: Random) -> None:
        self._workload = workload
        self._topology = topology
        self._rng = rng
        self.objects, self.moves = workload.objects, workload.moves

    def draw(self, count: int) -> list[Draft]:
        return self._workload.draw(self._topology, self._rng, count)
