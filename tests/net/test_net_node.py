"""A node keeps the contract of an `Outbox`, where a real event loop could break it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from amcast.consensus.multipaxos.messages import State
from amcast.core import Outbox, TimerKey

from .clusters import eventually, run, running


@pytest.mark.parametrize("delays_us", [(30_000, 0), (0, 30_000), (30_000, 10_000)])
def test_a_timer_that_is_set_again_fires_once(delays_us: tuple[int, int], tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "cluster", "skeen", groups=1) as cluster:
            node = cluster.servers["g1.p0"].node
            own, fired = node.process.on_timer, []

            def on_timer(key: TimerKey, out: Outbox) -> None:
                if key in ("again", "last"):
                    fired.append(key)
                else:
                    own(key, out)

            node.process.on_timer = on_timer  # type: ignore[method-assign]
            for delay_us in delays_us:
                node.set_timer("again", delay_us)
            node.set_timer("last", 60_000)
            await eventually(lambda: "last" in fired, "the last timer fires")
            assert fired == ["again", "last"]

    run(test)


def test_a_state_leaves_after_the_deliveries_that_it_stands_for_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes it over never has them. If the power fails in the whole group, somebody must have them on disk."""

    async def test() -> None:
        async with running(tmp_path / "cluster", "fastcast", groups=1) as cluster:
            node, done = cluster.servers["g1.p0"].node, []
            monkeypatch.setattr(node.deliveries, "sync", lambda: done.append("sync"))
            monkeypatch.setattr(node, "_transmit", lambda to, data: done.append(f"to {to[0]}"))
            node.send(1, State(1, 7, {}, b"state"))
            assert done == ["sync", "to 1"]

            def fails() -> None:
                raise OSError(errno.ENOSPC, "no space left on device")

            monkeypatch.setattr(node.deliveries, "sync", fails)
            node.send(1, State(1, 7, {}, b"state"))
            assert done == ["sync", "to 1"], "on a full disk nothing is sent"

    run(test)
