"""Which operations must precede which, in every order that explains the answers.

A search would find the same by trying; where many operations have no answer, it tries for too long. What is known at
once, of registers in which no value is written twice:

- an operation that ended before another one began precedes it;
- whoever wrote a value precedes everybody who read it;
- if the writer of a value precedes another writer, so does everybody who read the value: later it was gone;
- if another writer precedes somebody who read the value, it precedes the value's own writer: later it would hide it.

The last two rules are applied until nothing new follows. If an operation must then precede itself, there is no order.
For example, r reads x = 1 and y = 2. The writer of x = 3 ended before the writer of y = 2 began, so it precedes r, and
therefore precedes the writer of x = 1 too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...trace.operations import NOTHING, UNSEEN
from ._history import Operation

_OPERATIONS_MAX = 1_000  # the work grows with the square of their number
_READS, _WRITES = ("read", "get"), ("write", "put")


@dataclass(slots=True)
class _Value:
    """Of one register. Operations are numbers."""

    writer: int | None = None  # None: it was there at first
    readers: list[int] = field(default_factory=list)


class Demands:
    """`before[n]` has a bit for each operation that must precede the n-th one."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.is_contradictory = False
        self.before = [0] * len(operations)
        self._after = [0] * len(operations)
        if len(operations) > _OPERATIONS_MAX:
            return
        self._registers = _registers(operations)
        if not self._registers:
            return
        self._demand_real_time(operations)
        self._demand_what_was_read()
        while not self.is_contradictory and self._demand_what_follows():
            pass

    def _demand_real_time(self, operations: Sequence[Operation]) -> None:
        """This is an order already: nothing has to be concluded from it."""
        for number, operation in enumerate(operations):
            for other, earlier in enumerate(operations):
                if earlier.precedes(operation):
                    self.before[number] |= 1 << other
                    self._after[other] |= 1 << number

    def _demand_what_was_read(self) -> None:
        for values in self._registers.values():
            writers = [value.writer for value in values.values() if value.writer is not None]
            for text, value in values.items():
                if value.writer is None and text != NOTHING and value.readers:
                    self.is_contradictory = True  # nobody wrote what was read
                for reader in value.readers:
                    if value.writer is not None:
                        self._demand(value.writer, reader)
                    else:
                        for writer in writers:
                            if writer != reader:
                                self._demand(reader, writer)

    def _demand_what_follows(self) -> bool:
        """Whether there was anything new."""
        is_new = False
        for values in self._registers.values():
            writers = sum(1 << value.writer for value in values.values() if value.writer is not None)
            for value in values.values():
                if value.writer is None:
                    continue
                for reader in value.readers:
                    others = writers & ~(1 << value.writer | 1 << reader)
                    for other in _bits(self._after[value.writer] & others & ~self._after[reader]):
                        is_new |= self._demand(reader, other)
                    for other in _bits(self.before[reader] & others & ~self.before[value.writer]):
                        is_new |= self._demand(other, value.writer)
        return is_new

    def _demand(self, earlier: int, later: int) -> bool:
        """Also of all that precede the one or follow the other. Whether it was new."""
        if earlier == later or self.before[earlier] >> later & 1:
            self.is_contradictory = True
        if self.is_contradictory or self.before[later] >> earlier & 1:
            return False
        all_earlier = self.before[earlier] | 1 << earlier
        all_later = self._after[later] | 1 << later
        for each in _bits(all_later):
            self.before[each] |= all_earlier
        for each in _bits(all_earlier):
            self._after[each] |= all_later
        return True


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def _registers(operations: Sequence[Operation]) -> dict[str, dict[object, _Value]]:
    """Of each register in which no value is written twice: who wrote and who read each value.

    Others see the last value that an operation writes, and it saw others' only until it wrote one itself.
    """
    is_other: set[str] = set()
    written: Counter[tuple[str, object]] = Counter()
    found: dict[str, dict[object, _Value]] = {}
    for number, operation in enumerate(operations):
        last: dict[str, object] = {}
        for call, result in zip(operation.calls, operation.results, strict=True):
            values = found.setdefault(call.object, {NOTHING: _Value()})
            if call.verb in _WRITES:
                written[call.object, call.arguments[0]] += 1
                last[call.object] = call.arguments[0]
            elif call.verb not in _READS:
                is_other.add(call.object)
            elif call.object not in last and result is not UNSEEN:
                values.setdefault(result, _Value()).readers.append(number)
        for name, value in last.items():
            found[name].setdefault(value, _Value()).writer = number
    is_other |= {name for (name, value), count in written.items() if count > 1 or value == NOTHING}
    return {name: values for name, values in found.items() if name not in is_other}
