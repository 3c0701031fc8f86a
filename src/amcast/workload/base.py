"""What a workload is: data that says what is multicast, and a stream of messages for each client.

A stream draws from random numbers of its own, which depend on the seed and the number of the client alone. So every
protocol gets the same messages, whatever its groups look like, and however often it answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random

import msgspec

from ..core import GroupId, Latency, Topology, UsageError

Draft = tuple[tuple[GroupId, ...], bytes]  # destinations and payload of a message to come
# What a message does to one object: the group that the object belongs to, its name, and a verb of the store of
# `amcast.apps` with its arguments.
Touch = tuple[GroupId, str, tuple[str | int, ...]]


class Seat(msgspec.Struct, frozen=True):
    """Which of the clients it is, and where it is."""

    number: int  # 0, 1, 2, ...
    clients: int = 1  # how many there are
    region: str | None = None  # None: nobody knows


class Geography:
    """How far groups are from each other and from clients. A group is where its first member is."""

    def __init__(self, topology: Topology, latency: Latency | None = None, targets: int = 0) -> None:
        """`targets`: messages go to the first so many groups; the others only help. 0: to all."""
        if not 0 <= targets <= len(topology.groups):
            raise UsageError(f"messages can't go to the first {targets} groups: there are {len(topology.groups)}")
        self.topology = topology
        self.groups = topology.groups[: targets or None]
        self._latency = latency

    def region(self, group: GroupId) -> str:
        return self.topology.region(self.topology.members(group)[0])

    def delay_us(self, a: str, b: str) -> int:
        """From one region to another, on average; 0 where no distances are known."""
        return 0 if self._latency is None else self._latency.mean_us(a, b)

    def by_distance(self, home: GroupId) -> tuple[GroupId, ...]:
        """All other groups, the nearest first. Those that are equally far stand as they follow the home in a ring."""
        at, count = self.groups.index(home), len(self.groups)
        ring = [self.groups[(at + step) % count] for step in range(1, count)]
        where = self.region(home)
        return tuple(sorted(ring, key=lambda group: self.delay_us(where, self.region(group))))

    def home(self, seat: Seat) -> GroupId:
        """The group that is nearest to a client. Clients take turns at groups that are equally near."""
        usual = self.groups[seat.number % len(self.groups)]
        if seat.region is None or self._latency is None or seat.region == self.region(usual):
            return usual
        delays = {group: self.delay_us(seat.region, self.region(group)) for group in self.groups}
        near = [group for group in self.groups if delays[group] == min(delays.values())]
        return near[seat.number % len(near)]


def stream_random(seed: int, client: int, boot: int = 1) -> Random:
    """The random numbers of a client's stream, which no other purpose shares."""
    return Random(f"{seed}/workload/{client}/{boot}")


class Stream(ABC):
    """The messages of one client, one after the other."""

    @abstractmethod
    def draw(self, count: int) -> list[Draft]:
        """The next messages."""

    objects: int = 4  # of each group, where messages are operations: one goes to one object of each of its groups
    moves: float = 0.0  # this share of the operations moves their objects to another site

    def draw_touches(self, count: int) -> list[tuple[Touch, ...]] | None:
        """The next messages, where messages are operations on objects. None: on any objects of their groups."""
        return None

    def pause_us(self) -> int:
        """How long the client of a closed loop waits before its next message: to key it in, and to think."""
        return 0

    def due_us(self) -> int | None:
        """When the next message is due, since the start of the client. None: at the load's own rate."""
        return None


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What is multicast, as data. Each kind is a subclass."""

    @property
    def length(self) -> int | None:
        """How many messages there are. None: as many as are asked for."""
        return None

    @property
    def has_own_stream(self) -> bool:
        """Whether it draws from random numbers of its own, as all do but a microbenchmark of old."""
        return True

    def homes(self, groups: int) -> int:
        """Clients live where the first so many of the groups are. 0: anywhere."""
        return 0

    def check(self, topology: Topology) -> None:
        """Raises `UsageError` if these groups can't have it."""
        raise NotImplementedError

    def stream(self, geography: Geography, seat: Seat, rng: Random) -> Stream:
        """The messages of a client. `rng` is the stream's own."""
        raise NotImplementedError

    def geography(self, topology: Topology, latency: Latency | None) -> Geography:
        return Geography(topology, latency)

    def title(self) -> str:
        """The kind and whatever is not as usual, in one line."""
        kind = str(self.__struct_config__.tag)
        usual = msgspec.structs.fields(type(self))
        told = [f"{field.name}={_shown(getattr(self, field.name))}" for field in usual if _differs(self, field)]
        return " ".join((kind, *told))


def _differs(workload: Workload, field: msgspec.structs.FieldInfo) -> bool:
    return bool(getattr(workload, field.name) != field.default)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
