"""Which site an object should have: the interface of placement policies, and the one that comes with GeoPaxos.

    class Everything(PlacementPolicy):
        def decide(self, use):
            if use.site != "g1":
                yield Move(use.object, "g1", "all objects belong to g1 here")

A policy is made with the sites of the cluster and the region of each, as `Everything({"g1": "EU", "g2": "US"})`. Its
`decide` is called in the leader of a site, after each operation on an object of that site. What it wants is a wish: the
placer (`placer.py`) refuses what makes no sense, keeps to the limit, and goes on if the policy raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from zlib import crc32

import msgspec

from ...core import UsageError

AFFINITY, WANDERING = "affinity", "wandering"
LEAD = 8  # so many more operations than from its own region must come from another one, before an object moves again
LEAD_MAX = 32  # of the 40 that are counted: 36 from there, 4 from here
REST_S = 5  # an object stays at least so long, once it has moved for its affinity


class Use(msgspec.Struct, frozen=True):
    """How one object is used, as the site sees it to which it belongs."""

    object: str
    site: str  # as g1
    region: str  # of that site
    recent: dict[str, int]  # its latest operations, at most 40: the region of the replica that was asked -> how many
    is_placed: bool  # somebody has moved it already. Otherwise it has the site that a hash of its name says
    moves: int = 0  # moves of late, each soon after the one before: it is restless
    stayed_s: float = 0.0  # for how long it has been here, as far as this process knows


class Move(msgspec.Struct, frozen=True):
    """A wish: this object should belong to that site. The reason is for people."""

    object: str
    site: str
    reason: str


class PlacementPolicy(ABC):
    """A placement policy: make a class of it, with `decide`. It is made with {"g1": "the region of g1", ...}."""

    def __init__(self, sites: Mapping[str, str]) -> None:
        self.sites = dict(sites)

    @abstractmethod
    def decide(self, use: Use) -> Iterable[Move]:
        """After each operation on an object of this site: which objects should move, and why. Most often none.

        It is called for each operation, so it must not take long. The same object may be asked for again and again: its
        move takes a while.
        """


class Affinity(PlacementPolicy):
    """The thesis's heuristics, with hysteresis: the first access sets the site, and then it follows the most accesses.

    In section 4.7.2 a user A moves to the site of B if B posts more often than A reads. A post of B is an operation on
    the timeline of A that comes from B's region, so this is the region from which most operations on A come. As
    published, an object that is used by halves moves with every other operation. Here another region must lead by 8
    operations of the last 40, and each move that follows soon doubles the lead and the time for which the object stays.
    """

    def __init__(self, sites: Mapping[str, str]) -> None:
        super().__init__(sites)
        self._sites_in: dict[str, list[str]] = {}
        for site, region in self.sites.items():
            self._sites_in.setdefault(region, []).append(site)

    def decide(self, use: Use) -> Iterable[Move]:
        region = max(use.recent, key=lambda each: (use.recent[each], each == use.region, each))
        sites = self._sites_in.get(region)
        if region == use.region or sites is None:
            return ()
        site = sites[crc32(use.object.encode()) % len(sites)]
        here = use.recent.get(use.region, 0)
        if not use.is_placed and not here:
            return (Move(use.object, site, f"it was first used from region {region}"),)
        if use.recent[region] - here < lead_needed(use.moves) or use.stayed_s < rest_s(use.moves):
            return ()
        return (Move(use.object, site, said(use.recent)),)


class Wandering(PlacementPolicy):
    """Sends each object to the next site after every third operation, wherever it is used: for fuzzing."""

    def decide(self, use: Use) -> Iterable[Move]:
        sites = sorted(self.sites)
        if sum(use.recent.values()) % 3 or len(sites) == 1:
            return ()
        return (Move(use.object, sites[(sites.index(use.site) + 1) % len(sites)], "objects wander in this run"),)


def lead_needed(moves: int) -> int:
    return min(LEAD << moves, LEAD_MAX)


def rest_s(moves: int) -> int:
    """None before the first move for affinity."""
    return 0 if moves == 0 else REST_S << moves - 1


def said(recent: Mapping[str, int]) -> str:
    """For people: 34 of its last 40 operations came from region EU, 6 from US."""
    most, *others = sorted(recent.items(), key=lambda each: (-each[1], each[0]))
    more = "".join(f", {count} from {region}" for region, count in others)
    return f"{most[1]} of its last {sum(recent.values())} operations came from region {most[0]}{more}"


PolicyFactory = Callable[[Mapping[str, str]], PlacementPolicy]
_policies: dict[str, PolicyFactory] = {AFFINITY: Affinity, WANDERING: Wandering}


def register_policy(name: str, factory: PolicyFactory) -> None:
    """From now on the option `placement` may name this policy, in this program. Nodes do it for module:Factory."""
    _policies[name] = factory


def make_policy(name: str, sites: Mapping[str, str]) -> PlacementPolicy:
    factory = _policies.get(name)
    if factory is None:
        known = ", ".join(sorted(_policies))
        raise UsageError(
            f"there is no placement policy '{name}': use one of {known}, or for one of your own module:Factory in the"
            " configuration of a cluster"
        )
    try:
        made = factory(sites)
    except Exception as error:
        raise UsageError(f"the placement policy {name} can't be made: {type(error).__name__}: {error}") from error
    if not callable(getattr(made, "decide", None)):
        raise UsageError(f"the placement policy {name} makes a {type(made).__name__}, which has no method `decide`")
    return made


def is_policy_known(name: str) -> bool:
    return name in _policies
