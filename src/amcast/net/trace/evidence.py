"""Whether a trace is whole: what should be there of each process, and what is not, in words for people.

A process is expected to have a trace of every boot, with all its tables, that reaches as far as the process itself said
it was. Whoever collects knows this from elsewhere than the trace: the data folder counts the boots, and the status of a
node tells its position. A check of a run that lacks some of it proves nothing about the rows that nobody has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ...core import ProcessId
from ...trace import RunInfo
from ...trace.schema import process_name
from ._rawformat import CLOSED, FAILED, FLUSH_ORDER


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


class Found(NamedTuple):
    """What there is of one process."""

    boots: Mapping[int, Mapping[str, bytes]]  # its tables in each boot, and how each of them ended
    position: int = 0  # it delivered everything below, or received a state that covers it
    idle: frozenset[int] = frozenset()  # boots that ended before it took part, as later boots wrote down


def missing_evidence(
    info: RunInfo, expected: Mapping[ProcessId, Expected], found: Mapping[ProcessId, Found]
) -> Iterator[str]:
    for process in sorted({*expected, *found}):
        name, mine = process_name(info, process), found.get(process, Found({}))
        if process in expected:
            yield from _missing_boots(name, expected[process].boots, mine)
            yield from _missing_end(name, expected[process], mine, info.complete)
        for boot, tables in sorted(mine.boots.items()):
            if FAILED in tables.values():
                yield f"{name}: the trace of its boot {boot} broke off"


def _missing_boots(name: str, boots: Boots | None, found: Found) -> Iterator[str]:
    if not found.boots:
        if boots is None or boots.last > len(boots.idle):
            yield f"no trace of {name}"
        return
    last, idle = (max(found.boots), frozenset[int]()) if boots is None else boots
    idle |= found.idle
    absent = [boot for boot in range(1, last + 1) if boot not in found.boots and boot not in idle]
    if absent:
        yield f"{name}: no trace of {_boots(absent)}"
    if max(found.boots) > last:
        counted = f"its folder counts {last} boots, and there is a trace of boot {max(found.boots)}"
        yield f"{name}: {counted}: the folder was replaced, and boots since then may have left no trace"
    for boot, tables in sorted(found.boots.items()):
        lacking = [table for table in FLUSH_ORDER if table not in tables]
        if lacking and boot not in idle:
            yield f"{name}: the trace of its boot {boot} has no {', '.join(lacking)}"


def _missing_end(name: str, expected: Expected, found: Found, is_complete: bool) -> Iterator[str]:
    """A run that was cut short does not say how far a process came. A complete one must know."""
    if not found.boots:
        return
    if expected.position is None:
        if is_complete and set(found.boots[max(found.boots)].values()) != {CLOSED}:
            yield f"{name}: its last boot did not end in good order, and how far it came is not known"
    elif found.position < expected.position:
        yield f"{name}: it delivered up to position {expected.position}, its trace ends at {found.position}"


def _boots(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"its boot {numbers[0]}"
    return f"{len(numbers)} of its boots, the first of them {numbers[0]}"
