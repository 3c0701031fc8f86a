"""What clients did with objects: the rows of the table `operations`, and what an operation may be called with.

An object is a register, a counter, a set or a list; what is done with it says which. A key of a store is a register,
and a transaction does several things with any objects at one moment. Values are JSON, and equal if their JSON is: 1 and
1.0 are one value, "1" is another. In memory a value is its JSON in one spelling (`spelt`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import msgspec
import numpy as np

from ..core import UsageError
from ..parquet.values import MISSING, Int64s, TextLists, Texts
from .schema import NULL

Kind = Literal["register", "counter", "set", "list"]
Tells = Literal["nothing", "outcome", "state"]
Problem = tuple[int, str, str]  # row, column, what is wrong

TRANSACTION = "transaction"
NOTHING = "null"  # what a register holds before anything is written
PROBLEMS_MAX = 20  # that are told; the others are counted
TIME_LIMIT = 1 << 61  # of times, in microseconds from any beginning: checks compute with them


class Unseen(Enum):
    UNSEEN = "the result was not recorded, or does not tell anything"


UNSEEN = Unseen.UNSEEN
Value = str | int
Result = Any  # of one call: UNSEEN, a spelt value, an int, a bool, a frozenset or a tuple of spelt values


@dataclass(frozen=True, slots=True)
class Verb:
    """What can be done with an object of one kind."""

    kind: Kind
    arguments: tuple[Literal["value", "integer"], ...]
    tells: Tells  # a state must be told by every answer, an outcome may be
    result: Literal["anything", "integer", "boolean", "values"]
    meaning: str


VERBS: dict[str, Verb] = {
    "read": Verb("register", (), "state", "anything", "tells what was written last; null if nothing was"),
    "write": Verb("register", ("value",), "nothing", "anything", "replaces it"),
    "cas": Verb(
        "register", ("value", "value"), "outcome", "boolean", "replaces the first value by the second; else false"
    ),
    "get": Verb("register", (), "state", "anything", "as `read`, of a key"),
    "put": Verb("register", ("value",), "nothing", "anything", "as `write`, of a key"),
    "delete": Verb("register", (), "nothing", "anything", "as `write` of null"),
    "add": Verb("counter", ("integer",), "outcome", "integer", "adds it; may tell the new total"),
    "total": Verb("counter", (), "state", "integer", "tells the sum of all that was added"),
    "insert": Verb("set", ("value",), "outcome", "boolean", "puts it in; may tell whether it was not there yet"),
    "remove": Verb("set", ("value",), "outcome", "boolean", "takes it out; may tell whether it was there"),
    "contains": Verb("set", ("value",), "state", "boolean", "tells whether it is there"),
    "members": Verb("set", (), "state", "values", "tells all that are there, in any order"),
    "append": Verb("list", ("value",), "nothing", "anything", "puts it at the end"),
    "items": Verb("list", (), "state", "values", "tells all, from the first to the last"),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One thing that an operation does with one object."""

    verb: str
    object: str
    arguments: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Operations:
    client: Int64s
    invoked_us: Int64s
    returned_us: Int64s  # NULL: there was no answer
    operation: Texts
    arguments: Texts
    result: Texts  # MISSING: it was not recorded
    objects: TextLists

    def __len__(self) -> int:
        return len(self.client)

    def take(self, rows: Int64s) -> Operations:
        sizes = np.diff(self.objects.start)[rows]
        start = np.concatenate(([0], np.cumsum(sizes)))
        entries = np.repeat(self.objects.start[:-1][rows] - start[:-1], sizes) + np.arange(start[-1])
        return Operations(
            self.client[rows],
            self.invoked_us[rows],
            self.returned_us[rows],
            Texts(self.operation.codes[rows], self.operation.words),
            Texts(self.arguments.codes[rows], self.arguments.words),
            Texts(self.result.codes[rows], self.result.words),
            TextLists(start, self.objects.codes[entries], self.objects.words),
        )

    def objects_of(self, row: int) -> list[str]:
        start, stop = self.objects.start[row : row + 2].tolist()
        return [self.objects.words[code] for code in self.objects.codes[start:stop].tolist()]


def _no_texts() -> Texts:
    return Texts(np.empty(0, np.int32), ())


