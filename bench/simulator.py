"""Whole simulated runs, with writing the trace: speed, memory, and whether time grows linearly with the messages."""

from __future__ import annotations

from statistics import median

from ._figures import Figure, Progress, Sizes
from ._worker import CLIENTS, OUTSTANDING, Cost, Job, start

_WIRE_TARGET = 60_000
_LINEAR_TARGET = 1.3
_STRETCH_US = 2_000

_LOAD = f"{CLIENTS} clients x {OUTSTANDING} outstanding"


def measure_run(sizes: Sizes, progress: Progress) -> list[Figure]:
    """FastCast, 8 groups of 3, messages to 1-3 groups.

    Every round does exactly the same, so the best time can be taken for each stretch of the run by itself. Other
    programs may disturb every round, but hardly ever at the same stretch.
    """
    job = Job("fastcast", sizes.run_messages, stretch_us=_STRETCH_US)
    costs: list[Cost] = []
    for number in range(sizes.run_rounds):
        progress(f"round {number + 1} of {sizes.run_rounds}, {job.messages:,} messages")
        costs.append(start(job))
    wire = costs[0].wire_messages
    assert all(cost.wire_messages == wire for cost in costs), "the rounds differ: a run is no function of its seed"
    simulate_s = sum(map(min, zip(*(cost.stretches_s for cost in costs), strict=True)))
    write_s = min(cost.write_s for cost in costs)
    whole = wire / min(cost.cpu_s for cost in costs)
    detail = (
        f"8 groups of 3, {job.messages:,} messages to 1-3 groups, {_LOAD}: {wire:,} wire messages; "
        f"simulate {simulate_s:.1f} s, write {write_s:.1f} s CPU; best of {len(costs)} for each of "
        f"{len(costs[0].stretches_s)} stretches of the run ({whole:,.0f} in the best whole round)"
    )
    return [Figure("fastcast-run", wire / (simulate_s + write_s), "wire messages/CPU s", detail, _WIRE_TARGET)]


def measure_linear(sizes: Sizes, progress: Progress) -> list[Figure]:
    """Whether a message of a large run costs as much as one of a small run.

    The small runs take place while the large one pauses, so that other programs disturb both alike.
    """
    small, large = Job("fastcast", sizes.linear_small), sizes.linear_large
    progress(f"{small.messages:,} messages")
    costs = [start(small)]
    end_us = costs[0].end_us * large // small.messages
    pauses = tuple(end_us * (i + 1) // (sizes.linear_pauses + 1) for i in range(sizes.linear_pauses))

    def run_small() -> None:
        progress(f"{small.messages:,} messages, {len(costs)} of {sizes.linear_pauses} amid {large:,}")
        costs.append(start(small))

    progress(f"{large:,} messages")
    whole = start(Job("fastcast", large, pauses_us=pauses), run_small)
    costs.append(start(small))
    us_small = median(cost.cpu_s for cost in costs) / small.messages * 1e6
    us_large = whole.cpu_s / large * 1e6
    detail = (
        f"{us_small:,.0f} us a message of {small.messages:,}, {us_large:,.0f} us of {large:,}; "
        f"median of {len(costs)} small runs before, amid and after one large run"
    )
    memory = f"{large:,} messages, {whole.wire_messages:,} wire messages, trace written"
    return [
        Figure("linear", us_large / us_small, "x CPU a message", detail, _LINEAR_TARGET, is_limit=True),
        Figure("peak-rss", whole.peak_rss_mb, "MB", memory),
    ]


def measure_protocols(sizes: Sizes, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    for name in ("skeen", "basecast", "fastcast", "multipaxos"):
        progress(f"{name}, {sizes.protocol_messages:,} messages")
        cost = start(Job(name, sizes.protocol_messages))
        load = f"{sizes.protocol_messages:,} messages, {cost.cpu_s / sizes.protocol_messages * 1e6:,.0f} us each"
        figures += [
            Figure(f"{name}-deliveries", cost.deliveries / cost.cpu_s, "deliveries/CPU s", load),
            Figure(f"{name}-events", cost.events / cost.cpu_s, "events/CPU s", load),
        ]
    return figures
