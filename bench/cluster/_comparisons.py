"""The comparisons: what each one measures, which figures it makes of that, and their targets."""

from __future__ import annotations

from collections.abc import Callable

from bench._figures import Figure

from ._jobs import Outcome, Shape
from ._measure import Measurement, Results, best
from ._signatures import signature_us

ONE = Shape(1, 1)
SIXTY_FOUR = (Shape(64, 1), Shape(1, 64))
THOUSAND = (Shape(64, 16), Shape(1, 1_024))
DEEP = Shape(1, 1_024)
BATCHED = Shape(64, 16)
FSYNC = (Shape(256, 1), Shape(1, 256))


class Found:
    """The best outcome of each measurement. A system that did not run has none, and its comparisons are left out."""

    def __init__(self, results: Results) -> None:
        self._best = {measurement: best(outcomes) for measurement, outcomes in results.items()}

    def get(self, system: str, *shapes: Shape) -> Outcome | None:
        """The outcome with the highest rate, of those of the given shapes that were measured."""
        outcomes = [self._best[system, shape] for shape in shapes if (system, shape) in self._best]
        return best(outcomes) if outcomes else None


def latency(found: Found) -> list[Figure]:
    figures = []
    for peer, target in (("pysyncobj", 0.3), ("pysyncobj-unbatched", None), ("nats", None)):
        own, other = found.get("amcast", ONE), found.get(peer, ONE)
        if own is not None and other is not None:
            detail = f"p50 {own.p50_us:,.0f} us and {other.p50_us:,.0f} us, {ONE}"
            name = f"one client's p50, to {peer}"
            figures.append(Figure(name, own.p50_us / other.p50_us, "x", detail, target, is_limit=True))
    return figures


def _rates(
    found: Found, own_name: str, shapes: tuple[Shape, ...], targets: dict[str, float | None], is_every: bool = False
) -> list[Figure]:
    """The rate of a system in each shape, to the best rate of each peer over all shapes.

    The target is for the system's best shape only, or for every shape (`is_every`).
    """
    figures = []
    own_best = found.get(own_name, *shapes)
    for peer, least in targets.items():
        other = found.get(peer, *shapes)
        for shape in shapes:
            own = found.get(own_name, shape)
            if own is not None and other is not None:
                detail = f"{own.rate:,.0f} messages/s, and {other.rate:,.0f} in the shape that suits {peer} most"
                target = least if is_every or own is own_best else None
                figures.append(Figure(f"{own_name} {shape}, to {peer}", own.rate / other.rate, "x", detail, target))
    return figures


def rate_64(found: Found) -> list[Figure]:
    figures = _rates(found, "amcast", SIXTY_FOUR, {"pysyncobj": 4.0, "nats": None})
    return figures + _rates(found, "amcast-apart", SIXTY_FOUR, {"pysyncobj": None, "nats": None})


def rate_1024(found: Found) -> list[Figure]:
    figures = _rates(found, "amcast", THOUSAND, {"pysyncobj": 6.0, "nats": None}, is_every=True)
    return figures + _rates(found, "amcast-apart", THOUSAND, {"pysyncobj": None, "nats": None})


def cpu(found: Found) -> list[Figure]:
    figures = []
    for shape, target in ((DEEP, 10.0), (Shape(64, 16), None)):
        own = found.get("amcast", shape)
        if own is not None:
            detail = f"{own.server_cpu_us:.1f} us of three nodes and {own.load_cpu_us:.1f} us of the load"
            figures.append(Figure(f"CPU of a local message, {shape}", own.cpu_us, "us", detail, target, is_limit=True))
    return figures


def _share(found: Found, system: str, name: str, target: float) -> list[Figure]:
    part, whole = found.get(system, DEEP), found.get("amcast", DEEP)
    if part is None or whole is None:
        return []
    detail = (
        f"{part.rate:,.0f} of {whole.rate:,.0f} messages/s, {DEEP}; CPU {part.cpu_us:.1f} and {whole.cpu_us:.1f} us"
    )
    return [Figure(name, 100 * part.rate / whole.rate, "%", detail, target)]


def two_groups(found: Found) -> list[Figure]:
    return _share(found, "amcast-2-groups", "to two groups, of the local rate", 35.0)


