"""Looks for an order that explains all answers, by trying them, as Wing and Gong do it, and remembers what it tried.

A configuration is which operations have been ordered so far, and the state that they lead to. From it, any operation
may come next that no other one still to be ordered precedes. Configurations that were left without success are not
entered again (Lowe). What keeps them few:

- an operation that changes nothing, and whose answer fits, is ordered at once: later it would do no better;
- of operations that do the same and are answered the same, the one that ended first comes first;
- an operation without an answer is tried last, and only if somebody might notice it;
- a value is not replaced while somebody still has to read it, unless it will be written again: so of two writes that
  overlap, the wrong order is noticed at once, and not by a read long after;
- an operation waits for all that must precede it, as far as that follows from what was read (`_demands.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...trace.operations import NOTHING, UNSEEN, VERBS, Call, Result
from ._demands import Demands
from ._history import Operation
from .versions import NEVER

_BETWEEN_LOOKS = 1024  # configurations between two looks at the clock

State = tuple[int, ...]  # numbers of blocks
Block = tuple[Any, ...]  # the states of some objects
_INITIAL: dict[str, Any] = {"register": NOTHING, "counter": 0, "set": frozenset(), "list": ()}
_MISFIT = object()


@dataclass
class Budget:
    """How many configurations may still be entered. `is_over` may end it earlier: drivers have clocks."""

    left: int
    is_over: Callable[[], bool] | None = None

    def spend(self) -> bool:
        """Whether there was something left."""
        self.left -= 1
        if self.is_over is not None and self.left % _BETWEEN_LOOKS == 0 and self.is_over():
            self.left = -1
        return self.left >= 0


def has_order(operations: Sequence[Operation], budget: Budget) -> bool | None:
    """None: the budget was used up before this was known."""
    return Search(operations).run(budget)


def apply(call: Call, result: Result, state: Any) -> Any:
    """The state after a call, or `_MISFIT` if it can't be answered so in this state."""
    match call.verb:
        case "read" | "get" | "total" | "items" | "members":
            return state if result is UNSEEN or result == state else _MISFIT
        case "write" | "put":
            return call.arguments[0]
        case "delete":
            return NOTHING
        case "cas":
            is_equal = state == call.arguments[0]
            if result is not UNSEEN and result != is_equal:
                return _MISFIT
            return call.arguments[1] if is_equal else state
        case "add":
            total = state + call.arguments[0]
            return total if result is UNSEEN or result == total else _MISFIT
        case "append":
            return (*state, call.arguments[0])
        case "contains":
            return state if result is UNSEEN or result == (call.arguments[0] in state) else _MISFIT
        case "insert":
            is_new = call.arguments[0] not in state
            if result is not UNSEEN and result != is_new:
                return _MISFIT
            return state | {call.arguments[0]} if is_new else state
        case "remove":
            is_there = call.arguments[0] in state
            if result is not UNSEEN and result != is_there:
                return _MISFIT
            return state - {call.arguments[0]} if is_there else state
    raise AssertionError(call.verb)


