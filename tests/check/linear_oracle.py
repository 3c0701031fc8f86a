"""A second opinion on small histories: tries every order of every choice of doubtful operations. And random histories.

It shares no code with the checker: values are Python's, and objects are a dictionary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from random import Random
from typing import Any

from amcast.trace import Operations
from amcast.trace.operations import OperationRows

_TELLING = ("read", "get", "total", "contains", "members", "items", "cas", "insert", "remove")
KINDS = ("register", "unique-register", "cas", "counter", "set", "whole-set", "list", "unique-list", "kv", "unique-kv")
_STORES = ("kv", "unique-kv")


@dataclass(frozen=True)
class Row:
    client: int
    invoked: int
    returned: int | None
    steps: tuple[tuple[str, str, tuple[Any, ...]], ...]  # verb, object, arguments
    results: tuple[Any, ...]
    is_transaction: bool = False


@dataclass
class Store:
    """What the objects hold, while operations are done one after the other."""

    held: dict[str, Any] = field(default_factory=dict)

    def do(self, verb: str, name: str, arguments: tuple[Any, ...]) -> Any:
        held = self.held
        match verb:
            case "read" | "get":
                return held.get(name)
            case "write" | "put":
                held[name] = arguments[0]
            case "delete":
                held.pop(name, None)
            case "cas":
                fits = held.get(name) == arguments[0]
                if fits:
                    held[name] = arguments[1]
                return fits
            case "add":
                held[name] = held.get(name, 0) + arguments[0]
                return held[name]
            case "total":
                return held.get(name, 0)
            case "append":
                held[name] = [*held.get(name, []), arguments[0]]
            case "items":
                return held.get(name, [])
            case "insert":
                new = arguments[0] not in held.get(name, [])
                held[name] = sorted({*held.get(name, []), arguments[0]})
                return new
            case "remove":
                there = arguments[0] in held.get(name, [])
                held[name] = [each for each in held.get(name, []) if each != arguments[0]]
                return there
            case "contains":
                return arguments[0] in held.get(name, [])
            case "members":
                return held.get(name, [])
        return None


def has_order(rows: list[Row]) -> bool:
    answered = [row for row in rows if row.returned is not None]
    doubtful = [row for row in rows if row.returned is None]
    return any(
        _explains(order)
        for count in range(len(doubtful) + 1)
        for chosen in combinations(doubtful, count)
        for order in permutations([*answered, *chosen])
    )


def _explains(order: tuple[Row, ...]) -> bool:
    latest_begin = -1
    store = Store()
    for row in order:
        if row.returned is not None and row.returned < latest_begin:
            return False
        latest_begin = max(latest_begin, row.invoked)
        for (verb, name, arguments), told in zip(row.steps, row.results, strict=True):
            if store.do(verb, name, arguments) != told and row.returned is not None and told is not Ellipsis:
                return False
    return True


def operations_of(rows: list[Row]) -> Operations:
    made = OperationRows()
    for row in rows:
        objects = sorted({name for _, name, _ in row.steps})
        results = [None if told is Ellipsis else told for told in row.results]
        if row.is_transaction:
            steps = [[verb, name, *arguments] for verb, name, arguments in row.steps]
            what, said, told = "transaction", json.dumps(steps), json.dumps(results)
        else:
            what, said, told = row.steps[0][0], json.dumps(row.steps[0][2]), json.dumps(results[0])
        made.add(row.client, row.invoked, row.returned, what, said, None if row.returned is None else told, objects)
    return made.columns()


# ------------------------------------------------------------------------------------------ random histories


def random_history(random: Random, kind: str, size: int) -> list[Row]:
    """What clients might see of a store that is right; times are few, so that many are equal."""
    fresh = iter(range(100, 1000))
    rows: list[Row] = []
    store = Store()
    moment = 0
    for _ in range(size):
        moment += random.choice((0, 1, 1, 2))
        steps = tuple(_step(random, kind, fresh) for _ in range(random.randint(1, 3) if kind in _STORES else 1))
        results = tuple(_told(verb, store.do(verb, name, arguments), random) for verb, name, arguments in steps)
        invoked, returned = moment - random.randint(0, 3), moment + random.randint(0, 3)
        answered = random.random() < 0.85
        is_transaction = kind in _STORES and (len(steps) > 1 or random.random() < 0.3)
        rows.append(
            Row(random.randint(1, 3), invoked + 5, returned + 5 if answered else None, steps, results, is_transaction)
        )
    return rows


def _told(verb: str, result: Any, random: Random) -> Any:
    """Ellipsis: an answer that tells nothing."""
    return ... if verb in ("cas", "add", "insert", "remove") and random.random() < 0.5 else result


def _step(random: Random, kind: str, fresh: Iterator[int]) -> tuple[str, str, tuple[Any, ...]]:
    value = random.randint(1, 3)
    match kind:
        case "register":
            verb = random.choice(("read", "read", "write"))
        case "unique-register":
            verb, value = random.choice(("read", "read", "write")), next(fresh)
        case "cas":
            verb = random.choice(("read", "write", "cas", "cas", "delete"))
        case "counter":
            verb = random.choice(("add", "add", "total"))
        case "set":
            verb = random.choice(("insert", "remove", "contains"))
        case "whole-set":
            verb = random.choice(("insert", "remove", "contains", "members"))
        case "list":
            verb = random.choice(("append", "append", "items"))
        case "unique-list":
            verb, value = random.choice(("append", "append", "items")), next(fresh)
        case "unique-kv":
            verb, value = random.choice(("get", "get", "put")), next(fresh)
        case _:
            verb, value = random.choice(("get", "get", "put", "put", "delete")), random.choice((value, next(fresh)))
    counts = {"cas": (random.randint(1, 3), value)}
    nothing = ("read", "get", "delete", "total", "items", "members")
    name = random.choice(("x", "y")) if kind in (*_STORES, "unique-register") else "x"
    return verb, name, () if verb in nothing else counts.get(verb, (value,))


def damaged(random: Random, rows: list[Row]) -> list[Row]:
    """The same with one answer that may be wrong, or one write gone."""
    rows = list(rows)
    telling = [at for at, row in enumerate(rows) if row.returned is not None and row.steps[-1][0] in _TELLING]
    at = random.choice(telling or range(len(rows)))
    row = rows[at]
    if random.random() < 0.2:
        return [*rows[:at], *rows[at + 1 :]] or rows
    which = random.choice([at for at, step in enumerate(row.steps) if step[0] in _TELLING] or [0])
    other = random.choice(rows).results
    told = row.results[which]
    match told:
        case bool():
            wrong: Any = not told
        case list() if row.steps[which][0] == "members":
            wrong = random.choice((told[:-1], sorted({*told, 2})))
        case list():
            wrong = random.choice((told[:-1], told[::-1], [*told, 2]))
        case int():
            wrong = told + random.choice((-1, 1))
        case None if row.steps[which][0] in ("read", "get"):
            wrong = random.choice((1, 2, *(each for each in other if isinstance(each, int))))
        case _:
            wrong = told
    results = (*row.results[:which], wrong, *row.results[which + 1 :])
    return [*rows[:at], replace(row, results=results), *rows[at + 1 :]]
