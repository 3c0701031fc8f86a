"""The gate: what a process asks of the others before it takes part, and whom of them it believes."""

from __future__ import annotations

import asyncio

import pytest

from amcast.net.node import _gate
from amcast.net.node._gate import Gate
from amcast.net.wire.control import Life, Lost

from .clusters import run


def lost(incarnation: int) -> Lost:
    return Lost(Life(incarnation, 1, 1, 1), "because")


@pytest.mark.parametrize(("members", "needed"), [(1, 0), (3, 1), (5, 2)])
def test_the_gate_opens_when_all_have_answered_or_a_majority_and_time_has_passed(
    members: int, needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        group = [f"g1.p{number}" for number in range(members)]
        others = group[1:] or ["g2.p0"]
        gate = Gate.of_group("g1.p0", group, [*group, "g2.p0"])
        assert gate.missing == others
        monkeypatch.setattr(_gate, "GRACE_S", 600)
        waiting = asyncio.create_task(gate.answers())
        for other in others:
            await asyncio.sleep(0)
            assert not waiting.done()
            gate.on_welcome("g9.p0")  # nobody it waits for
            gate.on_welcome(other)
        assert await waiting is None
        monkeypatch.setattr(_gate, "GRACE_S", 0.01)
        gate.reset()
        waiting = asyncio.create_task(gate.answers())
        for other in others[:needed]:
            await asyncio.sleep(0.02)
            assert not waiting.done()
            gate.on_welcome(other)
        assert await waiting is None

    run(test)


def test_the_gate_hands_on_the_highest_incarnation_that_is_remembered() -> None:
    async def test() -> None:
        gate = Gate(["g1.p1", "g1.p2"], 1)
        for number in (1, 3, 2):
            assert gate.on_lost(f"g1.p{number}", lost(number))
        assert await gate.answers() == lost(3)
        gate.reset()
        assert gate.missing == ["g1.p1", "g1.p2"]

    run(test)


def told(incarnation: int, boot: int) -> Lost:
    return Lost(Life(incarnation, boot, 1, 1), f"start {boot}")


def gate_among_liars(members: int = 4, liars: int = 1) -> Gate:
    group = [f"g1.p{number}" for number in range(members)]
    return Gate.of_group("g1.p0", group, [*group, "g2.p0", "g2.p1"], liars + 1)


def test_a_liar_alone_takes_nobodys_disk(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gate, "GRACE_S", 0)

    async def test() -> None:
        gate = gate_among_liars()
        for _ in range(3):
            assert not gate.on_lost("g1.p1", told(7, 7))
        assert not gate.on_lost("g2.p0", told(7, 7)), "another group has no say in it"
        assert not gate.on_lost("g2.p1", told(7, 7))
        assert [doubt.split()[0] for doubt in gate.doubts] == ["g1.p1", "g2.p0", "g2.p1"]
        assert [record.getMessage() for record in caplog.records] == gate.doubts, "each is logged once"
        waiting = asyncio.create_task(gate.answers())
        gate.on_welcome("g1.p2")
        await asyncio.sleep(0)
        assert not waiting.done(), "the liar's answer does not open the gate either"
        gate.on_welcome("g1.p3")
        assert await waiting is None
        gate.on_welcome("g1.p1")
        assert len(gate.doubts) == 2

    run(test)


def test_a_disk_is_lost_if_one_more_say_so_than_may_lie() -> None:
    async def test() -> None:
        gate = gate_among_liars()
        assert not gate.on_lost("g1.p1", told(0, 3))
        assert gate.on_lost("g1.p2", told(1, 5))
        assert await gate.answers() == Lost(Life(1, 5, 1, 1), "start 3"), "the one who remembers more is satisfied too"
        assert gate.doubts == []

    run(test)


@pytest.mark.parametrize("lie", [(1 << 63, 0), (0, 1 << 63), (1 << 63, 1 << 63), (-5, -5)])
def test_a_liar_can_not_have_the_numbers_of_a_process_run_over(lie: tuple[int, int]) -> None:
    async def test() -> None:
        gate = gate_among_liars()
        gate.on_lost("g1.p1", told(*lie))
        gate.on_lost("g1.p2", told(1, 5))
        gate.on_lost("g1.p3", told(1, 4))
        believed = gate.lost
        assert believed is not None
        assert (believed.known.incarnation, believed.known.boot) == (1, 5)

    run(test)


@pytest.mark.parametrize(("members", "liars", "needed"), [(4, 1, 2), (7, 2, 4), (10, 3, 6)])
def test_among_liars_the_gate_opens_for_all_but_those_who_may_be_silent(members: int, liars: int, needed: int) -> None:
    assert gate_among_liars(members, liars)._needed == needed
