"""Many clients in the emulated wide-area network, and FastCast's slow path."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import ratio
from ._fastcast import DESTINATIONS, lines, many_clients
from .fastcast_lan_load import cells as fast_cells

PUBLISHED: dict[str, dict[float, float]] = {"fastcast": {2: 8_400, 16: 647}, "basecast": {2: 5_050, 16: 475}}
_SLOW = (2, 4, 8)


def _cells(scale: Scale) -> list[RecipeCell]:
    return fast_cells("wan", scale) + [many_clients("wan", scale, count, "fastcast", slow=True) for count in _SLOW]


def _fast(figure: str, name: str, count: int) -> dict[str, str | int | float]:
    return {"protocol": name, "destinations": count, "path": "fast"}


def rate(name: str, count: int) -> Expectation:
    return Expectation(
        what=f"{name}, {count} destinations: throughput",
        ours=lambda results: results("per_s", **_fast("per_s", name.lower(), count)),
        published=PUBLISHED[name.lower()][count],
        unit="msg/s",
        within=0.3,
        basis="hardware",
        why="What arrives meanwhile is ordered as one instance here, so that FastCast's second path costs its "
        "leaders less "
        "than in the authors' library, which has an instance for each message.",
    )


def _slow_line() -> Line:
    def ours(results: Results, x: float) -> float:
        return results("client_p50_ms", protocol="fastcast", destinations=int(x), path="slow")

    return Line("FastCast, slow path", ours)


RECIPE = Recipe(
    name="fastcast-wan-load",
    title="Latency and throughput of many clients in the emulated wide-area network",
    source="FastCast, Figure 5, bottom",
    about="16 groups of 3 over three regions, 1536 clients over the number of destinations, closed loop, 64 bytes.",
    scaled="4 messages a client.",
    notes="Clients are in the leaders' region, see fastcast-wan-latency.",
    cells=_cells,
    expects=[
        rate("FastCast", 2),
        rate("BaseCast", 2),
        rate("FastCast", 16),
        rate("BaseCast", 16),
        *[
            Expectation(
                what=f"FastCast's throughput over BaseCast's, {count} destinations",
                ours=ratio("per_s", _fast("", "fastcast", count), _fast("", "basecast", count)),
                published=published,
                at_least=1.0,
                basis="delays" if count == 2 else "hardware",
            )
            for count, published in ((2, 8_400 / 5_050), (4, 1.0), (8, 1.0), (16, 647 / 475))
        ],
        Expectation(
            what="Multi-Paxos's latency over FastCast's, 8 destinations: about equal",
            ours=ratio("client_p50_ms", _fast("", "multipaxos", 8), _fast("", "fastcast", 8)),
            published=1.0,
            within=0.25,
            basis="hardware",
        ),
        Expectation(
            what="Multi-Paxos's throughput over FastCast's, 16 destinations: best of all",
            ours=ratio("per_s", _fast("", "multipaxos", 16), _fast("", "fastcast", 16)),
            published=1.0,
            at_least=1.0,
            basis="hardware",
            why="Multi-Paxos's leader hears here from all processes what they hold, before it answers: with 16 "
            "destinations "
            "that is most of its work.",
        ),
        *[
            Expectation(
                what=f"FastCast's latency on the slow path over BaseCast's, {count} destinations: slightly higher",
                ours=ratio(
                    "client_p50_ms",
                    {"protocol": "fastcast", "destinations": count, "path": "slow"},
                    _fast("", "basecast", count),
                ),
                published=1.05,
                within=0.15,
                basis="hardware",
                why="Delays are the same, six. Queues at the leaders differ, and a run of four messages a client has "
                "few of "
                "them to tell the median by.",
            )
            for count in (2, 4)
        ],
    ],
    charts=[
        Chart(
            "Latency of many clients",
            DESTINATIONS,
            [*lines("client_p50_ms", {}, path="fast"), _slow_line()],
            "destination groups (clients: 1536 / destinations)",
            "median latency (ms)",
            has_bars=True,
        ),
        Chart(
            "Throughput of many clients",
            DESTINATIONS,
            lines("per_s", PUBLISHED, path="fast"),
            "destination groups (clients: 1536 / destinations)",
            "messages/s",
            has_bars=True,
        ),
    ],
)