def durable(found: Found) -> list[Figure]:
    return _share(found, "amcast-sync", "durable, of the rate in memory", 50.0)


def tracing(found: Found) -> list[Figure]:
    return _share(found, "amcast-traced", "traced, of the rate without", 85.0)


def fsync(found: Found) -> list[Figure]:
    """The rate of systems that sync to disk before they answer."""
    figures = _rates(found, "amcast-sync", FSYNC, {"etcd": 4.0})
    return figures + _rates(found, "amcast-apart-sync", FSYNC, {"etcd": None})


def bft(found: Found) -> list[Figure]:
    """Groups of four of which one may lie, beside groups of three that may crash. Clients sign each batch."""
    figures = []
    for own_name, peer, target in (("byzcast", "amcast", 0.3), ("byzcast-1kB", "amcast-1kB", 0.3)):
        figures += _rates(found, own_name, (BATCHED,), {peer: target})
        own, other = found.get(own_name, ONE), found.get(peer, ONE)
        if own is not None and other is not None:
            detail = f"p50 {own.p50_us:,.0f} us and {other.p50_us:,.0f} us, {ONE}"
            name = f"{own_name}: one client's p50, to {peer}"
            figures.append(Figure(name, own.p50_us / other.p50_us, "x", detail, 2.5, is_limit=True))
    for dearer in ("byzcast-tls", "byzcast-sync"):
        figures += _rates(found, dearer, (BATCHED,), {"byzcast": None})
    durable_1kb = found.get("byzcast-1kB-sync", BATCHED, DEEP)
    if durable_1kb is not None:
        detail = (
            f"CPU {durable_1kb.server_cpu_us:.1f} us of four nodes and {durable_1kb.load_cpu_us:.1f} us of the load"
        )
        figures.append(Figure("byzcast, 1 kB, on disk: messages a second", durable_1kb.rate, "", detail, 16_500.0))
    return figures + _cost_of_signatures(found)


def _cost_of_signatures(found: Found) -> list[Figure]:
    """Of all CPU time of a message: its client signs, and four members verify. With many at a time they share one."""
    sign_us, verify_us = signature_us()
    own = found.get("byzcast", ONE)
    if own is None:
        return []
    cost_us = sign_us + 4 * verify_us
    detail = f"{cost_us:.0f} of {own.cpu_us:,.0f} us: signed in {sign_us:.0f} us, verified in {verify_us:.0f}"
    return [Figure(f"signatures, of all CPU time, {ONE}", 100 * cost_us / own.cpu_us, "%", detail)]


Comparison = tuple[list[Measurement], Callable[[Found], list[Figure]]]


def _each(systems: tuple[str, ...], shapes: tuple[Shape, ...]) -> list[Measurement]:
    return [(system, shape) for system in systems for shape in shapes]


COMPARISONS: dict[str, Comparison] = {
    "latency": (_each(("amcast", "pysyncobj", "pysyncobj-unbatched", "nats"), (ONE,)), latency),
    "rate-64": (
        [*_each(("amcast", "pysyncobj", "nats"), SIXTY_FOUR), ("amcast-apart", Shape(64, 1))],
        rate_64,
    ),
    "rate-1024": (
        [*_each(("amcast", "pysyncobj", "nats"), THOUSAND), ("amcast-apart", Shape(64, 16))],
        rate_1024,
    ),
    "cpu": (_each(("amcast",), THOUSAND), cpu),
    "two-groups": (_each(("amcast", "amcast-2-groups"), (DEEP,)), two_groups),
    "durable": (_each(("amcast", "amcast-sync"), (DEEP,)), durable),
    "tracing": (_each(("amcast", "amcast-traced"), (DEEP,)), tracing),
    "bft": (
        [
            *_each(("amcast", "byzcast", "amcast-1kB", "byzcast-1kB"), (ONE, BATCHED)),
            *_each(("byzcast-tls", "byzcast-sync", "byzcast-1kB-sync"), (BATCHED,)),
        ],
        bft,
    ),
    "fsync": ([*_each(("amcast-sync", "etcd"), FSYNC), ("amcast-apart-sync", Shape(256, 1))], fsync),
}
