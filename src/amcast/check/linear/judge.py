"""The verdict on what clients did: what is proved at once is done with, the rest is looked at part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from ...trace import NULL, Operations
from ...trace.names import Names
from ...trace.operations import NOTHING, VERBS, decoded, spelt
from ...trace.run import Int32s, Int64s
from ..report import VIOLATIONS_PER_PROPERTY, OperationSeen, Verdict
from . import _counters, _lists, _registers
from ._history import Operation, Part, join, parts_of
from ._search import Budget, Search
from ._smallest import refuted, smallest
from ._words import Explanation, explain
from .versions import NEVER, Bools, suspects

__all__ = ["Failure", "Judged", "count_answers", "join", "judge", "spelt_argument", "spelt_result", "together"]

CONFIGURATIONS_MAX = 500_000  # that are tried for one part before it is left undecided
_SOON = 10_000  # configurations before it is asked what hinders the search
_UNDECIDED_NAMED = 5

READS, WRITES = _registers.READS, _registers.WRITES


class Failure(msgspec.Struct, frozen=True):
    name: tuple[str, str]  # of the part
    explanation: str
    operations: list[OperationSeen]


class Judged(msgspec.Struct, frozen=True):
    """What was found out about some objects; that of others can be put to it."""

    rows: int = 0
    telling: int = 0  # answers that tell something about a state
    silent: int = 0  # answers that should, and of which the result was not recorded
    failed: int = 0  # parts without an order
    failures: list[Failure] = []  # the first few of them, by name
    undecided: list[tuple[str, str]] = []  # the names of the first few parts for which the budget was not enough


def together(parts: Iterable[Judged]) -> Judged:
    all_ = list(parts)
    failures = sorted((failure for each in all_ for failure in each.failures), key=lambda failure: failure.name)
    undecided = sorted(name for each in all_ for name in each.undecided)
    return Judged(
        rows=sum(each.rows for each in all_),
        telling=sum(each.telling for each in all_),
        silent=sum(each.silent for each in all_),
        failed=sum(each.failed for each in all_),
        failures=failures[:VIOLATIONS_PER_PROPERTY],
        undecided=undecided[:_UNDECIDED_NAMED],
    )


def judge(operations: Operations, names: Names, is_over: Callable[[], bool] | None = None) -> Judged:
    """`is_over` may end the search for orders before its own budget does."""
    if not len(operations):
        return Judged()
    verbs = _Verbs(operations)
    plain = verbs.plain_registers()
    doubted = suspects(*plain.columns) if len(plain.rows) else np.empty(0, np.int64)
    is_doubted = np.zeros(len(operations.objects.words), np.bool_)
    is_doubted[doubted] = True
    is_doubted |= verbs.is_hard
    rows = np.flatnonzero(is_doubted[operations.objects.codes[operations.objects.start[:-1]]])
    found: list[Judged] = []
    failed = 0
    for part in parts_of(operations, rows):
        verdict, proof = _decide(part, is_over)
        if verdict == "fail":
            failed += 1
            if failed <= VIOLATIONS_PER_PROPERTY:
                told = _explained(part, proof, names)
                found.append(Judged(failed=1, failures=[Failure(part.name, told.words, told.operations)]))
            else:
                found.append(Judged(failed=1))
        elif verdict == "unknown":
            found.append(Judged(undecided=[part.name]))
    telling, silent = verbs.answers()
    return together([Judged(len(operations), telling, silent), *found])


@dataclass(frozen=True, slots=True)
class _Proof:
    """Operations that have no order, and because of which the part has none."""

    operations: list[Operation]
    is_small: bool


def _explained(part: Part, proof: _Proof, names: Names) -> Explanation:
    if proof.is_small:
        return explain(proof.operations, names)
    return explain(smallest(proof.operations), names, {each.nth: each for each in part.operations})


def _decide(part: Part, is_over: Callable[[], bool] | None) -> tuple[Verdict, _Proof]:
    """The proof is one if the verdict is fail."""
    whole = _Proof(part.operations, False)
    for way in (_registers, _lists):
        if way.are_distinct(part.operations):
            found = way.contradiction(part.operations)
            return ("pass", whole) if found is None else ("fail", _Proof(found, True))
    found = _counters.contradiction(part.operations)
    if found is not None:
        return "fail", _Proof(found, True)
    search = Search(part.operations)
    # A history that has an order shows it after about as many steps as it has operations.
    soon = Budget(min(CONFIGURATIONS_MAX, _SOON + 2 * len(part.operations)), is_over)
    has = search.run(soon)
    if has is None and search.hindrance is not None:
        found = refuted(part.operations, search.hindrance)
        if found is not None:
            return "fail", _Proof(found, False)
        has = search.run(Budget(CONFIGURATIONS_MAX, is_over))
    return ("unknown" if has is None else "pass" if has else "fail"), whole


@dataclass(frozen=True, slots=True)
class _Plain:
    """Reads and writes of registers with which nothing else is done."""

    rows: Int64s
    columns: tuple[Int64s, Int64s, Bools, Bools, Int64s, Int64s]  # as `suspects` takes them


class _Verbs:
    """What each row does, as numbers."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        words = operations.operation.words
        codes = operations.operation.codes
        self._is_read, self._is_write = (
            np.array([word in wanted for word in words], np.bool_)[codes] for wanted in (READS, WRITES)
        )
        self._is_answered: Bools = operations.returned_us != NULL
        self._has_result: Bools = operations.result.codes >= 0

    @property
    def is_hard(self) -> Bools:
        """The objects with which more is done than to read and write."""
        hard = np.zeros(len(self._operations.objects.words), np.bool_)
        rows = ~(self._is_read | self._is_write)
        hard[self._operations.objects.codes[np.repeat(rows, np.diff(self._operations.objects.start))]] = True
        return hard

    def answers(self) -> tuple[int, int]:
        texts = self._operations.operation
        return count_answers(texts.words, texts.codes, self._is_answered, self._has_result)

    def plain_registers(self) -> _Plain:
        operations = self._operations
        objects = operations.objects.codes[operations.objects.start[:-1]].astype(np.int64)
        reads = self._is_read & self._is_answered & self._has_result
        rows = np.flatnonzero((self._is_write | reads) & ~self.is_hard[objects])
        value, nothing = self._values(rows)
        returned = operations.returned_us[rows]
        columns = (
            objects[rows],
            objects[rows] << 32 | value,
            self._is_write[rows],
            value == nothing,
            operations.invoked_us[rows],
            np.where(returned == NULL, NEVER, returned),
        )
        return _Plain(rows, columns)

    def _values(self, rows: Int64s) -> tuple[Int64s, int]:
        """A number for each value that is written or read, and that of what a register holds at first."""
        number_of: dict[str, int] = {NOTHING: 0}
        value = np.zeros(len(rows), np.int64)
        is_write = self._is_write[rows]
        for texts, mine, read in (
            (self._operations.arguments, np.flatnonzero(is_write), spelt_argument),
            (self._operations.result, np.flatnonzero(~is_write), spelt_result),
        ):
            used, inverse = np.unique(texts.codes[rows[mine]], return_inverse=True)
            numbers = [number_of.setdefault(read(texts.words[code]), len(number_of)) for code in used.tolist()]
            value[mine] = np.array(numbers, np.int64)[inverse] if len(numbers) else 0
        return value, 0


def spelt_argument(text: str) -> str:
    """The value that a write writes, from its arguments."""
    return spelt(decoded(text)[0])


def spelt_result(text: str) -> str:
    return spelt(decoded(text))


def count_answers(words: Sequence[str], codes: Int32s, is_answered: Bools, has_result: Bools) -> tuple[int, int]:
    """How many answers tell something, and how many should and don't. `words`: which operations there are."""
    tells = [VERBS[word].tells if word in VERBS else "state" for word in words]
    of_state, of_any = (np.array([each in wanted for each in tells]) for wanted in (("state",), ("state", "outcome")))
    telling = np.count_nonzero(is_answered & has_result & of_any[codes])
    return int(telling), int(np.count_nonzero(is_answered & ~has_result & of_state[codes]))
