"""Whether a trace is whole: what should be there of each process, and what is not, in words for people.

A process is expected to have a trace of every boot, with all its tables, that reaches as far as the process itself said
it was. Whoever collects knows this from elsewhere than the trace: the data folder counts the boots, and the status of a
node tells its position. A check of a run that lacks some of it proves nothing about the rows that nobody has. The same
is true of what a node dropped to keep its trace within its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ...core import ProcessId
from ...trace import RunInfo
from ...trace.schema import process_name
from ._rawformat import CLOSED, FAILED, FLUSH_ORDER, ROTATED, Dropped


class Boots(NamedTuple):
    """The number of a process's last boot, and which boots ended before the process took part in anything."""

    last: int
    idle: frozenset[int] = frozenset()


class Expected(NamedTuple):
    """What is known of one process. None is not known."""

    boots: Boots | None
    position: int | None  # it had delivered everything below


# By process; asked when everything is read.
Expect = Callable[[], Mapping[ProcessId, Expected]]


class Table(NamedTuple):
    """What there is of a table in one segment."""

    end: bytes
    has_rows: bool = True
    is_whole: bool = True  # False: it was gone before it was read to its end


Segments = Mapping[int, Mapping[str, Table]]  # the tables of each segment


class Found(NamedTuple):
    """What there is of one process."""

    boots: Mapping[int, Segments]
    position: int = 0  # it delivered everything below, or received a state that covers it
    idle: frozenset[int] = frozenset()  # boots that ended before it took part, as later boots wrote down
    dropped: Dropped | None = None  # what its node removed on purpose
    first: int | None = None  # the lowest position at which there is a delivery
    is_compared: bool = True  # False: it delivered again what had been dropped before it could be compared

    @property
    def last(self) -> Mapping[str, Table]:
        """The last segment of the last boot."""
        segments = self.boots[max(self.boots)]
        return segments[max(segments)]

    def was_dropped(self, boot: int, segment: int) -> bool:
        return self.dropped is not None and (boot, segment) <= (self.dropped.boot, self.dropped.segment)


def missing_evidence(
    info: RunInfo, expected: Mapping[ProcessId, Expected], found: Mapping[ProcessId, Found]
) -> Iterator[str]:
    for process in sorted({*expected, *found}):
        name, mine = process_name(info, process), found.get(process, Found({}))
        boots = None if process not in expected else expected[process].boots
        yield from dropped_evidence(name, mine, frozenset[int]() if boots is None else boots.idle)
        if process in expected:
            yield from _missing_boots(name, boots, mine)
            yield from _missing_end(name, expected[process], mine, info.complete)
        for boot, segments in sorted(mine.boots.items()):
            yield from _missing_segments(name, boot, segments, mine)
            if any(table.end == FAILED for tables in segments.values() for table in tables.values()):
                yield f"{name}: the trace of its boot {boot} broke off"


def dropped_evidence(name: str, found: Found, idle: frozenset[int] = frozenset()) -> Iterator[str]:
    """What was dropped by a limit before anyone had read it. Whoever follows a trace as it grows may have all of it."""
    if found.dropped is not None:
        idle |= found.idle
        boots = range(1, found.dropped.boot + 1)
        is_lost = any(boot not in found.boots and boot not in idle for boot in boots) or any(
            found.was_dropped(boot, number) and _lack(segments, number, boot in idle) is not None
            for boot, segments in found.boots.items()
            for number in range(max(segments) + 1)
        )
        if is_lost:
            what = f"deliveries before position {found.first:,} were" if found.first else "a part of its trace was"
            yield f"{name}: {what} dropped by {found.dropped.limit}"
    if not found.is_compared:
        yield f"{name}: what it delivered again after a restart can't be compared with what was dropped"


def _missing_boots(name: str, boots: Boots | None, found: Found) -> Iterator[str]:
    if not found.boots:
        if boots is None or boots.last > len(boots.idle):
            yield f"no trace of {name}"
        return
    last, idle = (max(found.boots), frozenset[int]()) if boots is None else boots
    idle |= found.idle
    absent = [boot for boot in range(1, last + 1) if boot not in found.boots and boot not in idle]
    absent = [boot for boot in absent if not found.was_dropped(boot, 0)]
    if absent:
        yield f"{name}: no trace of {_boots(absent)}"
    if max(found.boots) > last:
        counted = f"its folder counts {last} boots, and there is a trace of boot {max(found.boots)}"
        yield f"{name}: {counted}: the folder was replaced, and boots since then may have left no trace"
    for boot, segments in sorted(found.boots.items()):
        what = _lack(segments, 0, boot in idle) if 0 in segments else None
        if what is not None and not found.was_dropped(boot, 0):
            yield f"{name}: the trace of its boot {boot} {what}"


def _missing_segments(name: str, boot: int, segments: Segments, found: Found) -> Iterator[str]:
    """Segments that are not there, or not as a whole, though nobody dropped them."""
    last = max(segments)
    for number in range(last + 1):
        what = _lack(segments, number) if number or number not in segments else None
        if what is not None and not found.was_dropped(boot, number):
            yield f"{name}: the trace of its boot {boot} {what}"
    if any(table.end == ROTATED for table in segments[last].values()):
        yield f"{name}: the trace of its boot {boot} has no segment {last + 1}"


def _lack(segments: Segments, number: int, is_idle: bool = False) -> str | None:
    """What is not there of a segment, in words. `is_idle`: its boot ended before the process took part in anything."""
    tables = segments.get(number)
    which = f"segment {number} " if number else ""
    if tables is None:
        return f"has no segment {number}"
    if not all(table.is_whole for table in tables.values()):
        return f"was removed before {which or 'it '}was read to its end"
    lacking = [table for table in FLUSH_ORDER if table not in tables]
    # A crash while a segment was begun leaves some of its files, and nothing in them. A process begins its first one
    # before it takes part, so whoever took part has all files of that.
    may_be_begun = number == max(segments) and (number > 0 or is_idle)
    was_begun = may_be_begun and not any(table.has_rows for table in tables.values())
    if lacking and not was_begun:
        return f"has no {', '.join(lacking)}" + (f" in its segment {number}" if number else "")
    return None


def _missing_end(name: str, expected: Expected, found: Found, is_complete: bool) -> Iterator[str]:
    """A run that was cut short does not say how far a process came. A complete one must know."""
    if not found.boots:
        return
    if expected.position is None:
        if is_complete and {table.end for table in found.last.values()} != {CLOSED}:
            yield f"{name}: its last boot did not end in good order, and how far it came is not known"
    elif found.position < expected.position and (found.first is not None or found.dropped is None):
        yield f"{name}: it delivered up to position {expected.position}, its trace ends at {found.position}"


def _boots(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"its boot {numbers[0]}"
    return f"{len(numbers)} of its boots, the first of them {numbers[0]}"
