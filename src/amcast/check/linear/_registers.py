"""One register in which no value is written twice: which of its operations contradict each other.

It finds what `versions` only says there is: see there why this is all that can be wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...trace.operations import NOTHING
from ._history import Operation
from .versions import NEVER

READS, WRITES = ("read", "get"), ("write", "put")


@dataclass(slots=True)
class _Version:
    """A value's write, which the first value of a register has not, and its reads."""

    write: Operation | None
    reads: list[Operation] = field(default_factory=list)

    @property
    def all(self) -> list[Operation]:
        return [*([] if self.write is None else [self.write]), *self.reads]

    def ends_first(self) -> list[Operation]:
        """The operation that ended first; of the first value there is none, since it was always there."""
        return [] if self.write is None else [min(self.all, key=lambda each: each.returned)]

    def begins_last(self) -> list[Operation]:
        return [max(self.all, key=lambda each: each.invoked)]

    def writes(self) -> list[Operation]:
        return [] if self.write is None else [self.write]


def are_distinct(operations: Sequence[Operation]) -> bool:
    """Whether this is one register that is only read and written, and no value is written twice."""
    if any(len(each.calls) > 1 or each.calls[0].verb not in (*READS, *WRITES) for each in operations):
        return False
    written = [each.calls[0].arguments[0] for each in operations if each.calls[0].verb in WRITES]
    return len(set(written)) == len(written) and NOTHING not in written


def contradiction(operations: Sequence[Operation]) -> list[Operation] | None:
    """A few operations that no order explains, and none of their reads can be left out; None if there are none such."""
    found = _some(operations)
    for each in found or ():
        if found is not None and each.calls[0].verb in READS:
            found = _some([other for other in found if other is not each]) or found
    return found


def _some(operations: Sequence[Operation]) -> list[Operation] | None:
    versions: dict[object, _Version] = {NOTHING: _Version(None)}
    for each in operations:
        if each.calls[0].verb in WRITES:
            versions[each.calls[0].arguments[0]] = _Version(each)
    for each in operations:
        if each.calls[0].verb in READS and each.tells:
            version = versions.get(each.results[0])
            if version is None:
                return [each]  # nobody wrote it
            if version.write is not None and each.precedes(version.write):
                return [version.write, each]
            version.reads.append(each)
    return _crossed([version for version in versions.values() if version.all])


def _crossed(versions: list[_Version]) -> list[Operation] | None:
    """Two versions that each must precede the other, by the operations that show it."""
    zones = [(_first_end(version), _last_begin(version), number) for number, version in enumerate(versions)]
    zones.sort()
    ends = [end for end, _, _ in zones]
    latest: list[tuple[int, int]] = []  # for each place, when the one up to it that begins last does, and which it is
    for _, begin, number in zones:
        latest.append(max([*latest[-1:], (begin, number)]))
    found: list[list[Operation]] = []
    for place, (end, begin, number) in enumerate(zones):
        before = place if begin > end else bisect_left(ends, begin)
        if before and latest[before - 1][0] > end:
            one, other = versions[number], versions[latest[before - 1][1]]
            parts = (*one.writes(), *other.writes(), *one.ends_first(), *one.begins_last())
            found.append(_once([*parts, *other.ends_first(), *other.begins_last()]))
    return min(found, key=lambda each: (len(each), each[-1].key), default=None)


def _first_end(version: _Version) -> int:
    return -NEVER if version.write is None else min(each.returned for each in version.all)


def _last_begin(version: _Version) -> int:
    return max(each.invoked for each in version.all)


def _once(operations: list[Operation]) -> list[Operation]:
    return sorted({each.key: each for each in operations}.values(), key=lambda each: each.key)
