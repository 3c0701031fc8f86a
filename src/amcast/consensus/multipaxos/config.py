"""Timing and sizes of a Multi-Paxos log. Time is counted in ticks, so that a clock that jumps disturbs nothing."""

from __future__ import annotations

import msgspec


class PaxosConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tick_us: int = 10_000  # heartbeats, retransmission and elections are driven by this timer
    election_ticks: int = 10  # silence after which a leader is suspected; each member adds as much again at random
    retransmit_ticks: int = 3  # without an answer, after which a message is sent again
    window: int = 16  # instances in flight; what is proposed meanwhile makes the next batch
    window_bytes: int = 8 << 20  # or as many bytes of values, if they are reached first
    value_bytes: int = 1 << 20  # the most of a batch that makes one value; a single entry may have more
    snapshot_every: int = 1_000  # instances between snapshots
    snapshot_bytes: int = 32 << 20  # or as many bytes of values, if they come first
    lag_max: int = 10_000  # a learner that is more instances behind than this gets state instead of values
    lag_bytes: int = 64 << 20  # or more bytes of values
    learn_chunk: int = 256  # values in one answer to a learner that lags
    learn_bytes: int = 4 << 20  # no more of them when they have so many bytes

    @staticmethod
    def for_rtt(rtt_us: int) -> PaxosConfig:
        """Timeouts that suit a network whose longest round trip this is."""
        return PaxosConfig(tick_us=max(10_000, rtt_us // 2))