_NONE = np.empty(0, np.int64)
NO_OPERATIONS = Operations(
    _NONE,
    _NONE,
    _NONE,
    _no_texts(),
    _no_texts(),
    _no_texts(),
    TextLists(np.zeros(1, np.int64), _NONE.astype(np.int32), ()),
)


@dataclass(slots=True)
class OperationRows:
    """Operations while they are recorded, row by row."""

    numbers: list[tuple[int, int, int]] = field(default_factory=list)
    codes: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: {} for name in ("operation", "arguments", "result", "objects")}
    )
    texts: list[tuple[int, int, int]] = field(default_factory=list)
    objects: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])

    def add(
        self,
        client: int,
        invoked_us: int,
        returned_us: int | None,
        operation: str,
        arguments: str,
        result: str | None,
        objects: Iterable[str],
    ) -> int:
        """Returns the number of the row, for `answer`."""
        self.numbers.append((client, invoked_us, NULL if returned_us is None else returned_us))
        told = MISSING if result is None else self._code("result", result)
        self.texts.append((self._code("operation", operation), self._code("arguments", arguments), told))
        self.objects.extend(self._code("objects", name) for name in objects)
        self.start.append(len(self.objects))
        return len(self.numbers) - 1

    def answer(self, row: int, returned_us: int, result: str | None) -> None:
        """An operation that was recorded when it was called has its answer now."""
        client, invoked_us, _ = self.numbers[row]
        operation, arguments, _ = self.texts[row]
        self.numbers[row] = client, invoked_us, returned_us
        self.texts[row] = operation, arguments, MISSING if result is None else self._code("result", result)

    def _code(self, column: str, word: str) -> int:
        return self.codes[column].setdefault(word, len(self.codes[column]))

    def columns(self) -> Operations:
        numbers = np.array(self.numbers, np.int64).reshape(-1, 3)
        codes = np.array(self.texts, np.int32).reshape(-1, 3)
        words = {name: tuple(found) for name, found in self.codes.items()}
        client, invoked_us, returned_us = (numbers[:, at].copy() for at in range(3))
        operation, arguments, result = (
            Texts(codes[:, at].copy(), words[name]) for at, name in enumerate(("operation", "arguments", "result"))
        )
        objects = TextLists(np.array(self.start, np.int64), np.array(self.objects, np.int32), words["objects"])
        return Operations(client, invoked_us, returned_us, operation, arguments, result, objects)


# -------------------------------------------------------------------------------------------------- values


def spelt(value: Any) -> str:
    """A JSON value in its one spelling."""
    return msgspec.json.encode(_plain(value), order="deterministic").decode()


def _plain(value: Any) -> Any:
    """1.0 is 1."""
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case _:
            return value


def decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{_short(text)} is not JSON") from error


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _argument(form: str, value: Any) -> Value:
    if form == "value":
        return spelt(value)
    plain = _plain(value)
    if not isinstance(plain, int) or isinstance(plain, bool):
        raise ValueError(f"{_short(spelt(value))} is not an integer")
    return plain


def arguments_of(verb: str, values: Sequence[Any]) -> tuple[Value, ...]:
    forms = VERBS[verb].arguments
    if len(values) != len(forms):
        raise ValueError(f"{verb} takes {_count(len(forms), 'argument')}, and {len(values)} are given")
    return tuple(_argument(form, value) for form, value in zip(forms, values, strict=True))


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def result_of(verb: str, value: Any) -> Result:
    """What the answer tells. Raises ValueError."""
    known = VERBS[verb]
    if known.tells == "nothing" or (value is None and known.tells == "outcome"):
        return UNSEEN
    match known.result:
        case "anything":
            return spelt(value)
        case "integer":
            return _argument("integer", value)
        case "boolean":
            if not isinstance(value, bool):
                raise ValueError(f"{verb} answers true or false, not {_short(spelt(value))}")
            return value
        case "values":
            if not isinstance(value, list):
                raise ValueError(f"{verb} answers a list, not {_short(spelt(value))}")
            values = [spelt(each) for each in value]
            return frozenset(values) if known.kind == "set" else tuple(values)


