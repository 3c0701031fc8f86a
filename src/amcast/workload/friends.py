"""The graph of a social network: who follows whom, and which group each user belongs to.

Users stand in a ring. The number of a user's followers near by is Zipf's; they are the users around it. Besides these,
a user has a few followers anywhere, `far` of them on average. The graph is drawn in blocks of users, each with random
numbers of its own, so that a part of a large one can be drawn by itself. METIS cuts it into groups of equal size with
few followers across.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

BLOCK = 10_000  # users that are drawn at a time
_METIS_SEED = 0


class Graph(msgspec.Struct, frozen=True, array_like=True):
    """What a graph is drawn from."""

    users: int
    zipf: float  # the number of followers near by is k with a probability in proportion to 1 / k^zipf
    followers_max: int  # near by
    far: float  # followers anywhere, on average
    seed: int

    @property
    def blocks(self) -> int:
        return -(-self.users // BLOCK)

    def follower_shares(self) -> npt.NDArray[np.float64]:
        """How likely a user has 1, 2, 3, ... followers near by."""
        weights = np.arange(1, self.followers_max + 1, dtype=np.float64) ** -self.zipf
        shares: npt.NDArray[np.float64] = weights / weights.sum()
        return shares

    def draw_block(self, block: int) -> tuple[Int64s, Int64s]:
        """A user and a follower of it, for all followers of the users of a block, sorted by user."""
        rng = np.random.default_rng([self.seed, block])
        followed = np.arange(block * BLOCK, min(self.users, (block + 1) * BLOCK))
        user, follower = self._near(followed, rng)
        far = np.repeat(followed, rng.poisson(self.far, len(followed)))
        anywhere = rng.integers(0, self.users, len(far))
        # The same user may be drawn twice, or follow itself.
        pairs = np.unique(np.concatenate((user, far)) * self.users + np.concatenate((follower, anywhere)))
        user, follower = pairs // self.users, pairs % self.users
        is_other = user != follower
        return user[is_other], follower[is_other]

    def _near(self, followed: Int64s, rng: np.random.Generator) -> tuple[Int64s, Int64s]:
        """Each user is somewhere among the users that follow it."""
        counts = 1 + rng.choice(self.followers_max, len(followed), p=self.follower_shares())
        before = rng.integers(0, counts + 1)
        user = np.repeat(followed, counts)
        step = np.arange(len(user)) - np.repeat(np.cumsum(counts) - counts + before, counts)
        step[step >= 0] += 1
        return user, (user + step) % self.users

    def draw(self) -> tuple[Int64s, Int64s]:
        """All blocks."""
        blocks = [self.draw_block(block) for block in range(self.blocks)]
        return np.concatenate([user for user, _ in blocks]), np.concatenate([follower for _, follower in blocks])


def cut(users: int, user: Int64s, follower: Int64s, parts: int) -> Int64s:
    """The part of each user, by METIS: as many users in each, and few followers in another part than their user."""
    import pymetis  # here, since most commands do without

    if parts == 1:
        return np.zeros(users, np.int64)
    low, high = np.minimum(user, follower), np.maximum(user, follower)
    edges = np.unique(low * users + high)
    low, high = edges // users, edges % users
    source, target = np.concatenate((low, high)), np.concatenate((high, low))
    order = np.lexsort((target, source))
    starts = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=users))))
    graph = pymetis.CSRAdjacency(starts.astype(np.int32), target[order].astype(np.int32))
    _, found = pymetis.part_graph(parts, graph, options=pymetis.Options(seed=_METIS_SEED))
    return np.asarray(found, np.int64)


def parts_of_followers(users: int, user: Int64s, follower: Int64s, part: Int64s, parts: int) -> tuple[Int64s, Int64s]:
    """Where the followers of users are: a user and a part with followers of it, sorted."""
    pairs = np.unique(user * parts + part[follower])
    return pairs // parts, pairs % parts


class Network:
    """The users of a graph in so many groups."""

    def __init__(self, graph: Graph, parts: int) -> None:
        self.part, followed, where = _divided(graph, parts)
        starts = np.searchsorted(followed, np.arange(graph.users + 1)).tolist()
        listed = where.tolist()
        # Groups by number from 0 on: the parts in which each user has followers.
        self.audience = [tuple(listed[start:end]) for start, end in pairwise(starts)]
        self.parts = self.part.tolist()
        self.members: list[list[int]] = [[] for _ in range(parts)]
        for user, part in enumerate(self.parts):
            self.members[part].append(user)


def _divided(graph: Graph, parts: int) -> tuple[Int64s, Int64s, Int64s]:
    user, follower = graph.draw()
    part = cut(graph.users, user, follower, parts)
    return part, *parts_of_followers(graph.users, user, follower, part, parts)


@lru_cache(maxsize=4)
def network_of(graph: Graph, parts: int) -> Network:
    """Drawn once for all clients."""
    return Network(graph, parts)


@lru_cache(maxsize=4)
def followers_of(graph: Graph) -> list[list[int]]:
    user, follower = graph.draw()
    starts = np.searchsorted(user, np.arange(graph.users + 1)).tolist()
    listed = follower.tolist()
    return [listed[start:end] for start, end in pairwise(starts)]


def spread_of(graph: Graph, parts: int) -> dict[int, int]:
    """How many users have followers in one group, in two, and so on."""
    counts = np.bincount([len(each) for each in network_of(graph, parts).audience])
    return {groups: int(users) for groups, users in enumerate(counts) if users}
