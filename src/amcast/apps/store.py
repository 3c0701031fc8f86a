"""A store of objects (registers, counters, sets, lists) and transactions on them: what a linearizability check knows.

What a client wants is a list of steps in JSON, each a verb, an object and arguments; all are done at one moment:

    [["get", "alice"], ["put", "alice", 70], ["add", "sum", 5]]

and the answer is a list with a result for each step: [100, null, 5]. These are the arguments and the result of a
`transaction` in the table `operations` of a trace (docs/trace-format.md), where the verbs are explained.

An object is of the kind of the first verb that was used on it. Steps that make no sense (no such verb, a counter used
as a list, wrong arguments, an object that the operation does not name) are answered with {"error": "..."}: then none of
the steps is done.

Messages are operations of GeoPaxos, with these steps as their body: a replica executes those on one object in the order
of all replicas only because the operation names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ..core import GroupId, UsageError, encode
from ..protocols.geopaxos import Operation, decode_operation

Step = Sequence[Any]  # verb, object, arguments
STEPS_MAX = 1_024  # of one transaction
HISTORY_SUFFIX = ".history"  # of files in which clients of a cluster write down what they did
_INTEGER_MAX = 1 << 53  # beyond this, JSON numbers are not exact everywhere


class Meaning(NamedTuple):
    """An operation as the columns of the table `operations` have it."""

    operation: str
    arguments: str
    objects: tuple[str, ...]


class _Verb(NamedTuple):
    kind: str
    arguments: tuple[type, ...]  # object: any JSON value
    act: Callable[
        [Any, Sequence[Any]], tuple[Any, Any]
    ]  # (what the object holds, arguments) -> (what it holds, result)


def _texts(values: Iterable[Any]) -> list[str]:
    """JSON values in one spelling, so that equal ones are found."""
    return [msgspec.json.encode(value, order="deterministic").decode() for value in values]


def _is_equal(one: Any, other: Any) -> bool:
    first, second = _texts((one, other))
    return first == second


def _cas(held: Any, given: Sequence[Any]) -> tuple[Any, Any]:
    return (given[1], True) if _is_equal(held, given[0]) else (held, False)


def _add(held: Any, given: Sequence[Any]) -> tuple[Any, Any]:
    total = (held or 0) + given[0]
    if abs(total) > _INTEGER_MAX:
        raise ValueError(f"the sum {total} is too large")
    return total, total


def _insert(held: Any, given: Sequence[Any]) -> tuple[Any, Any]:
    is_new = _texts(given)[0] not in _texts(held or ())
    return ([*(held or ()), given[0]] if is_new else held), is_new


def _remove(held: Any, given: Sequence[Any]) -> tuple[Any, Any]:
    kept = [each for each in held or () if not _is_equal(each, given[0])]
    return kept, len(kept) < len(held or ())


VERBS: dict[str, _Verb] = {
    "read": _Verb("register", (), lambda held, given: (held, held)),
    "write": _Verb("register", (object,), lambda held, given: (given[0], None)),
    "cas": _Verb("register", (object, object), _cas),
    "get": _Verb("register", (), lambda held, given: (held, held)),
    "put": _Verb("register", (object,), lambda held, given: (given[0], None)),
    "delete": _Verb("register", (), lambda held, given: (None, None)),
    "add": _Verb("counter", (int,), _add),
    "total": _Verb("counter", (), lambda held, given: (held, held or 0)),
    "insert": _Verb("set", (object,), _insert),
    "remove": _Verb("set", (object,), _remove),
    "contains": _Verb("set", (object,), lambda held, given: (held, _texts(given)[0] in _texts(held or ()))),
    "members": _Verb("set", (), lambda held, given: (held, held or [])),
    "append": _Verb("list", (object,), lambda held, given: ([*(held or ()), given[0]], None)),
    "items": _Verb("list", (), lambda held, given: (held, held or [])),
}


_ONLY_READ = frozenset({"read", "get", "total", "contains", "members", "items"})


def operation_of(steps: Sequence[Step], site: GroupId = 0) -> bytes:
    """The payload for these steps, on the objects that they name. With a `site`, the objects move there as well.

    Raises `UsageError` if the steps make no sense.
    """
    try:
        _check(steps)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return encode(Operation(_objects_in(steps), msgspec.json.encode(steps), site))


def meaning_of(payload: bytes) -> Meaning | None:
    """None if the payload is nothing that the store executes."""
    try:
        steps = _steps_of(payload)
    except ValueError:
        return None
    if len(steps) == 1:
        verb, name, *arguments = steps[0]
        return Meaning(verb, _json(arguments), (name,))
    return Meaning("transaction", _json(steps), _objects_in(steps))


def only_reads(payload: bytes) -> bool:
    """Whether it is an operation that changes nothing, in whatever state."""
    try:
        return all(step[0] in _ONLY_READ for step in _steps_of(payload))
    except ValueError:
        return False


def result_in(answer: bytes, meaning: Meaning) -> str | None:
    """The column `result`. None if the operation was refused, and so did nothing."""
    told = msgspec.json.decode(answer)
    if not isinstance(told, list):
        return None
    return _json(told if meaning.operation == "transaction" else told[0])


def _objects_in(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(step[1] for step in steps))


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


class Store:
    """The state of one replica."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, Any]] = {}  # object -> its kind, what it holds

    def execute(self, payload: bytes) -> bytes:
        """All steps, or none."""
        try:
            steps = _steps_of(payload)
            changed: dict[str, tuple[str, Any]] = {}
            results = [self._execute(step, changed) for step in steps]
        except ValueError as error:
            return msgspec.json.encode({"error": str(error)})
        self._held.update(changed)
        return msgspec.json.encode(results)

    def _execute(self, step: Step, changed: dict[str, tuple[str, Any]]) -> Any:
        word, name, *given = step
        verb = VERBS[word]
        kind, held = changed.get(name) or self._held.get(name) or (verb.kind, None)
        if kind != verb.kind:
            raise ValueError(f"'{name}' is a {kind}, and {word} is for a {verb.kind}")
        held, result = verb.act(held, given)
        changed[name] = verb.kind, held
        return result

    def dump(self) -> bytes:
        return msgspec.json.encode(self._held, order="deterministic")

    def load(self, state: bytes) -> None:
        self._held = msgspec.json.decode(state, type=dict[str, tuple[str, Any]])


