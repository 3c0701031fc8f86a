"""Deliveries as several members tell them, some of which may lie: what enough of them tell alike is believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ...core import StampedMessage

Version = TypeVar("Version")


class Telling(NamedTuple):
    """What one member has from a position on."""

    member: str
    first: int  # where the piece begins: a batch may begin before the position
    piece: list[StampedMessage]
    next: int  # the position after it. Of an empty one: the next that the member has; if it is behind, the same


class Agreed(NamedTuple):
    first: int
    piece: list[StampedMessage]
    end: int
    liars: list[str]  # who told something else


def told_by_enough(versions: Sequence[Version], needed: int) -> Version | None:
    for version in versions:
        if sum([each == version for each in versions]) >= needed:
            return version
    return None


def agreed(at: int, tellings: Sequence[Telling], needed: int) -> Agreed:
    """The longest piece that so many tell alike, message by message."""
    left = [telling for telling in tellings if telling.piece]
    first = told_by_enough([telling.first for telling in left], needed)
    piece: list[StampedMessage] = []
    if first is None:
        return Agreed(at, piece, at, [])
    liars = [telling.member for telling in left if telling.first != first]
    left = [telling for telling in left if telling.first == first]
    end = first
    while True:
        here = [telling for telling in left if len(telling.piece) > len(piece)]
        found = told_by_enough([telling.piece[len(piece)] for telling in here], needed)
        if found is None:
            return Agreed(first, piece, end, liars)
        liars += [telling.member for telling in here if telling.piece[len(piece)] != found]
        left = [telling for telling in here if telling.piece[len(piece)] == found]
        piece.append(found)
        end += found[0].count


class Missing(NamedTuple):
    """What is to be thought of positions from `at` on that nobody's telling has proved."""

    lost_until: int  # whoever tells the truth, too few have them
    doubtful_until: int  # from there on, enough members say that they have them, liars not counted


def missing(at: int, end: int, tellings: Sequence[Telling], silent: int, needed: int) -> Missing:
    """`silent` members could not be asked. A liar may say that it has what it has not, or the other way round.

    Of three members of which one may lie, one says that it has nothing before 50, one nothing before 60, and one did
    not answer. Then what is before 50 is lost: only one member may have it, whom nobody would bear out. What is behind
    is in doubt, for two may have it.
    """
    having = [at for telling in tellings if telling.piece]
    lacking = [min(telling.next, end) for telling in tellings if not telling.piece]  # those that are behind: `at`
    perhaps = sorted([*having, *lacking, *[at] * silent])
    surely = sorted([*having, *[each if each > at else end for each in lacking]])
    lost_until = perhaps[needed - 1] if len(perhaps) >= needed else end
    enough = 2 * needed - 1  # f+1 of these tell the truth
    doubtful_until = surely[enough - 1] if len(surely) >= enough else end
    return Missing(lost_until, max(doubtful_until, lost_until, at + 1))
