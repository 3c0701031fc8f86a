"""Leaves operations out of a history that has no order, as long as what is left still has none for the same reason.

What may be left out is a question of logic: the whole must have no order because what is left has none. An answer may
always be left out. A change may be if no answer that is left depends on it: a write, if nobody who is left saw its
value. So answers are chosen, and all changes on which they depend come along.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...trace.operations import NOTHING, UNSEEN, VERBS, Call, Result
from ._history import Operation
from ._search import Budget, has_order

_CONFIGURATIONS = 10_000  # for one attempt, besides some for each operation
_ATTEMPTS = 200


def smallest(operations: Sequence[Operation]) -> list[Operation]:
    """Of operations without an order: fewer of them without one, and none of the answers can be left out."""
    return _Shrinking(_shortest(operations)).run()


def _fails(operations: Sequence[Operation]) -> bool:
    return has_order(operations, Budget(_CONFIGURATIONS + 4 * len(operations))) is False


def _shortest(operations: Sequence[Operation]) -> list[Operation]:
    """Until the first answer by which there is no order any more; what was not answered then has no answer yet."""
    moments = sorted({each.returned for each in operations if each.is_answered})
    low, high = 0, len(moments) - 1
    while low < high:
        middle = (low + high) // 2
        if _fails(_until(operations, moments[middle])):
            high = middle
        else:
            low = middle + 1
    return _until(operations, moments[low])


def _until(operations: Sequence[Operation], moment: int) -> list[Operation]:
    begun = [each for each in operations if each.invoked <= moment]
    return [each if each.returned <= moment else each.without_answer() for each in begun]


class _Shrinking:
    def __init__(self, operations: list[Operation]) -> None:
        self._operations = operations
        self._attempts = 0
        self._depends = _Dependencies(operations)

    def run(self) -> list[Operation]:
        telling = sorted((each for each in self._operations if each.tells), key=lambda each: each.returned)
        kept = self._latest(telling)
        size = max(1, len(kept) // 2)
        while True:
            kept, has_shrunk = self._without_some(kept, size)
            if size == 1 and not has_shrunk:
                return self._depends.closed(kept)
            size = max(1, size // 2)

    def _latest(self, telling: list[Operation]) -> list[Operation]:
        """The last answer is one that can't be explained; often a few before it are enough to show it."""
        count = 1
        while count < len(telling):
            if self._is_enough(telling[-count:]):
                return telling[-count:]
            count *= 2
        return telling

    def _without_some(self, kept: list[Operation], size: int) -> tuple[list[Operation], bool]:
        has_shrunk = False
        at = 0
        while at < len(kept) and len(kept) > 1:
            fewer = kept[:at] + kept[at + size :]
            if fewer and self._is_enough(fewer):
                kept, has_shrunk = fewer, True
            else:
                at += size
        return kept, has_shrunk

    def _is_enough(self, kept: list[Operation]) -> bool:
        self._attempts += 1
        return self._attempts <= _ATTEMPTS and _fails(self._depends.closed(kept))


class _Dependencies:
    """Which operations made what an answer tells of."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._changes: dict[tuple[str, object], list[Operation]] = {}  # by object, and by value where that is enough
        for each in operations:
            for call in each.calls:
                for key in _made(call):
                    self._changes.setdefault(key, []).append(each)

    def closed(self, kept: Sequence[Operation]) -> list[Operation]:
        found = {each.key: each for each in kept}
        todo = list(kept)
        while todo:
            each = todo.pop()
            for call, result in zip(each.calls, each.results, strict=True):
                for key in _needed(call, result):
                    for other in self._changes.get(key, ()):
                        if other.key not in found:
                            found[other.key] = other
                            todo.append(other)
        return [found[key] for key in sorted(found)]


def _made(call: Call) -> list[tuple[str, object]]:
    match call.verb:
        case "write" | "put":
            return [(call.object, call.arguments[0]), (call.object, UNSEEN)]
        case "cas":
            return [(call.object, call.arguments[1]), (call.object, UNSEEN)]
        case "delete":
            return [(call.object, NOTHING), (call.object, UNSEEN)]
        case "insert" | "remove":
            return [(call.object, call.arguments[0]), (call.object, UNSEEN)]
        case "add" | "append":
            return [(call.object, UNSEEN)]
        case _:
            return []


def _needed(call: Call, result: Result) -> list[tuple[str, object]]:
    if result is UNSEEN and call.verb != "cas":
        return []
    match VERBS[call.verb].kind, call.verb:
        case "register", "cas":
            # That it was equal depends on that value's writes; that it was not, on all.
            return [(call.object, call.arguments[0] if result is True else UNSEEN)]
        case "register", _:
            return [(call.object, result)]
        case "set", "contains" | "insert" | "remove":
            return [(call.object, call.arguments[0])]
        case _:
            return [(call.object, UNSEEN)]