def _steps_of(payload: bytes) -> list[list[Any]]:
    """Raises ValueError if the payload has no steps that make sense."""
    try:
        operation = decode_operation(payload)
        steps = msgspec.json.decode(operation.body, type=list[list[Any]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a list of steps: {error}") from error
    _check(steps)
    unnamed = set(_objects_in(steps)) - set(operation.objects)
    if unnamed:
        raise ValueError(f"the operation does not name the object '{min(unnamed)[:40]}', which a step uses")
    return steps


def _check(steps: Sequence[Step]) -> None:
    if not 0 < len(steps) <= STEPS_MAX:
        raise ValueError(f"an operation has 1 to {STEPS_MAX} steps, not {len(steps)}")
    for step in steps:
        if len(step) < 2 or not isinstance(step[0], str) or not isinstance(step[1], str):
            raise ValueError('a step is a verb, an object and arguments, as in ["put", "x", 5]')
        word, name, *given = step
        verb = VERBS.get(word)
        if verb is None:
            raise ValueError(f"there is no '{word[:40]}': use one of {', '.join(VERBS)}")
        if len(given) != len(verb.arguments):
            raise ValueError(f"{word} takes {len(verb.arguments)} arguments after '{name[:40]}', not {len(given)}")
        for wanted, value in zip(verb.arguments, given, strict=True):
            if wanted is int and not _is_integer(value):
                raise ValueError(f"{word} takes an integer below 2^53, not {_json(value)[:40]}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _INTEGER_MAX
