"""A node keeps the contract of an `Outbox`, where a real event loop could break it."""

from __future__ import annotations

from pathlib import Path

import pytest

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