class _States:
    """States of all objects, in blocks. Equal blocks have one number: so a step makes one block, and not all anew."""

    def __init__(self, initial: Sequence[Any]) -> None:
        self._size = max(1, math.isqrt(len(initial)))
        self._blocks: list[Block] = []
        self._number_of: dict[Block, int] = {}
        starts = range(0, len(initial), self._size)
        self.initial: State = tuple(self._number(tuple(initial[at : at + self._size])) for at in starts)

    def _number(self, block: Block) -> int:
        number = self._number_of.setdefault(block, len(self._blocks))
        if number == len(self._blocks):
            self._blocks.append(block)
        return number

    def get(self, state: State, at: int) -> Any:
        return self._blocks[state[at // self._size]][at % self._size]

    def put(self, state: State, at: int, held: Any) -> State:
        where, within = divmod(at, self._size)
        block = self._blocks[state[where]]
        number = self._number((*block[:within], held, *block[within + 1 :]))
        return (*state[:where], number, *state[where + 1 :])


Configuration = tuple[int, int, int, State]


class Search:
    """It can be asked to go on with another budget. `hindrance` is an answer that it did not get past so far."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        names = sorted({call.object for operation in operations for call in operation.calls})
        self._at = {name: index for index, name in enumerate(names)}
        kind = {call.object: VERBS[call.verb].kind for operation in operations for call in operation.calls}
        self._states = _States([_INITIAL[kind[name]] for name in names])
        by_begin = sorted(operations, key=lambda operation: operation.key)
        self._answered = [operation for operation in by_begin if operation.is_answered]
        self._doubtful = _noticed([each for each in by_begin if not each.is_answered], operations)
        self._begin = [operation.invoked for operation in self._answered]
        self._end = [operation.returned for operation in self._answered]
        self._is_read = [operation.changes_nothing for operation in self._answered]
        classes: dict[object, int] = {}
        self._class = [classes.setdefault((each.calls, each.results), len(classes)) for each in self._answered]
        self._doubtful_class = [classes.setdefault(each.calls, len(classes)) for each in self._doubtful]
        self._expected = _Expected(self._answered, self._doubtful)
        self._demands = Demands([*self._answered, *self._doubtful])

        start = self._settle((0, 0, 0, self._states.initial))
        self._tried = {start}
        self._stack = [(start, self._choices(start))]
        self._farthest = start

    @property
    def hindrance(self) -> Operation | None:
        left = self._minimal(self._farthest)
        return self._answered[min(left, key=lambda number: self._end[number])] if left else None

    def run(self, budget: Budget) -> bool | None:
        if self._demands.is_contradictory:
            return False
        tried, stack = self._tried, self._stack
        while stack:
            configuration, choices = stack[-1]
            if configuration[0] == len(self._answered):
                return True
            if _progress(configuration) > _progress(self._farthest):
                self._farthest = configuration
            if not choices:
                stack.pop()
                continue
            following = self._order(configuration, choices.pop())
            if following is None:
                continue
            following = self._settle(following)
            if following in tried:
                continue
            if not budget.spend():
                return None
            tried.add(following)
            stack.append((following, self._choices(following)))
        return False

    def _minimal(self, configuration: Configuration) -> list[int]:
        """Answered operations that none of those still to be ordered precedes in time."""
        at, ordered, _, _ = configuration
        found: list[int] = []
        limit = NEVER
        while at < len(self._begin) and self._begin[at] <= limit:
            if not ordered & 1:
                found.append(at)
                limit = min(limit, self._end[at])
            ordered >>= 1
            at += 1
        return found if not found or self._begin[found[-1]] <= limit else [n for n in found if self._begin[n] <= limit]

    def _is_due(self, choice: int, configuration: Configuration) -> bool:
        """Whether all that must precede it are ordered. The first one that is not is number `first`."""
        first, ordered, taken, _ = configuration
        before = self._demands.before[choice if choice >= 0 else len(self._answered) - 1 - choice]
        answered = before & (1 << len(self._answered)) - 1
        return not answered >> first & ~ordered and not before >> len(self._answered) & ~taken

    def _choices(self, configuration: Configuration) -> list[int]:
        """The best one last. Numbers below 0 are operations without an answer."""
        taken = configuration[2]
        minimal = sorted(self._minimal(configuration), key=lambda number: self._end[number])
        one_of_each: dict[int, int] = {}
        for number in minimal:
            if self._is_due(number, configuration):
                one_of_each.setdefault(self._class[number], number)
        limit = self._end[minimal[0]] if minimal else NEVER
        doubtful: dict[int, int] = {}
        for number, operation in enumerate(self._doubtful):
            if operation.invoked <= limit and not taken >> number & 1 and self._is_due(-1 - number, configuration):
                doubtful.setdefault(self._doubtful_class[number], -1 - number)
        return [*doubtful.values(), *reversed(one_of_each.values())]

    def _order(self, configuration: Configuration, choice: int) -> Configuration | None:
        first, ordered, taken, state = configuration
        operation = self._doubtful[-1 - choice] if choice < 0 else self._answered[choice]
        after = self._after(operation, state)
        if after is None:
            return None
        if choice < 0:
            taken |= 1 << (-1 - choice)
        else:
            ordered |= 1 << (choice - first)
        while ordered & 1:
            ordered >>= 1
            first += 1
        return (
            None if self._strands(operation, state, (first, ordered, taken, after)) else (first, ordered, taken, after)
        )

    def _strands(self, operation: Operation, before: State, configuration: Configuration) -> bool:
        """Whether it leaves somebody behind who can't be explained any more."""
        for name in {call.object for call in operation.calls}:
            at = self._at[name]
            old, new = self._states.get(before, at), self._states.get(configuration[3], at)
            if old is not new and self._expected.misses(name, old, new, configuration):
                return True
        return False

    def _after(self, operation: Operation, state: State) -> State | None:
        for call, result in zip(operation.calls, operation.results, strict=True):
            at = self._at[call.object]
            before = self._states.get(state, at)
            after = apply(call, result, before)
            if after is _MISFIT:
                return None
            if after is not before:
                state = self._states.put(state, at, after)
        return state

    def _settle(self, configuration: Configuration) -> Configuration:
        """Orders what changes nothing and fits."""
        has_moved = True
        while has_moved:
            has_moved = False
            for number in self._minimal(configuration):
                if self._is_read[number]:
                    following = self._order(configuration, number)
                    if following is not None:
                        configuration, has_moved = following, True
        return configuration


def _noticed(doubtful: Sequence[Operation], operations: Sequence[Operation]) -> list[Operation]:
    """Operations without an answer that can make a difference to anybody: a value that nobody saw does not."""
    pairs = [(call, result) for each in operations for call, result in zip(each.calls, each.results, strict=True)]
    seen = {(call.object, result) for call, result in pairs if result is not UNSEEN}
    compared = {call.object for call, _ in pairs if call.verb == "cas"}

    def is_noticed(call: Call) -> bool:
        is_write = call.verb in ("write", "put")
        return not is_write or call.object in compared or (call.object, call.arguments[0]) in seen

    return [each for each in doubtful if not each.changes_nothing and any(map(is_noticed, each.calls))]


def _progress(configuration: Configuration) -> int:
    return configuration[0] + configuration[1].bit_count()


class _Expected:
    """What is still to be read, and to be written, of registers and lists."""

    def __init__(self, answered: Sequence[Operation], doubtful: Sequence[Operation]) -> None:
        self._readers: dict[tuple[str, object], list[int]] = {}
        self._writers: dict[tuple[str, object], list[int]] = {}
        self._doubtful: dict[tuple[str, object], list[int]] = {}
        self._longest: dict[str, tuple[str, ...]] = {}
        for number, operation in enumerate(answered):
            for name, value in _first_reads(operation):
                self._readers.setdefault((name, value), []).append(number)
                if isinstance(value, tuple):
                    self._longest[name] = max(self._longest.get(name, ()), value, key=len)
            for key in _last_writes(operation):
                self._writers.setdefault(key, []).append(number)
        for number, operation in enumerate(doubtful):
            for key in _last_writes(operation):
                self._doubtful.setdefault(key, []).append(number)

    def misses(self, name: str, old: Any, new: Any, configuration: Configuration) -> bool:
        """Whether somebody who is not ordered yet has read what was there before, and what now will not come back."""
        first, ordered, taken, _ = configuration
        if isinstance(new, tuple):
            longest = self._longest.get(name, ())
            if new[len(old) :] != longest[len(old) : len(new)] and len(old) < len(longest):
                return True
        elif isinstance(new, (int, frozenset)):
            return False
        if not _is_any_left(self._readers.get((name, old), ()), first, ordered):
            return False
        may_return = _is_any_left(self._writers.get((name, old), ()), first, ordered)
        return not may_return and all(taken >> number & 1 for number in self._doubtful.get((name, old), ()))


def _is_any_left(numbers: Sequence[int], first: int, ordered: int) -> bool:
    """Whether one of these is not ordered; they ascend."""
    at = bisect_left(numbers, first)
    return any(not ordered >> (number - first) & 1 for number in islice(numbers, at, None))


def _first_reads(operation: Operation) -> Iterator[tuple[str, object]]:
    """What registers and lists held when an operation began."""
    touched: set[str] = set()
    for call, result in zip(operation.calls, operation.results, strict=True):
        if call.object not in touched and call.verb in ("read", "get", "items") and result is not UNSEEN:
            yield call.object, result
        if call.object not in touched and call.verb == "cas" and result is True:
            yield call.object, call.arguments[0]
        touched.add(call.object)


def _last_writes(operation: Operation) -> Iterator[tuple[str, object]]:
    """What an operation leaves in registers, or may leave."""
    for call in operation.calls:
        if call.verb in ("write", "put"):
            yield call.object, call.arguments[0]
        elif call.verb == "cas":
            yield call.object, call.arguments[1]
        elif call.verb == "delete":
            yield call.object, NOTHING
