"""Why a few operations have no order, in words that people can follow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...trace.names import Names
from ...trace.operations import NOTHING, UNSEEN, Call, Result
from ..report import OperationSeen, listing
from ._history import Operation
from .versions import NEVER

_TOLD_MAX = 6
_SHOWN_MAX = 100
_COMPARED_MAX = 500  # operations that are compared with each other to find words for them
_VALUE_MAX = 40

_Explained = tuple[str, list[Operation]]  # why, and whose answers can't be explained


@dataclass(frozen=True, slots=True)
class Explanation:
    words: str
    operations: list[OperationSeen]


def explain(operations: Sequence[Operation], names: Names, whole: Mapping[int, Operation] | None = None) -> Explanation:
    """`whole` has the operations as they were, by `nth`, if results or answers were left out of these."""
    told = _Teller(operations, names, whole or {})
    words, bad = next(told.reasons())
    keys = {each.key for each in bad}
    latest = sorted(operations, key=lambda each: (each.key in keys, each.key))[-_SHOWN_MAX:]
    return Explanation(
        words, [told.shown(each, each.key in keys) for each in sorted(latest, key=lambda each: each.key)]
    )


def when(t_us: int) -> str:
    return f"{t_us / 1000:.3f} ms"


def _value(text: object) -> str:
    shown = str(text)
    return shown if len(shown) <= _VALUE_MAX else shown[: _VALUE_MAX - 3] + "..."


def _all(values: object, marks: str) -> str:
    assert isinstance(values, (frozenset, tuple))
    ordered = sorted(values) if isinstance(values, frozenset) else values
    return marks[0] + _value(", ".join(ordered)) + marks[1]


def label(call: Call, result: Result) -> str:
    """What was done, as short as a diagram needs it: `read x=5`."""
    name, values = call.object, [_value(each) for each in call.arguments]
    answer = "?" if result is UNSEEN else result
    match call.verb:
        case "read" | "get" | "total":
            return f"{call.verb} {name}={_value(answer)}"
        case "write" | "put":
            return f"{call.verb} {name}={values[0]}"
        case "delete":
            return f"delete {name}"
        case "cas":
            return f"cas {name} {values[0]} to {values[1]}: {str(answer).lower()}"
        case "members":
            return f"members {name}={'?' if result is UNSEEN else _all(result, '{}')}"
        case "items":
            return f"items {name}={'?' if result is UNSEEN else _all(result, '[]')}"
        case _:
            told = "" if result is UNSEEN else f": {str(answer).lower()}"
            return f"{call.verb} {name} {values[0]}{told}"


def _label(operation: Operation) -> str:
    labels = [label(call, result) for call, result in zip(operation.calls, operation.results, strict=True)]
    return labels[0] if len(labels) == 1 else "{" + "; ".join(labels) + "}"


def _did(call: Call, result: Result) -> str:
    """The same in a sentence: `read x=5`, `wrote x=7`."""
    name, values = call.object, [_value(each) for each in call.arguments]
    match call.verb:
        case "read" | "get" if result == NOTHING:
            return f"read nothing from {name}"
        case "read" | "get":
            return f"read {name}" if result is UNSEEN else f"read {name}={_value(result)}"
        case "write" | "put":
            return f"wrote {name}={values[0]}"
        case "total":
            return f"found {name} at {result}"
        case "contains":
            return f"found {'' if result else 'no '}{values[0]} in {name}"
        case "members" | "items" if result is not UNSEEN:
            return f"read {label(call, result).partition(' ')[2]}"
        case _:
            return f"did {label(call, result)}"


class _Teller:
    def __init__(self, operations: Sequence[Operation], names: Names, whole: Mapping[int, Operation]) -> None:
        self._operations = operations
        self._whole = whole
        self._names = names

    def _who(self, operation: Operation) -> str:
        return self._names.process(operation.client)

    def shown(self, operation: Operation, is_bad: bool) -> OperationSeen:
        operation = self._whole.get(operation.nth, operation)
        returned = operation.returned if operation.is_answered else None
        return OperationSeen(
            operation.client, self._who(operation), operation.invoked, returned, _label(operation), is_bad
        )

    def _told(self, operation: Operation) -> str:
        """`c3 read x=5 (from 1.000 ms to 2.000 ms)`."""
        operation = self._whole.get(operation.nth, operation)
        steps = zip(operation.calls, operation.results, strict=True)
        did = listing([_did(call, result) for call, result in steps])
        until = f"to {when(operation.returned)}" if operation.is_answered else "on, without an answer"
        return f"{self._who(operation)} {did} (from {when(operation.invoked)} {until})"

    def reasons(self) -> Iterator[_Explained]:
        """The best one first; the last one is always true."""
        if len(self._operations) <= _COMPARED_MAX:
            yield from self._never_made()
            yield from self._overtaken()
            yield from self._came_back()
            yield from self._lost_update()
            yield from self._torn()
            yield from self._membership()
            yield from self._lists()
        yield from self._totals()
        last = max((each for each in self._operations if each.tells), key=lambda each: each.returned)
        steps = [self._told(each) for each in self._operations[:_TOLD_MAX]]
        more = len(self._operations) - len(steps)
        words = "; ".join([*steps, *([f"and {more} more"] if more > 0 else [])])
        yield f"no order of these {len(self._operations)} operations explains their answers: {words}", [last]

    # ------------------------------------------------------------------------------------------ registers

    def _reads(self) -> Iterator[tuple[Operation, Call, Result]]:
        """What was read from registers, but for what a transaction read back of its own."""
        for each in self._operations:
            written = set()
            for call, result in zip(each.calls, each.results, strict=True):
                if call.verb in ("read", "get") and result is not UNSEEN and call.object not in written:
                    yield each, call, result
                if call.verb == "cas" and result is True:
                    yield each, call, call.arguments[0]
                if call.verb in ("write", "put", "delete", "cas"):
                    written.add(call.object)

    def _writes(
        self, name: str, value: Result | None = None, among: Collection[Operation] | None = None
    ) -> list[tuple[Operation, Result]]:
        """Of the last value that an operation leaves in a register; of one value, or of all."""
        found = []
        for each in self._operations if among is None else among:
            left = [
                _left(call, result)
                for call, result in zip(each.calls, each.results, strict=True)
                if call.object == name
            ]
            values = [made for made in left if made is not None]
            if values and (value is None or values[-1] == value):
                found.append((each, values[-1]))
        return found

    def _never_made(self) -> Iterator[_Explained]:
        everything = self._whole.values() or self._operations  # others may have been left out
        for reader, call, value in self._reads():
            makers = self._writes(call.object, value, everything)
            if makers and all(reader.precedes(maker) for maker, _ in makers):
                began = min(maker.invoked for maker, _ in makers)
                yield f"{self._told(reader)}, before anybody began to write that, at {when(began)}", [reader]
            if makers or value == NOTHING:
                continue
            passing = [each for each in everything if _passes(each, call.object, value)]
            if passing:
                what = f"a value that {self._who(passing[0])} replaced in the same transaction"
                yield f"{self._told(reader)}, {what}: it was never there for others to see", [reader]
            else:
                yield f"{self._told(reader)}, although nobody wrote {_value(value)} to {call.object}", [reader]

    def _overtaken(self) -> Iterator[_Explained]:
        """A value was read although another had replaced it, and that write was acknowledged before the read began."""
        for reader, call, value in reversed(list(self._reads())):
            makers = [maker for maker, _ in self._writes(call.object, value)]
            for writer, newer in self._writes(call.object):
                if newer == value or not writer.precedes(reader):
                    continue
                ordered = all(maker.precedes(writer) for maker in makers)
                shown = None if ordered or len(makers) != 1 else self._seen_before(call.object, value, newer)
                if not ordered and shown is None:
                    continue
                by = f"{self._who(writer)}, from {when(writer.invoked)} to {when(writer.returned)}"
                text = f"{call.object}={_value(newer)}" if newer != NOTHING else f"{call.object} deleted"
                was = f"although {text} was written and acknowledged before ({by})"
                yield f"{self._told(reader)}, {was}{shown or ''}", [reader]

    def _came_back(self) -> Iterator[_Explained]:
        """A value was read after another had replaced it, as others had seen."""
        for reader, call, value in reversed(list(self._reads())):
            if len(self._writes(call.object, value)) > 1:
                continue
            for other, second, newer in self._reads():
                if second.object != call.object or newer == value or not other.precedes(reader):
                    continue
                shown = self._seen_before(call.object, value, newer)
                if shown is not None and len(self._writes(call.object, newer)) == 1:
                    yield f"{self._told(reader)}, although {self._told(other)}{shown}", [reader]

    def _seen_before(self, name: str, value: Result, newer: Result) -> str | None:
        """That the older value was there first is shown by somebody who was done with it when the newer was seen."""
        older = [each for each in self._operations if _deals_with(each, name, value)]
        later = [each for each in self._operations if _deals_with(each, name, newer)]
        for one in older:
            for other in later:
                if one.precedes(other):
                    both = f"{self._told(one)}, {self._told(other)}"
                    return f"; and {_value(value)} was there before {_value(newer)}: {both}"
        return None

    def _lost_update(self) -> Iterator[_Explained]:
        seen: dict[tuple[str, object], Operation] = {}
        for reader, call, value in self._reads():
            if not any(maker is reader for maker, left in self._writes(call.object) if left != value):
                continue
            if value != NOTHING and len(self._writes(call.object, value)) > 1:
                continue
            other = seen.setdefault((call.object, value), reader)
            if other is not reader:
                both = f"{self._told(other)}; {self._told(reader)}"
                found = f"nothing in {call.object}" if value == NOTHING else f"{call.object}={_value(value)}"
                yield f"an update is lost, since both found {found} and replaced it: {both}", [other, reader]

    def _torn(self) -> Iterator[_Explained]:
        """A transaction was seen in one object, and not in another."""
        reads = list(self._reads())
        for reader, call, value in reads:
            for maker, _ in self._writes(call.object, value):
                if maker is reader or len(maker.calls) < 2:
                    continue
                for other, second, older in reads:
                    left = [made for each, made in self._writes(second.object) if each is maker]
                    if other is reader and left and left[0] != older and self._is_older(second.object, older, maker):
                        seen = f"{call.object}={_value(value)}"
                        unseen = f"{second.object}={_value(left[0])}"
                        words = f"so it saw {seen} of the transaction of {self._who(maker)}, and not yet {unseen}"
                        yield f"{self._told(reader)}: {words} of the same", [reader]

    def _is_older(self, name: str, value: Result, than: Operation) -> bool:
        makers = [maker for maker, _ in self._writes(name, value)]
        return not makers or all(maker.precedes(than) for maker in makers)

    # -------------------------------------------------------------------------------------- other objects

    def _totals(self) -> Iterator[_Explained]:
        adds = [(each, call) for each in self._operations for call in each.calls if call.verb == "add"]
        if any(int(call.arguments[0]) < 0 for _, call in adds):
            return
        for each in self._operations:
            for call, result in zip(each.calls, each.results, strict=True):
                if call.verb != "total" or result is UNSEEN:
                    continue
                mine = [(add, int(other.arguments[0])) for add, other in adds if other.object == call.object]
                least = sum(amount for add, amount in mine if add.precedes(each))
                most = sum(amount for add, amount in mine if not each.precedes(add))
                if result < least:
                    what = f"although {least} had been added and acknowledged before"
                    yield f"{self._told(each)}, {what}", [each]
                if result > most:
                    yield f"{self._told(each)}, although no more than {most} had been added when it ended", [each]

    def _membership(self) -> Iterator[_Explained]:
        for each in self._operations:
            for call, result in zip(each.calls, each.results, strict=True):
                for value, is_there in self._membership_told(call, result):
                    yield from self._wrong_membership(each, call.object, value, is_there)

    def _membership_told(self, call: Call, result: Result) -> list[tuple[object, bool]]:
        if result is UNSEEN:
            return []
        match call.verb:
            case "contains" | "remove":
                return [(call.arguments[0], result)]
            case "insert":
                return [(call.arguments[0], not result)]
            case "members":
                put = {
                    other.arguments[0]
                    for each in self._operations
                    for other in each.calls
                    if other.verb == "insert" and other.object == call.object
                }
                return [(value, value in result) for value in sorted(put | result, key=str)]
            case _:
                return []

    def _wrong_membership(self, each: Operation, name: str, value: object, is_there: bool) -> Iterator[_Explained]:
        puts, takes = (
            [other for other in self._operations for call in other.calls if _is_about(call, verb, name, value)]
            for verb in ("insert", "remove")
        )
        if is_there and not any(not each.precedes(put) for put in puts if put is not each):
            yield f"{self._told(each)}, although nobody had begun to insert {_value(value)}", [each]
        done = [put for put in puts if put.precedes(each)]
        if not is_there and done and not [take for take in takes if not take.precedes(done[-1]) and take is not each]:
            by = f"{self._who(done[-1])}, until {when(done[-1].returned)}"
            was = f"although {_value(value)} was inserted and acknowledged before ({by})"
            yield f"{self._told(each)}, {was}, and nobody removed it", [each]

    def _lists(self) -> Iterator[_Explained]:
        reads = [
            (each, call, result)
            for each in self._operations
            for call, result in zip(each.calls, each.results, strict=True)
            if call.verb == "items" and result is not UNSEEN
        ]
        appends = [(each, call) for each in self._operations for call in each.calls if call.verb == "append"]
        for each, call, result in reads:
            for add, other in appends:
                value = other.arguments[0]
                if other.object == call.object and add.precedes(each) and value not in result:
                    by = f"{self._who(add)}, until {when(add.returned)}"
                    yield (
                        f"{self._told(each)}, although {_value(value)} was appended and acknowledged before ({by})",
                        [each],
                    )
                if other.object == call.object and each.precedes(add) and value in result:
                    yield f"{self._told(each)}, before anybody began to append {_value(value)}", [each]
        for each, call, result in reads:
            mine = [(add, other.arguments[0]) for add, other in appends if other.object == call.object]
            seen = [(add, value, result.index(value)) for add, value in mine if value in result]
            for first, one, at in seen:
                for then, two, place in seen:
                    if first.precedes(then) and place < at:
                        was = f"although {_value(one)} was appended and acknowledged before {_value(two)}"
                        yield f"{self._told(each)}, {was}: {self._told(first)}, {self._told(then)}", [each]
        for at, (each, call, result) in enumerate(reads):
            for later, second, told in reads[at + 1 :]:
                shorter = min(len(result), len(told))
                if second.object == call.object and result[:shorter] != told[:shorter]:
                    yield f"two reads differ in the order: {self._told(each)}; {self._told(later)}", [each, later]
                elif second.object == call.object and len(told) < len(result) and each.precedes(later):
                    yield f"{self._told(later)}, although {self._told(each)} before", [later]


def _left(call: Call, result: Result) -> Result | None:
    """What a call leaves in a register; None if it leaves what was there."""
    match call.verb:
        case "write" | "put":
            return call.arguments[0]
        case "delete":
            return NOTHING
        case "cas" if result is not False:
            return call.arguments[1]
        case _:
            return None


def _passes(operation: Operation, name: str, value: Result) -> bool:
    """Whether an operation writes a value, and then another."""
    steps = zip(operation.calls, operation.results, strict=True)
    return any(call.object == name and _left(call, result) == value for call, result in steps)


def _deals_with(operation: Operation, name: str, value: Result) -> bool:
    return operation.returned != NEVER and any(
        call.object == name and value in (_left(call, result), result)
        for call, result in zip(operation.calls, operation.results, strict=True)
    )


def _is_about(call: Call, verb: str, name: str, value: object) -> bool:
    return call.verb == verb and call.object == name and call.arguments[0] == value
