"""A social network: users post to their followers, read their timelines, and follow others.

Users are divided among the groups by METIS. A post goes to all groups in which the user has followers, so that a
timeline is read in one group. In the graph as it is by default users have followers in as many groups as in Figure 7 of
FastCast; `GEOPAXOS_3` and `GEOPAXOS_5` are those of the experiments of GeoPaxos, with four reads to a post.

From: Coelho, Schiper, Pedone, "Fast atomic multicast" (2017), section 5.6; Coelho, "Scaling atomic multicast" (2019),
section 4.7.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Literal

import msgspec

from ..core import GroupId, Latency, Topology, UsageError, encode
from ..core.message import PAYLOAD_LIMIT
from .base import Draft, Geography, Seat, Stream, Touch, Workload

if TYPE_CHECKING:  # numpy is loaded when somebody draws: nodes and most commands do without
    from .friends import Graph

FOLLOWERS_MAX = 1_000  # near by: an operation on the objects of all followers has a limit
_USERS_MAX = 10_000_000


class Post(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    user: int
    text: bytes


class ReadTimeline(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    user: int


class Follow(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    user: int
    followed: int


Request = Post | ReadTimeline | Follow


class Social(Workload, frozen=True, forbid_unknown_fields=True, tag="social"):
    users: int = 10_000
    zipf: float = 1.5  # of the number of a user's followers near by, see `friends`
    followers_max: int = 50
    far: float = 0.33  # followers anywhere, on average
    graph_seed: int = 3
    timelines: float = 0.0  # this share of the requests reads a timeline
    follows: float = 0.0  # this share makes a user follow another one; all others are posts
    acts_for: Literal["anyone", "home"] = "anyone"  # a client acts for all users, or for those of its home group
    payload_bytes: int = 64  # of a post
    targets: int = 0  # users belong to the first so many groups; the others only help. 0: to all

    def check(self, topology: Topology) -> None:
        groups = len(self.geography(topology, None).groups)
        if not groups <= self.users <= _USERS_MAX:
            raise UsageError(
                f"{self.users:,} users for {groups} groups: use one for each at least, and {_USERS_MAX:,} at most"
            )
        if not 1 <= self.followers_max <= min(FOLLOWERS_MAX, self.users - 1):
            most = min(FOLLOWERS_MAX, self.users - 1)
            raise UsageError(f"followers_max of {self.followers_max} is out of range, which is 1 to {most:,}")
        if not (0 <= self.zipf <= 10 and 0 <= self.far <= 100 and self.graph_seed >= 0):
            raise UsageError(
                "a graph needs a zipf of 0 to 10, far of 0 to 100 followers, and a graph_seed of 0 or more"
            )
        if self.timelines < 0 or self.follows < 0 or not self.timelines + self.follows <= 1:
            raise UsageError(f"timelines {self.timelines:g} and follows {self.follows:g} are no shares of the requests")
        if not 0 <= self.payload_bytes <= PAYLOAD_LIMIT:
            raise UsageError(f"a payload of {self.payload_bytes} bytes is out of range, which is 0 to {PAYLOAD_LIMIT}")

    def homes(self, groups: int) -> int:
        return self.targets or groups

    def geography(self, topology: Topology, latency: Latency | None) -> Geography:
        return Geography(topology, latency, self.targets)

    def stream(self, geography: Geography, seat: Seat, rng: Random) -> SocialStream:
        return SocialStream(self, geography, seat, rng)

    def graph(self) -> Graph:
        from .friends import Graph

        return Graph(self.users, self.zipf, self.followers_max, self.far, self.graph_seed)


GEOPAXOS_3 = Social(followers_max=300, far=0.31, graph_seed=3, timelines=0.8, acts_for="home")
GEOPAXOS_5 = Social(followers_max=100, far=0.34, graph_seed=1, timelines=0.8, acts_for="home")


class SocialStream(Stream):
    """The requests of one client."""

    def __init__(self, workload: Social, geography: Geography, seat: Seat, rng: Random) -> None:
        from .friends import network_of

        self._workload = workload
        self._groups = geography.groups
        self._network = network_of(workload.graph(), len(self._groups))
        self._rng = rng
        part = self._groups.index(geography.home(seat))
        self._users = self._network.members[part] if workload.acts_for == "home" else range(workload.users)
        self._sees: dict[int, set[int]] = {}  # user -> parts of those who followed it since, by this client
        self._posts = 0

    def draw(self, count: int) -> list[Draft]:
        return [self._draft(self.next()) for _ in range(count)]

    def next(self) -> Request:
        rng, workload = self._rng, self._workload
        kind, user = rng.random(), self._users[rng.randrange(len(self._users))]
        if kind < workload.timelines:
            return ReadTimeline(user)
        if kind < workload.timelines + workload.follows:
            followed = (user + rng.randint(1, workload.users - 1)) % workload.users
            self._sees.setdefault(followed, set()).add(self._network.parts[user])
            return Follow(user, followed)
        text = bytes(max(0, workload.payload_bytes - len(encode(Post(user, b"")))))
        return Post(user, text)

    def _draft(self, request: Request) -> Draft:
        return self.destinations(request), encode(request)

    def destinations(self, request: Request) -> tuple[GroupId, ...]:
        return tuple(self._groups[part] for part in sorted(self._parts_of(request)))

    def _parts_of(self, request: Request) -> set[int]:
        parts = self._network.parts
        match request:
            case Post(user):
                return {*self._network.audience[user], *self._sees.get(user, ())}
            case ReadTimeline(user):
                return {parts[user]}
            case Follow(user, followed):
                return {parts[user], parts[followed]}

    def draw_touches(self, count: int) -> list[tuple[Touch, ...]]:
        return [self._touches(self.next()) for _ in range(count)]

    def _touches(self, request: Request) -> tuple[Touch, ...]:
        """A timeline is an object of the user's group. Each post has a number of its own."""
        from .friends import followers_of

        match request:
            case Post(user):
                self._posts += 1
                readers = followers_of(self._workload.graph())[user]
                return tuple(self._on_timeline(reader, "append", f"{user}/{self._posts}") for reader in readers)
            case ReadTimeline(user):
                return (self._on_timeline(user, "items"),)
            case Follow(user, followed):
                return ((self._groups[self._network.parts[followed]], f"followers{followed}", ("insert", user)),)

    def _on_timeline(self, user: int, *verb: str | int) -> Touch:
        return self._groups[self._network.parts[user]], f"timeline{user}", verb
