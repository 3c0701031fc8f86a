"""The social network of the thesis on GeoPaxos while its users are placed (section 4.7.2), in virtual time.

Three of its regions with its round trips: users whose numbers of followers are Zipf with skew 1.5, 10 clients in each
region, four reads of a timeline for each post. A client acts for users of its own region. In the beginning a hash
places the users. The thesis has 10,000 users and about 1,200 operations a second; what matters for the time is how
often each user acts, so the number of users scales both. It does not say where followers live. Here most live in the
user's region and most others in one other region; the two shares are chosen so that all followers of 80 % of the users
are in one region, of 18 % in two and of 2 % in three, as there.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import median
from typing import Any

import msgspec

from ..core import Latency, MessageId, encode, latency_preset
from ..protocols.geopaxos import GeoPaxos, Operation
from ..sim import Scenario, Simulation, scenario

REGIONS = ("CA", "VA", "EU")
CLIENTS = 10  # in each region
READS = 0.8  # of all operations; the others are posts
SKEW = 1.5
FOLLOWERS_MAX = 100
NEAR = 0.95  # of the followers are in the user's own region
SECOND = 0.9  # of the others are in one other region, the same for all followers of this user
OPERATIONS = 0.12  # of each user, in a second
BIN_S = 5
FAST_US = 5_000
SECOND_US = 1_000_000
STABLE = 0.99  # of all moves are made by then


class SocialGraph:
    def __init__(self, users: int, rng: Random) -> None:
        self.region = [REGIONS[number % len(REGIONS)] for number in range(users)]
        self.of_region = {region: [u for u in range(users) if self.region[u] == region] for region in REGIONS}
        counts = range(1, min(FOLLOWERS_MAX, users // 10) + 1)
        drawn = rng.choices(counts, [1 / count**SKEW for count in counts], k=users)
        self.followers = [self._draw(user, drawn[user], rng) for user in range(users)]

    def _draw(self, user: int, count: int, rng: Random) -> tuple[str, ...]:
        found: dict[int, None] = {}
        second, third = rng.sample([region for region in REGIONS if region != self.region[user]], 2)
        shares = (NEAR, (1 - NEAR) * SECOND, (1 - NEAR) * (1 - SECOND))
        while len(found) < count:
            (region,) = rng.choices((self.region[user], second, third), shares)
            found[rng.choice(self.of_region[region])] = None
        return tuple(map(name_of, found))

    def operation(self, region: str, rng: Random) -> Operation:
        user = rng.choice(self.of_region[region])
        return Operation((name_of(user),) if rng.random() < READS else self.followers[user])


def name_of(user: int) -> str:
    return f"user{user}"


def three_regions() -> Latency:
    """Each group whole in a region of its own, with the round trips of the thesis."""
    return msgspec.structs.replace(latency_preset("wan5"), regions=REGIONS, spread=False)


def planned(policy: str, seed: int) -> Scenario:
    made = scenario("geopaxos", "wan5", groups=3, replicas=3, clients=3 * CLIENTS, messages=0, seed=seed)
    options = {"placement": policy} if policy else {}
    return msgspec.structs.replace(made, network=three_regions(), options=options, records_wire=False)


class Measured:
    """A run, and what became of it in each stretch of time."""

    def __init__(self, users: int, seconds: int, policy: str = "affinity", seed: int = 1) -> None:
        self.seconds = seconds
        self.rng = Random(seed)
        self.graph = SocialGraph(users, self.rng)
        made = planned(policy, seed)
        self.topology = made.topology()
        self.simulation = Simulation(made)
        self.interval_s = 3 * CLIENTS / (users * OPERATIONS)
        self.single: list[tuple[int, bool]] = []  # when, and whether one site ordered it
        replica = self.simulation.process(0)
        assert isinstance(replica, GeoPaxos)
        self.replica = replica
        self.moves_us: list[int] = []
        self._placed: dict[str, int] = {}
        self.simulation.start()
        for client in self.topology.clients:
            self._later(client)
        for second in range(1, seconds + 1):
            self.simulation.loop.at(second * SECOND_US, self._look)
        self.simulation.loop.run(until=seconds * SECOND_US)
        self.result = self.simulation.result()

    def _later(self, client: int) -> None:
        wait_us = int(self.rng.expovariate(1 / self.interval_s) * SECOND_US)
        self.simulation.loop.at(self.simulation.loop.now + wait_us, self._act, client)

    def _act(self, client: int) -> None:
        operation = self.graph.operation(self.topology.region(client), self.rng)
        sites = {self.replica.placement_of(name).site for name in operation.objects}
        self.single.append((self.simulation.loop.now, len(sites) == 1))
        self.simulation.multicast(client, self.topology.groups, encode(operation))
        self._later(client)

    def _look(self) -> None:
        """The reasons of the latest moves are kept, and the times in them: more than are made in a second."""
        for each in self.replica.placement_status(1_000).latest:
            if (
                each.note is not None
                and each.note.at_us is not None
                and self._placed.get(each.object) != each.note.at_us
            ):
                self._placed[each.object] = each.note.at_us
                self.moves_us.append(each.note.at_us)

    @property
    def stable_s(self) -> float:
        times = sorted(self.moves_us)
        return times[int(len(times) * STABLE)] / 1e6 if times else 0.0

    def latencies_us(self) -> list[tuple[int, int]]:
        """When each operation was asked for, and how long its client waited."""
        run = self.result.run()
        asked: dict[MessageId, int] = dict(zip(run.multicasts.msg.tolist(), run.multicasts.t_us.tolist(), strict=True))
        answered = zip(run.answers.msg.tolist(), run.answers.t_us.tolist(), strict=True)
        return [(asked[msg], at - asked[msg]) for msg, at in answered]

    def bins(self) -> list[dict[str, Any]]:
        moves = Counter(int(at / 1e6) // BIN_S for at in self.moves_us)
        single: dict[int, list[bool]] = {}
        for at, is_single in self.single:
            single.setdefault(int(at / 1e6) // BIN_S, []).append(is_single)
        took: dict[int, list[int]] = {}
        for at, us in self.latencies_us():
            took.setdefault(int(at / 1e6) // BIN_S, []).append(us)
        return [
            {
                "from_s": number * BIN_S,
                "moves": moves[number],
                "single_site": sum(single[number]) / len(single[number]),
                "below_5_ms": sum(us < FAST_US for us in took[number]) / len(took[number]),
                "median_ms": median(took[number]) / 1e3,
            }
            for number in sorted(took)
        ]

    def spread(self) -> dict[str, Any]:
        """Of how many users all followers are at one site, at two and at three; and how many users each site has."""
        site = {name_of(user): self.replica.placement_of(name_of(user)).site for user in range(len(self.graph.region))}
        counts = Counter(len({site[name] for name in followers}) for followers in self.graph.followers)
        total = sum(counts.values())
        return {
            "followers_at_sites": {str(number): counts[number] / total for number in sorted(counts)},
            "users_of_site": {f"g{each}": count for each, count in sorted(Counter(site.values()).items())},
        }
