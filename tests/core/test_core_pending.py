"""The pending set against a list that is sorted on every call."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amcast.core import PendingSet

ADD, FINALIZE, POP, RELOAD = range(4)

# (what to do, which message, how far the final timestamp exceeds the tentative one)
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 11), st.integers(0, 40)), max_size=60)


class Model:
    """The definition: the smallest (timestamp, message) leaves, once it is final."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[int, bool]] = {}

    def pop(self) -> tuple[int, int] | None:
        if not self.entries:
            return None
        message = min(self.entries, key=lambda m: (self.entries[m][0], m))
        ts, final = self.entries[message]
        if not final:
            return None
        del self.entries[message]
        return message, ts


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_pops_what_a_sorted_list_would(steps: list[tuple[int, int, int]]) -> None:
    pending, model = PendingSet(), Model()
    for number, (what, message, amount) in enumerate(steps):
        if what == ADD and message not in model.entries:
            ts = (number * 7 + amount) % 23  # ties are likely
            pending.add(message, ts)
            model.entries[message] = (ts, False)
        elif what == FINALIZE and message in model.entries and not model.entries[message][1]:
            ts = model.entries[message][0] + amount % 5
            pending.finalize(message, ts)
            model.entries[message] = (ts, True)
        elif what == POP:
            assert pending.pop_deliverable() == model.pop()
        elif what == RELOAD:
            copy = PendingSet()
            copy.load(pending.dump())
            pending = copy
        assert len(pending) == len(model.entries)
        for m in range(12):
            assert (m in pending) == (m in model.entries)
            assert pending.is_final(m) == model.entries.get(m, (0, False))[1]


def test_an_entry_that_is_not_final_blocks_later_ones() -> None:
    pending = PendingSet()
    pending.add(1, 10)
    pending.add(2, 20)
    pending.finalize(2, 20)
    assert pending.pop_deliverable() is None
    pending.finalize(1, 30)
    assert pending.pop_deliverable() == (2, 20)
    assert pending.pop_deliverable() == (1, 30)
    assert pending.pop_deliverable() is None


def test_equal_timestamps_leave_by_message_id() -> None:
    """Comparing timestamps alone "blocks both for ever": the id breaks the tie."""
    pending = PendingSet()
    for message in (3, 1, 2):
        pending.add(message, 5)
        pending.finalize(message, 5)
    assert [pending.pop_deliverable() for _ in range(3)] == [(1, 5), (2, 5), (3, 5)]


def test_a_second_tentative_timestamp_is_refused() -> None:
    pending = PendingSet()
    pending.add(1, 10)
    with pytest.raises(AssertionError, match="one tentative timestamp"):
        pending.add(1, 11)


def test_a_final_timestamp_below_the_tentative_one_is_refused() -> None:
    pending = PendingSet()
    pending.add(1, 10)
    with pytest.raises(AssertionError, match="maximum of the tentative ones"):
        pending.finalize(1, 9)


def test_a_second_final_timestamp_is_refused() -> None:
    pending = PendingSet()
    pending.add(1, 10)
    pending.finalize(1, 12)
    with pytest.raises(AssertionError, match="set once"):
        pending.finalize(1, 12)
