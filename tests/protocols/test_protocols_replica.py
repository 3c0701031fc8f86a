"""The deliveries that a replica keeps for another one that was away."""

from __future__ import annotations

import pytest

from amcast.core import AppMessage, Outbox, message_id
from amcast.protocols._replica import Deliveries, ReplicaConfig
from tests.consensus.paxos_harness import Box

GROUP = 1


class Log(Box):
    def __init__(self) -> None:
        super().__init__()
        self.delivered: list[tuple[int, int]] = []
        self.position = 0

    def deliver(self, position: int, message: AppMessage, final_ts: int | None) -> None:
        self.delivered.append((position, message.seq))

    def restored(self, position: int) -> None:
        self.position = position


def filled(config: ReplicaConfig, sizes: list[int], out: Outbox) -> Deliveries:
    deliveries = Deliveries(GROUP, config)
    for seq, size in enumerate(sizes):
        deliveries.add_own(AppMessage(message_id(9, seq), (GROUP,), bytes(size)), seq + 1, out)
    return deliveries


@pytest.mark.parametrize(
    ("config", "sizes", "kept"),
    [
        (ReplicaConfig(history_max=3), [1] * 8, [5, 6, 7]),
        (ReplicaConfig(history_bytes=10), [4] * 8, [6, 7]),
        (ReplicaConfig(history_bytes=10), [4, 4, 11], []),
        (ReplicaConfig(history_bytes=10), [11, 4, 4], [1, 2]),
        (ReplicaConfig(history_max=1, history_bytes=10), [1, 1], [1]),
    ],
)
def test_the_latest_are_kept_within_the_limits(config: ReplicaConfig, sizes: list[int], kept: list[int]) -> None:
    mine, other = Log(), Log()
    state = filled(config, sizes, mine).dump()
    assert [message.seq for message, _ in state.latest] == kept
    newcomer = Deliveries(GROUP, config)
    newcomer.load(state, other)
    assert other.position == len(sizes) - len(kept)
    assert other.delivered == [(seq, seq) for seq in kept]
    assert newcomer.dump() == state
