"""Objects of an application on GeoPaxos: each operation sees and changes those that it names, and no others.

GeoPaxos orders operations that name a common object, and no others. An operation that touches an object without naming
it would be executed here before and there after another one, and replicas would differ. So an application gets a view
of the objects that the operation names. What it asks for besides them is refused, in all replicas alike.

    class Counters(amcast.StateMachine):
        def __init__(self, group):
            self.objects = ObjectStore()

        def apply(self, message):
            return self.objects.apply(message.payload, self.execute)

        def execute(self, request, view):
            view[request["name"]] = view.get(request["name"], 0) + 1
            return view[request["name"]]

    payload = operation(["apples"], name="apples")

Requests, answers and the values of objects are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from ..core import encode
from ..protocols.geopaxos import Operation, decode_operation

Request = dict[str, Any]


class RefusedError(Exception):
    """The application does not do it: nothing changes, and the client hears why."""


def operation(objects: Iterable[str], **request: Any) -> bytes:
    """The payload of a message that asks for this, on these objects."""
    return encode(Operation(tuple(dict.fromkeys(objects)), json.dumps(request).encode()))


def answer_of(result: bytes | None) -> Any:
    """What the application answered. Raises `RefusedError` if it refused."""
    told = json.loads(result or b"{}")
    if "refused" in told:
        raise RefusedError(told["refused"])
    return told.get("answer")


class View(MutableMapping[str, Any]):
    """The objects that one operation names. What is written stays here until the operation has succeeded."""

    def __init__(self, values: Mapping[str, str], names: Iterable[str]) -> None:
        self._values = values
        self._names = frozenset(names)
        self.written: dict[str, str | None] = {}  # None: removed

    def _named(self, name: str) -> str:
        if name not in self._names:
            raise RefusedError(f"the operation touches {name} and does not name it")
        return name

    def _find(self, name: str) -> str | None:
        self._named(name)
        return self.written[name] if name in self.written else self._values.get(name)

    def __getitem__(self, name: str) -> Any:
        found = self._find(name)
        if found is None:
            raise KeyError(name)
        return json.loads(found)  # a copy: only what is assigned changes anything

    def __setitem__(self, name: str, value: Any) -> None:
        self.written[self._named(name)] = json.dumps(value, sort_keys=True)

    def __delitem__(self, name: str) -> None:
        if self._find(name) is None:
            raise KeyError(name)
        self.written[name] = None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name in sorted(self._names) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ObjectStore:
    """All objects of a replica, by their names."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}  # as JSON

    def apply(self, payload: bytes, execute: Callable[[Request, View], Any]) -> bytes:
        """Executes an operation. All of it is done, or if `execute` refuses, nothing."""
        asked = decode_operation(payload)
        if asked.site:
            return json.dumps({"answer": "moved"}).encode()  # where an object is ordered is not its state
        view = View(self._values, asked.objects)
        try:
            answer = execute(_parsed(asked.body), view)
        except RefusedError as error:
            return json.dumps({"refused": str(error)}).encode()
        for name, value in view.written.items():
            if value is None:
                self._values.pop(name, None)
            else:
                self._values[name] = value
        return json.dumps({"answer": answer}, sort_keys=True).encode()

    def all(self) -> dict[str, Any]:
        """A copy of the objects, for queries and for tests."""
        return {name: json.loads(value) for name, value in sorted(self._values.items())}

    def read(self, name: str) -> Any:
        """None if there is no such object."""
        return json.loads(self._values.get(name, "null"))

    def snapshot(self) -> bytes:
        return json.dumps(self._values, sort_keys=True).encode()

    def restore(self, state: bytes) -> None:
        self._values = json.loads(state)


def _parsed(body: bytes) -> Request:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError("the request is no JSON") from None
    if not isinstance(request, dict):
        raise RefusedError("a request is an object, as JSON calls it")
    return request
