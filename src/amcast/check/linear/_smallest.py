"""Leaves operations out of a history that has no order, as long as what is left still has none for the same reason.

What may be left out is a question of logic: the whole must have no order because what is left has none. An answer may
always be left out. A change may be if no answer that is left depends on it: a write, if nobody who is left saw its
value, or if another write hides it from them, one that began after it had ended and ended before they began. So answers
are chosen, and all changes on which they depend come along.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...trace.operations import NOTHING, UNSEEN, VERBS, Call, Result
from ._history import Operation
from ._search import Budget, has_order

_CONFIGURATIONS = 10_000  # for one attempt, besides some for each operation
_ATTEMPTS = 200
_NEARBY = (1, 2, 4, 8, 16, 32, 64, 128)  # so many answers are looked at
_NEARBY_OPERATIONS = 1_000

_Key = tuple[str, object]  # an object, and a value or UNSEEN


def smallest(operations: Sequence[Operation]) -> list[Operation]:
    """Of operations without an order: fewer of them without one, and none of the answers can be left out."""
    return _Shrinking(_shortest(operations)).run()


def refuted(operations: Sequence[Operation], hindrance: Operation) -> list[Operation] | None:
    """Operations that have no order, and because of which the whole has none; None if they are not found.

    A search that does not get past an answer would have to try all orders of all that came before. Mostly the answers
    shortly before it, with what they depend on, show already that it can't be explained.
    """
    begun = _until(operations, hindrance.returned)
    depends = Dependencies(begun)
    telling = sorted((each for each in begun if each.tells), key=lambda each: each.returned)
    for count in _NEARBY:
        found = depends.closed(telling[-count:])
        if len(found) <= _NEARBY_OPERATIONS and _fails(found):
            return found
    return None


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
        self._depends = Dependencies(operations)

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


class Dependencies:
    """Which operations made what an answer tells of."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._changes: dict[_Key, list[Operation]] = {}  # by object, and by value where that is enough
        self._settings: dict[_Key, _Settings] = {}
        for each in operations:
            for call, result in zip(each.calls, each.results, strict=True):
                for key in _made(call):
                    self._changes.setdefault(key, []).append(each)
                if each.is_answered and (what := _set_by(call, result)) is not None:
                    self._settings.setdefault(what, _Settings()).all.append(each)

    def closed(self, kept: Sequence[Operation]) -> list[Operation]:
        """With all that these depend on; of those, only what they change counts, not what they were told."""
        found = {each.key: each for each in kept}
        todo = list(kept)
        while todo:
            each = todo.pop()
            for call, result in zip(each.calls, each.results, strict=True):
                for other in self._needed_by(each, call, result):
                    if other.key not in found:
                        found[other.key] = other.without_result()
                        todo.append(found[other.key])
        return [found[key] for key in sorted(found)]

    def _needed_by(self, reader: Operation, call: Call, result: Result) -> list[Operation]:
        key = _needed(call, result)
        if key is None:
            return []
        changes = self._changes.get(key, [])
        settings = self._settings.get(_scope(call))
        latest = None if settings is None else settings.latest_before(reader)
        if latest is None:
            return changes
        return [latest, *(each for each in changes if not each.precedes(latest))]


@dataclass(slots=True)
class _Settings:
    """Operations that leave something in a register, or one value in a set or out of it, whatever was there before."""

    all: list[Operation] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _latest: list[Operation] = field(default_factory=list)  # of those up to this place: the one that began last

    def latest_before(self, reader: Operation) -> Operation | None:
        """What was done before it began can't be seen behind it: it hides all that it has behind itself."""
        if not self._ends:
            for each in sorted(self.all, key=lambda each: each.returned):
                self._ends.append(each.returned)
                self._latest.append(max([*self._latest[-1:], each], key=lambda every: every.invoked))
        at = bisect_left(self._ends, reader.invoked)
        return self._latest[at - 1] if at else None


def _scope(call: Call) -> _Key:
    """What one setting replaces: all of a register, one value of a set."""
    kind = VERBS[call.verb].kind
    return (call.object, call.arguments[0] if kind == "set" and call.arguments else UNSEEN)


def _set_by(call: Call, result: Result) -> _Key | None:
    is_setting = call.verb in ("write", "put", "delete", "insert", "remove") or (call.verb == "cas" and result is True)
    return _scope(call) if is_setting else None


def _made(call: Call) -> list[_Key]:
    match call.verb:
        case "write" | "put" | "insert" | "remove":
            return [(call.object, call.arguments[0]), (call.object, UNSEEN)]
        case "cas":
            return [(call.object, call.arguments[1]), (call.object, UNSEEN)]
        case "delete":
            return [(call.object, NOTHING), (call.object, UNSEEN)]
        case "add" | "append":
            return [(call.object, UNSEEN)]
        case _:
            return []


def _needed(call: Call, result: Result) -> _Key | None:
    """The changes on which an answer depends."""
    if result is UNSEEN and call.verb != "cas":
        return None
    match VERBS[call.verb].kind, call.verb:
        case "register", "cas":
            # That it was equal depends on that value's writes; that it was not, on all.
            return (call.object, call.arguments[0] if result is True else UNSEEN)
        case "register", _:
            return (call.object, result)
        case "set", "contains" | "insert" | "remove":
            return (call.object, call.arguments[0])
        case _:
            return (call.object, UNSEEN)
