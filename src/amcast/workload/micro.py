"""The microbenchmark of the papers: messages of one size to a random set of groups."""

from __future__ import annotations

from random import Random

import msgspec

from ..core import GroupId, Topology, UsageError


def parse_destinations(text: str) -> tuple[int, int]:
    """The fewest and the most groups that a message goes to, from "2" or "1-3"."""
    low, _, high = text.partition("-")
    try:
        return int(low), int(high or low)
    except ValueError:
        raise UsageError(f"'{text}' is no number of destinations: write 2, or 1-3") from None


class Micro(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each message goes to `dst_min` to `dst_max` groups; the number and the groups are drawn uniformly."""

    dst_min: int = 1
    dst_max: int = 2
    payload_bytes: int = 64

    def check(self, topology: Topology) -> None:
        if not 1 <= self.dst_min <= self.dst_max:
            raise UsageError(f"destinations {self.dst_min}-{self.dst_max} make no range: use for example 1-2")
        if self.dst_max > len(topology.groups):
            raise UsageError(
                f"a message can't go to {self.dst_max} groups: there are {len(topology.groups)}; "
                "use fewer destinations or more groups"
            )

    def draw(self, topology: Topology, rng: Random, count: int) -> list[tuple[tuple[GroupId, ...], bytes]]:
        """Destinations and payload of the next messages."""
        payload = bytes(self.payload_bytes)
        if self.dst_min == len(topology.groups):
            return [(topology.groups, payload)] * count
        return [(self._destinations(topology, rng), payload) for _ in range(count)]

    def _destinations(self, topology: Topology, rng: Random) -> tuple[GroupId, ...]:
        groups = topology.groups
        count = self.dst_min if self.dst_min == self.dst_max else rng.randint(self.dst_min, self.dst_max)
        if count == len(groups):
            return groups
        if count == 1:
            return (groups[rng.randrange(len(groups))],)
        return tuple(sorted(rng.sample(groups, count)))