def parse_calls(operation: str, arguments: str, objects: Sequence[str]) -> tuple[Call, ...]:
    """What an operation does. Raises ValueError."""
    values = decoded(arguments)
    if not isinstance(values, list):
        raise ValueError(f"{_short(arguments)} is not a list, as in [5]")
    if operation != TRANSACTION:
        return (Call(operation, objects[0] if objects else "", arguments_of(operation, values)),)
    calls = tuple(_call(step) for step in values)
    if not calls:
        raise ValueError("a transaction does at least one thing")
    if {call.object for call in calls} != set(objects):
        named = ", ".join(sorted({call.object for call in calls}))
        raise ValueError(f"it is about {named[:200]}, and the column objects says something else")
    return calls


def _call(step: Any) -> Call:
    if not isinstance(step, list) or len(step) < 2 or not all(isinstance(part, str) for part in step[:2]):
        raise ValueError(f'{_short(spelt(step))} is not a step, as in ["write", "x", 5]')
    verb, name, *values = step
    if verb not in VERBS:
        raise ValueError(f"{_short(verb)} is none of {', '.join(VERBS)}")
    return Call(verb, name, arguments_of(verb, values))


def parse_results(calls: Sequence[Call], operation: str, result: str | None) -> tuple[Result, ...]:
    """What the answer tells of each call. Raises ValueError."""
    if result is None:
        return (UNSEEN,) * len(calls)
    value = decoded(result)
    if operation != TRANSACTION:
        return (result_of(calls[0].verb, value),)
    if not isinstance(value, list) or len(value) != len(calls):
        raise ValueError(f"a transaction of {_count(len(calls), 'step')} answers a list of as many results")
    return tuple(result_of(call.verb, each) for call, each in zip(calls, value, strict=True))


# ---------------------------------------------------------------------------------------------- validation


def check_operations(operations: Operations, where: str) -> None:
    """Refuses rows that mean nothing, all at once."""
    found = operation_problems(operations)
    if found:
        told = [f"row {row}, column {column}: {what}" for row, column, what in found[:PROBLEMS_MAX]]
        more = [f"and {len(found) - PROBLEMS_MAX:,} more"] if len(found) > PROBLEMS_MAX else []
        raise UsageError(f"{where}: {'; '.join([*told, *more])}")


def operation_problems(operations: Operations) -> list[Problem]:
    """All that is wrong, by row. Rows count from 0."""
    found = [*_wrong_times(operations), *_wrong_objects(operations), *_wrong_words(operations)]
    if not found:
        found += _wrong_kinds(operations)
    return sorted(found)


def _wrong_times(operations: Operations) -> Iterator[Problem]:
    for name in ("invoked_us", "returned_us"):
        times: Int64s = getattr(operations, name)
        strange = (times != NULL) & ((times >= TIME_LIMIT) | (times <= -TIME_LIMIT))
        for row in np.flatnonzero(strange).tolist():
            yield row, name, f"{times[row]} is too far from 0 for a time in microseconds"
    back = (operations.returned_us != NULL) & (operations.returned_us < operations.invoked_us)
    for row in np.flatnonzero(back).tolist():
        what = f"{operations.returned_us[row]} is before it was invoked, at {operations.invoked_us[row]}"
        yield row, "returned_us", what


def _wrong_objects(operations: Operations) -> Iterator[Problem]:
    sizes = np.diff(operations.objects.start)
    for row in np.flatnonzero(sizes == 0).tolist():
        yield row, "objects", "it names no object"
    for row in np.flatnonzero(sizes > 1).tolist():
        names = operations.objects_of(row)
        if len(set(names)) < len(names):
            yield row, "objects", "it names an object twice"
    is_single = np.array([word in VERBS for word in operations.operation.words], np.bool_)
    if len(operations):
        for row in np.flatnonzero((sizes > 1) & is_single[operations.operation.codes]).tolist():
            yield row, "objects", f"it names {sizes[row]} objects: only a transaction has several"


