"""Placement: what a site remembers of the use of its objects, and which of them it gives away.

Every replica of a site watches the operations on the site's objects, and where they come from: the region of the
replica that the client asked. Only the leader acts: it asks the policy, and submits a move as an operation of the old
and the new site. So no two sites decide about one object, and a new leader knows what the old one knew. A process that
was restarted knows what came since its last snapshot.

Moves are no messages: nobody is told of them but the replicas, which all follow the logs. A move that is lost with its
leader is decided again, since the object is still used from elsewhere. A move that comes twice, or from a leader that
was deposed, finds the object at its new site and changes nothing, or at a third one and is void.

Memory is bounded: of `placement_objects` objects the latest 40 operations are remembered, and of those that nobody
used for an hour nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId, Topology, encode, message_id, seq_of
from ...core.ids import SEQ_LIMIT
from .messages import MoveNote, Operation
from .policy import Move, PlacementPolicy, Use, make_policy

WINDOW = 40  # operations of an object that are counted
FORGET_US = 3_600_000_000  # an object that nobody used for so long is forgotten
AT_ONCE_MAX = 100  # moves that a policy may ask for at a time
REASON_MAX = 300  # characters
MOVES_MAX = 10  # higher counts of restlessness change nothing
_SECOND_US = 1_000_000
_REGIONS_MAX = 255  # told apart: the window of an object has a byte for each operation
_REFUSALS_KEPT = 20
_CALM_S = 86_400  # for each day that it stays, an object is a little less restless

# The id of a move: below 0, so that it is no message of anybody. Its sender stands for one leadership, of which Paxos
# has no two with the same ballot.
_PROCESS_BITS = 14
_ROUND_LIMIT = 1 << 22


def is_move_id(id_: MessageId) -> bool:
    """Whether it is a move that a placer made."""
    return id_ < 0


def move_id(process: ProcessId, round_: int, seq: int) -> MessageId:
    """Numbers that are too high begin anew. Two moves that share an id count as one: the other is decided again."""
    leadership = (round_ % _ROUND_LIMIT) << _PROCESS_BITS | process % (1 << _PROCESS_BITS)
    return message_id(-1 - leadership, seq % SEQ_LIMIT)


class _Known:
    """An object of this site."""

    __slots__ = ("moves", "recent", "since_us", "used_us")

    def __init__(self, since_us: int, moves: int) -> None:
        self.recent = bytearray()  # numbers of regions, oldest first
        self.since_us = since_us
        self.used_us = since_us
        self.moves = moves


def _moves_of_late(known: _Known, now_us: int) -> int:
    return max(0, known.moves - (now_us - known.since_us) // (_CALM_S * _SECOND_US))


class PlacerStatus(msgspec.Struct, frozen=True):
    """How placement goes at one process: for `amcast placement status`."""

    policy: str
    objects: int = 0  # whose use it remembers
    moves: int = 0  # that it submitted since it was started
    put_off: int = 0  # wishes that came while the limit on moves was reached
    refused: int = 0  # wishes that made no sense
    failures: int = 0  # times that the policy raised
    latest_refusals: tuple[str, ...] = ()
    failure: str | None = None  # what the policy raised last


class ObjectPlacement(msgspec.Struct, frozen=True):
    """Where an object is, as one process knows it: for `amcast placement show`."""

    object: str
    site: GroupId
    is_placed: bool  # it was moved. Otherwise it has the site that a hash of its name says
    note: MoveNote | None = None  # why, if it moved of late
    recent: dict[str, int] = {}  # its latest operations, by region, if this process watches it


class PlacementStatus(msgspec.Struct, frozen=True):
    placer: PlacerStatus
    moved: int  # objects that are not where a hash of their names says
    latest: tuple[ObjectPlacement, ...]  # the objects that moved last, the latest last


class Placer:
    def __init__(
        self, policy: str, site: GroupId, regions: Mapping[GroupId, str], per_second: int, objects_max: int
    ) -> None:
        self.name = policy
        self._site = site
        self._site_name = f"g{site}"
        self._sites = {f"g{each}": each for each in regions}
        self._region = regions[site]
        self._policy: PlacementPolicy = make_policy(policy, {f"g{each}": region for each, region in regions.items()})
        self._per_second = per_second
        self._objects_max = objects_max
        self._regions: list[str] = []
        self._known: dict[str, _Known] = {}  # the one that was not used for longest is first
        self._under_way: dict[str, MessageId] = {}
        self._round = -1  # the leadership that made the latest move
        self._seq = 0  # of the next one in it
        self._made_us: deque[int] = deque()  # when the latest moves away from here were made, within a second
        self._moves = self._put_off = self._refused = self._failures = 0
        self._refusals: deque[str] = deque(maxlen=_REFUSALS_KEPT)
        self._failure: str | None = None

    # -- what happens

    def saw(self, name: str, region: str, now_us: int) -> None:
        """An operation on an object of this site, which a replica of this region was asked for."""
        known = self._known.pop(name, None)
        if known is None:
            self._forget(now_us)
            known = _Known(now_us, 0)
        self._known[name] = known
        known.used_us = now_us
        known.recent.append(self._number(region))
        if len(known.recent) > WINDOW:
            del known.recent[0]

    def _number(self, region: str) -> int:
        if region not in self._regions:
            if len(self._regions) == _REGIONS_MAX:
                return _REGIONS_MAX - 1
            self._regions.append(region)
        return self._regions.index(region)

    def _forget(self, now_us: int) -> None:
        """Makes room for one more."""
        while self._known:
            name, oldest = next(iter(self._known.items()))
            if len(self._known) < self._objects_max and now_us - oldest.used_us < FORGET_US:
                return
            del self._known[name]

    def moved(self, name: str, source: GroupId, site: GroupId, moves: int, now_us: int) -> None:
        """A move was executed, whoever asked for it."""
        self._under_way.pop(name, None)
        if site == self._site and source != site:
            self._known.pop(name, None)
            self._forget(now_us)
            self._known[name] = _Known(now_us, moves)
        elif source == self._site and site != source:
            self._known.pop(name, None)

    def keep_under_way(self, ids: Iterable[MessageId]) -> None:
        """Only these moves are still seen to."""
        wanted = set(ids)
        self._under_way = {name: id_ for name, id_ in self._under_way.items() if id_ in wanted}

    # -- what should happen

    def wishes(self, name: str, is_placed: bool, now_us: int) -> list[Move]:
        """The moves that the policy wants after an operation on this object, as far as they make sense and the limit
        allows. What is put off now is asked for again when the object is used again."""
        known = self._known.get(name)  # none if the operation has more objects than are remembered
        if known is None or name in self._under_way:
            return []
        stayed_s = max(0, now_us - known.since_us) / _SECOND_US
        moves = _moves_of_late(known, now_us)
        use = Use(name, self._site_name, self._region, self._counts(known), is_placed, moves, stayed_s)
        try:
            asked = list(islice(iter(self._policy.decide(use) or ()), AT_ONCE_MAX + 1))
        except Exception as error:  # a policy of somebody's own must not stop a replica
            self._failures += 1
            self._failure = f"{type(error).__name__}: {error}"[:REASON_MAX]
            return []
        allowed = [move for move in asked[:AT_ONCE_MAX] if self._allows(move, now_us)]
        if len(asked) > AT_ONCE_MAX:
            self._refuse(f"the policy asked for more than {AT_ONCE_MAX} moves at a time: the others are left out")
        return allowed

    def _allows(self, move: object, now_us: int) -> bool:
        problem = self._problem_with(move)
        if problem is not None:
            self._refuse(problem)
            return False
        assert isinstance(move, Move)
        if move.object in self._under_way:
            return False
        while self._made_us and now_us - self._made_us[0] >= _SECOND_US:
            self._made_us.popleft()
        if len(self._made_us) >= self._per_second:
            self._put_off += 1
            return False
        self._made_us.append(now_us)
        return True

    def _problem_with(self, move: object) -> str | None:
        if not isinstance(move, Move) or not all(isinstance(x, str) for x in (move.object, move.site, move.reason)):
            return f"the policy asked for a {type(move).__name__}, which is no Move of an object to a site"
        what = f"the policy wants to move {move.object[:REASON_MAX]} to {move.site[:20]}"
        if move.site not in self._sites:
            return f"{what}: there is no such site, they are {', '.join(self._sites)}"
        if move.object not in self._known:
            return f"{what}: nobody used such an object of {self._site_name} of late"
        if move.site == self._site_name:
            return f"{what}: it is there already"
        return None

    def _refuse(self, why: str) -> None:
        self._refused += 1
        self._refusals.append(why)

    def submit(self, move: Move, process: ProcessId, round_: int, groups: Sequence[GroupId], now_us: int) -> AppMessage:
        """The move as an operation, made by this process in its leadership of this round."""
        if round_ != self._round:
            self._round, self._seq, self._under_way = round_, 0, {}
        id_ = move_id(process, round_, self._seq)
        self._seq += 1
        self._moves += 1
        self._under_way[move.object] = id_
        settled = min(map(seq_of, self._under_way.values()))
        operation = Operation((move.object,), encode(self._note(move, now_us)), self._sites[move.site])
        return AppMessage(id_, tuple(groups), encode(operation), settled)

    def _note(self, move: Move, now_us: int) -> MoveNote:
        known = self._known[move.object]
        is_first_use = not known.moves and self._region not in self._counts(known)
        moves = 0 if is_first_use else min(_moves_of_late(known, now_us) + 1, MOVES_MAX)
        return MoveNote(now_us, self._site, move.reason[:REASON_MAX], moves)

    # -- for those who ask

    def _counts(self, known: _Known) -> dict[str, int]:
        counts = {region: known.recent.count(number) for number, region in enumerate(self._regions)}
        return {region: count for region, count in counts.items() if count}

    def recent(self, name: str) -> dict[str, int]:
        """The latest operations on an object of this site, by region."""
        known = self._known.get(name)
        return {} if known is None else self._counts(known)

    @property
    def status(self) -> PlacerStatus:
        return PlacerStatus(
            self.name,
            len(self._known),
            self._moves,
            self._put_off,
            self._refused,
            self._failures,
            tuple(self._refusals),
            self._failure,
        )


def regions_of(sites: Iterable[GroupId], topology: Topology) -> dict[GroupId, str]:
    """Where each site is: where most of its members are; of those, where the first of them is."""
    found: dict[GroupId, str] = {}
    for site in sites:
        regions = [topology.region(member) for member in topology.members(site)]
        found[site] = max(regions, key=regions.count)
    return found
