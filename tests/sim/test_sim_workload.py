"""Which groups messages go to, and what global ones do to local ones."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from amcast.core import Topology, UsageError, grid
from amcast.sim import CpuCost, scenario, simulate
from amcast.trace.latency import CLIENT, latencies_us
from amcast.workload import Micro


def drawn(workload: Micro, topology: Topology, count: int = 2_000) -> list[tuple[int, ...]]:
    workload.check(topology)
    return [dst for dst, _ in workload.draw(topology, Random(1), count)]


def test_groups_that_only_help_get_no_messages() -> None:
    found = drawn(Micro(1, 2, targets=4), grid(7, 1, 0))
    assert {group for dst in found for group in dst} == {1, 2, 3, 4}
    assert drawn(Micro(4, 4, targets=4), grid(7, 1, 0), 1) == [(1, 2, 3, 4)]


def test_a_share_of_the_messages_is_global() -> None:
    sizes = Counter(len(dst) for dst in drawn(Micro(1, 3, global_share=0.1), grid(4, 1, 0)))
    assert set(sizes) == {1, 3}
    assert sizes[3] / 2_000 == pytest.approx(0.1, abs=0.03)
    assert {len(dst) for dst in drawn(Micro(1, 3, global_share=0.0), grid(4, 1, 0))} == {1}


def test_without_a_share_messages_are_drawn_as_before() -> None:
    sizes = Counter(len(dst) for dst in drawn(Micro(1, 2), grid(4, 1, 0)))
    assert sizes[1] / 2_000 == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("workload", "problem"),
    [
        (Micro(1, 2, targets=5), "the first 5 groups: there are 3"),
        (Micro(1, 3, targets=2), "can't go to 3 groups: there are 2"),
        (Micro(1, 2, global_share=1.5), "1.5 is no share"),
    ],
)
def test_what_can_not_be_drawn_is_refused(workload: Micro, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        workload.check(grid(3, 1, 0))


def local_latencies_us(global_share: float) -> tuple[float, float]:
    """The median and the 95th percentile of local messages, at moderate load on machines that take time."""
    made = scenario(
        "byzcast",
        "lan",
        groups=3,
        clients=12,
        messages=1_500,
        interval_us=4_000,
        cpu=CpuCost(3_000, 3_000),
        workload=Micro(1, 2, 64, targets=0, global_share=global_share),
        seed=5,
    )
    run = simulate(made).run()
    sizes = np.diff(run.multicasts.dst_start)
    took = latencies_us(run)[CLIENT][sizes == 1]
    return float(np.percentile(took, 50)), float(np.percentile(took, 95))


def test_global_messages_do_not_hold_up_local_ones() -> None:
    """ByzCast has no convoy effect: a tenth of global traffic leaves local latencies as they are."""
    alone, mixed = local_latencies_us(0.0), local_latencies_us(0.1)
    assert mixed[0] <= 1.05 * alone[0]
    assert mixed[1] <= 1.10 * alone[1]