def _wrong_words(operations: Operations) -> Iterator[Problem]:
    names = operations.operation.words
    unknown = [code for code, name in enumerate(names) if name != TRANSACTION and name not in VERBS]
    is_unknown = np.isin(operations.operation.codes, unknown)
    for row in np.flatnonzero(is_unknown).tolist():
        what = f"{_short(names[operations.operation.codes[row]])} is none of {', '.join([*VERBS, TRANSACTION])}"
        yield row, "operation", what
    transaction = names.index(TRANSACTION) if TRANSACTION in names else -1
    is_single = (operations.operation.codes != transaction) & ~is_unknown
    yield from _wrong_pairs(operations, "arguments", is_single, lambda name, text: parse_calls(name, text, ("",)))
    answered = is_single & (operations.returned_us != NULL) & (operations.result.codes != MISSING)
    yield from _wrong_pairs(operations, "result", answered, lambda name, text: result_of(name, decoded(text)))
    for row in np.flatnonzero(operations.operation.codes == transaction).tolist():
        yield from _wrong_transaction(operations, row)


def _wrong_pairs(
    operations: Operations, column: str, wanted: np.ndarray[Any, np.dtype[np.bool_]], parse: Callable[[str, str], Any]
) -> Iterator[Problem]:
    """Each text is looked at once for each operation that has it."""
    texts: Texts = getattr(operations, column)
    rows = np.flatnonzero(wanted)
    pairs = operations.operation.codes[rows].astype(np.int64) << 32 | texts.codes[rows]
    distinct, inverse = np.unique(pairs, return_inverse=True)
    wrong: dict[int, str] = {}
    for number, pair in enumerate(distinct.tolist()):
        try:
            parse(operations.operation.words[pair >> 32], texts.words[pair & 0xFFFFFFFF])
        except ValueError as error:
            wrong[number] = str(error)
    if wrong:
        for at in np.flatnonzero(np.isin(inverse, list(wrong))).tolist():
            yield int(rows[at]), column, wrong[int(inverse[at])]


def _wrong_transaction(operations: Operations, row: int) -> Iterator[Problem]:
    column = "arguments"
    try:
        calls = calls_of(operations, row)
        column = "result"
        results_of(operations, row, calls)
    except ValueError as error:
        yield row, column, str(error)


def calls_of(operations: Operations, row: int) -> tuple[Call, ...]:
    name = operations.operation.words[operations.operation.codes[row]]
    return parse_calls(name, operations.arguments.words[operations.arguments.codes[row]], operations.objects_of(row))


def results_of(operations: Operations, row: int, calls: Sequence[Call]) -> tuple[Result, ...]:
    """Of an operation without an answer nothing is told."""
    code = operations.result.codes[row]
    told = operations.returned_us[row] != NULL and code != MISSING
    name = operations.operation.words[operations.operation.codes[row]]
    return parse_results(calls, name, operations.result.words[code] if told else None)


def _wrong_kinds(operations: Operations) -> Iterator[Problem]:
    """An object is of one kind."""
    kinds: tuple[Kind, ...] = ("register", "counter", "set", "list")
    of_word = np.array(
        [kinds.index(VERBS[name].kind) if name in VERBS else -1 for name in operations.operation.words], np.int8
    )
    kind = of_word[operations.operation.codes] if len(operations) else np.empty(0, np.int8)
    rows = np.flatnonzero(kind >= 0)
    entries = [(operations.objects.codes[operations.objects.start[:-1][rows]], kind[rows], rows)]
    for row in np.flatnonzero(kind < 0).tolist():
        codes = dict(
            zip(
                operations.objects_of(row),
                operations.objects.codes[slice(*operations.objects.start[row : row + 2])].tolist(),
                strict=True,
            )
        )
        calls = calls_of(operations, row)
        here = [(codes[call.object], kinds.index(VERBS[call.verb].kind)) for call in calls]
        entries.append(
            (np.array([code for code, _ in here]), np.array([of for _, of in here]), np.full(len(here), row))
        )
    code, of, row_of = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    first = np.full(len(operations.objects.words), -1)
    by_row = np.argsort(row_of, kind="stable")[::-1]
    first[code[by_row]] = of[by_row]  # the earliest row wins: it is written last
    for at in np.flatnonzero(first[code] != of).tolist():
        name = operations.objects.words[int(code[at])]
        what = f"{_short(name)} is used as a {kinds[int(of[at])]}, and before as a {kinds[int(first[code[at]])]}"
        yield int(row_of[at]), "operation", what
