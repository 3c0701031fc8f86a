"""Posts of a social network in the emulated wide-area network."""

from __future__ import annotations

from ...workload import Social
from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import figure_of, planned
from ._fastcast import GROUPS, PROTOCOLS, TITLES, environment

CLIENTS = (1, 800, 1600)
_PARTITIONS = (1, 2, 3)  # destination groups of a post that occur often enough


def cells(scale: Scale) -> list[RecipeCell]:
    made = []
    for name in PROTOCOLS:
        network, latency, cpu, region = environment("wan", name)
        for clients in CLIENTS:
            each = 60 if clients == 1 else 3
            made.append(
                planned(
                    {"clients": clients},
                    name,
                    network,
                    latency=latency,
                    groups=GROUPS,
                    clients=clients,
                    client_region=region,
                    messages=clients * each * (1 if scale == "small" else 20),
                    workload=Social(),
                    cpu=cpu,
                )
            )
    return made


_RANGES: dict[
    int, dict[str, float]
] = {  # clients -> protocol -> the middle of what is published for posts to several groups
    1: {"fastcast": 74.5, "basecast": 149},
    800: {"fastcast": 85, "basecast": 150},
    1600: {"fastcast": 130, "basecast": 200},
}


def _expected(clients: int, name: str, published: float) -> Expectation:
    return Expectation(
        what=f"{TITLES[name]}, {clients} client{'s' if clients > 1 else ''}, posts to 2 groups: median latency",
        ours=figure_of("client_to_2_p50_ms", protocol=name, clients=clients),
        published=published,
        unit="ms",
        within=0.1 if clients == 1 else 0.25,
        basis="delays" if clients == 1 else "hardware",
        why="Perhaps: posts to one group change a group's clock between a leader's guess and its order, more often "
        "the more "
        "clients "
        "there are: then guesses are wrong, and messages take the slow path of two round trips.",
    )


def _ratio_at(results: Results, clients: int) -> float:
    figure = "client_to_2_p50_ms"
    return results(figure, protocol="basecast", clients=clients) / results(figure, protocol="fastcast", clients=clients)


def _chart(clients: int) -> Chart:
    def line(name: str) -> Line:
        def ours(results: Results, count: float) -> float:
            return results(f"client_to_{int(count)}_p50_ms", protocol=name, clients=clients)

        return Line(TITLES[name], ours, {2.0: _RANGES[clients][name]} if name in _RANGES[clients] else {})

    title = f"{clients} client{'s' if clients > 1 else ''}"
    return Chart(
        title, _PARTITIONS, [line(name) for name in PROTOCOLS], "groups of the followers", "median latency (ms)", True
    )


RECIPE = Recipe(
    name="fastcast-social",
    title="Posts of a social network",
    source="FastCast, Figure 7",
    about="Emulated wide-area network, 16 groups of 3, 10,000 users divided by METIS; a post goes to all groups with "
    "followers.",
    scaled="60 posts of one client, 3 posts of each of many. Saturation, with 4,000 clients and more, is left out.",
    notes="The graph is drawn so that users have followers in as many partitions as published.",
    cells=cells,
    expects=[
        *[_expected(clients, name, value) for clients, values in _RANGES.items() for name, value in values.items()],
        Expectation(
            what="one client: BaseCast over FastCast, twice",
            ours=lambda results: _ratio_at(results, 1),
            published=2.0,
            within=0.1,
        ),
        Expectation(
            what="800 clients: Multi-Paxos is overwhelmed: its latency over FastCast's, posts to 2 groups",
            ours=lambda results: (
                results("client_to_2_p50_ms", protocol="multipaxos", clients=800)
                / results("client_to_2_p50_ms", protocol="fastcast", clients=800)
            ),
            published=1.0,
            at_least=2.0,
            basis="hardware",
            why="800 clients that wait for a round trip make about 10,000 posts a second, and the simulated leader "
            "does 48,000.",
        ),
    ],
    charts=[_chart(clients) for clients in CLIENTS],
)
