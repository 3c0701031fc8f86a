"""The soak: 64 clients at 80 % of the cluster's maximal rate, for minutes. Memory and latencies must stay flat."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from bench._figures import Figure

from ._children import Worker, rss_mb
from ._jobs import Shape
from ._load_paced import BUCKETS_A_FACTOR, PacedJob, Sample
from ._measure import Progress, Sizes, measure
from ._systems import Amcast

_SHAPE = Shape(64, 16)
_SHARE = 0.8
_WARM_UP = 0.3  # of the time: until then buffers, caches and the allocator grow to their sizes
_GROWTH_MAX = 5.0  # percent of a node's memory, over the time after the warm-up
_P99_MAX = 20.0
_SILENCE_S = 60.0
_TELL_EVERY = 15


def measure_soak(sizes: Sizes, folder: Path, progress: Progress) -> list[Figure]:
    with Amcast(folder / "soak") as system:
        top = measure(system, _SHAPE, min(sizes.seconds * 2, sizes.soak_s)).rate
        rate = _SHARE * top
        progress(f"{top:,.0f} messages/s with {_SHAPE}: {sizes.soak_s:g} s at {rate:,.0f}")
        worker = Worker("bench.cluster._load_paced")
        try:
            worker.tell(PacedJob(system.where, _SHAPE.sessions, _SHAPE.outstanding, rate, sizes.soak_s))
            samples, memory = _watch(worker, system.pids(), progress)
        finally:
            worker.end()
    from_s = _WARM_UP * sizes.soak_s
    return [_rate(samples, rate, top), _tail(samples, from_s), *_growth(samples, memory, from_s)]


def _watch(worker: Worker, pids: dict[str, int], progress: Progress) -> tuple[list[Sample], dict[str, list[float]]]:
    samples: list[Sample] = []
    memory: dict[str, list[float]] = {name: [] for name in pids}
    while not samples or not samples[-1].is_last:
        sample = worker.hear(Sample, _SILENCE_S)
        samples.append(sample)
        for name, pid in pids.items():
            memory[name].append(rss_mb(pid))
        if len(samples) % _TELL_EVERY == 0 or sample.is_last:
            now = ", ".join(f"{name} {values[-1]:.0f} MB" for name, values in memory.items())
            progress(f"{sample.seconds:.0f} s, {sample.sent:,} messages sent: {now}")
    return samples, memory


def _rate(samples: list[Sample], wanted: float, top: float) -> Figure:
    done, seconds = sum(sample.done for sample in samples), samples[-1].seconds
    assert done == samples[-1].sent, "every message was answered"
    detail = f"{done:,} messages in {seconds:.0f} s, {wanted:,.0f}/s wanted; closed loop {_SHAPE}: {top:,.0f}/s"
    return Figure("soak: rate", done / seconds, "messages/s", detail)


def _tail(samples: list[Sample], from_s: float) -> Figure:
    counts: Counter[int] = Counter()
    for sample in samples:
        if sample.seconds >= from_s:
            counts.update(sample.latencies)
    p50, p99 = (percentile(counts, share) for share in (0.50, 0.99))
    detail = f"p50 {p50:,.0f} us, p99 {p99:,.0f} us, from the moment when each message was due"
    return Figure("soak: p99 to p50", p99 / p50, "x", detail, _P99_MAX, is_limit=True)


def percentile(buckets: dict[int, int], share: float) -> float:
    """A percentile of latencies in us: the middle of its bucket."""
    rest = share * sum(buckets.values())
    for bucket, count in sorted(buckets.items()):
        rest -= count
        if rest <= 0:
            return float(np.exp((bucket + 0.5) / BUCKETS_A_FACTOR))
    raise ValueError("there are no latencies")


def _growth(samples: list[Sample], memory: dict[str, list[float]], from_s: float) -> list[Figure]:
    seconds = np.array([sample.seconds for sample in samples])
    late = seconds >= from_s
    figures = []
    for name, values in memory.items():
        growth, start = trend(seconds[late], np.array(values)[late])
        detail = f"{start:.0f} MB after {from_s:.0f} s, {growth:+.1f} MB until the end by a fitted line"
        what = f"soak: memory of {name}"
        figures.append(Figure(what, 100 * growth / start, "%", detail, _GROWTH_MAX, is_limit=True))
    return figures


def trend(seconds: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Growth from the first to the last time, and the value at the first, of a line fitted by least squares."""
    slope, offset = np.polyfit(seconds, values, 1)
    return float(slope * (seconds[-1] - seconds[0])), float(slope * seconds[0] + offset)
