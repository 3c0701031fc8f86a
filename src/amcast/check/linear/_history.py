"""Operations as the exact ways read them: objects of Python, parsed, in parts that are judged apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...core import ProcessId
from ...trace import NULL, Operations
from ...trace.operations import UNSEEN, VERBS, Call, Result, calls_of, results_of
from ...trace.run import Int64s
from .versions import NEVER

_OBSERVES_ONLY = frozenset({"read", "get", "total", "contains", "members", "items"})


@dataclass(frozen=True, slots=True)
class Operation:
    client: ProcessId
    invoked: int
    returned: int  # NEVER: there was no answer
    calls: tuple[Call, ...]
    results: tuple[Result, ...]
    nth: int = 0  # among those of its part: two operations may be equal in all else

    @property
    def is_answered(self) -> bool:
        return self.returned != NEVER

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Sorts the operations of a part, and tells them apart."""
        return (self.invoked, self.returned, self.client, self.nth)

    @property
    def changes_nothing(self) -> bool:
        """In whatever state it was done: so it may stand anywhere that fits its answer, and nothing else notices."""
        return all(
            call.verb in _OBSERVES_ONLY or (result is False and call.verb in ("cas", "insert", "remove"))
            for call, result in zip(self.calls, self.results, strict=True)
        )

    @property
    def tells(self) -> bool:
        return any(result is not UNSEEN for result in self.results)

    def precedes(self, other: Operation) -> bool:
        return self.returned < other.invoked

    def without_result(self) -> Operation:
        """What it changes does not depend on what it was told, but for a cas."""
        if any(call.verb == "cas" for call in self.calls):
            return self
        return replace(self, results=(UNSEEN,) * len(self.results))

    def without_answer(self) -> Operation:
        return replace(self, returned=NEVER, results=(UNSEEN,) * len(self.results))


@dataclass(frozen=True, slots=True)
class Part:
    """Operations that are judged together; no other operation matters to them."""

    name: tuple[str, str]  # the first of its objects by name, and of a set that is judged by values the value
    operations: list[Operation]  # sorted by their keys


def parts_of(operations: Operations, rows: Int64s) -> list[Part]:
    """The operations in these rows, which hold all that was done with the objects that they are about."""
    rows_of: dict[int, list[int]] = {}
    home = _joined_objects(operations, rows)
    first = operations.objects.codes[operations.objects.start[:-1][rows]].tolist()
    for row, code in zip(rows.tolist(), first, strict=True):
        rows_of.setdefault(home.get(code, code), []).append(row)
    parts = [part for mine in rows_of.values() for part in _split(_parsed(operations, mine))]
    return sorted(parts, key=lambda part: part.name)


def _joined_objects(operations: Operations, rows: Int64s) -> dict[int, int]:
    """For each object that is in a transaction with others: one object for all that belong together."""
    start, codes = operations.objects.start, operations.objects.codes
    several = rows[np.diff(start)[rows] > 1]
    return join(codes[start[row] : start[row + 1]].tolist() for row in several.tolist())


def join(groups: Iterable[Sequence[int]]) -> dict[int, int]:
    """One number for all that are in one group, or in groups that share numbers."""
    above: dict[int, int] = {}

    def top(number: int) -> int:
        while above[number] != number:
            above[number] = above[above[number]]
            number = above[number]
        return number

    for group in groups:
        tops = [top(above.setdefault(number, number)) for number in group]
        for each in tops:
            above[each] = min(tops)
    return {number: top(number) for number in above}


def _parsed(operations: Operations, rows: Sequence[int]) -> list[Operation]:
    parsed = []
    for row in rows:
        calls = calls_of(operations, row)
        returned = int(operations.returned_us[row])
        parsed.append(
            Operation(
                int(operations.client[row]),
                int(operations.invoked_us[row]),
                NEVER if returned == NULL else returned,
                calls,
                results_of(operations, row, calls),
            )
        )
    # Whatever the order of the rows: verdicts and words come out the same.
    parsed.sort(key=lambda each: (each.invoked, each.returned, each.client, repr(each.calls), _spelt(each.results)))
    return [replace(operation, nth=number) for number, operation in enumerate(parsed)]


def _spelt(results: tuple[Result, ...]) -> str:
    return repr([sorted(each) if isinstance(each, frozenset) else each for each in results])


def _split(operations: list[Operation]) -> list[Part]:
    """A set that nobody read as a whole is one object for each value."""
    name = min(call.object for operation in operations for call in operation.calls)
    if any(
        len(op.calls) > 1 or VERBS[op.calls[0].verb].kind != "set" or not op.calls[0].arguments for op in operations
    ):
        return [Part((name, ""), operations)]
    by_value: dict[str, list[Operation]] = {}
    for operation in operations:
        by_value.setdefault(str(operation.calls[0].arguments[0]), []).append(operation)
    return [Part((name, value), mine) for value, mine in by_value.items()]
