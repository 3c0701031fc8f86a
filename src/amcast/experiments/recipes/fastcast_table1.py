"""Which protocol is best where: FastCast's Table 1, from our runs."""

from __future__ import annotations

from ..cell import Label, RecipeCell
from ..recipe import Expectation, MissingError, Recipe, Results, Scale
from ._building import relabelled
from ._fastcast import DESTINATIONS, GROUPS, PROTOCOLS, SHORT, many_clients, one_client
from .fastcast_social import cells as social_cells

_EQUAL = 0.05  # protocols within so much of the best are as good
_ALL = "BC FC MP"
# environment, load -> the best, for 1, 2, 4, 8 and 16 destinations
_PUBLISHED = {
    ("lan", "low"): (_ALL, "MP", "MP", "MP", "MP"),
    ("lan", "high"): ("BC FC", "FC", "BC FC", "BC", "MP"),
    ("wan", "low"): (_ALL, "FC MP", "FC MP", "FC MP", "MP"),
    ("wan", "high"): ("BC FC", "FC", "FC", "FC", "MP"),
    ("ec2", "low"): (_ALL, "FC MP", "FC MP", "FC MP", "MP"),
    ("ec2", "high"): ("BC FC", "FC", "FC", "FC", "MP"),
    ("social", "low"): (_ALL, "FC MP", "FC MP"),
    ("social", "high"): ("FC", "FC", "FC"),
}
_WHERE = {"lan": "LAN", "wan": "emulated WAN", "ec2": "real WAN", "social": "social network"}
_SOCIAL = (1, 2, 3)  # of a post; those to four groups are too few to tell
_HIGH = 800


def _cells(scale: Scale) -> list[RecipeCell]:
    made = []
    for where in ("lan", "wan", "ec2"):
        for name in PROTOCOLS:
            for count in DESTINATIONS:
                for cell in (
                    # With one client machines have nothing to do: the real network is the emulated one.
                    one_client("wan" if where == "ec2" else where, scale, GROUPS, count, name),
                    many_clients(where, scale, count, name),
                ):
                    made.append(relabelled(cell, where=where))
    return made + [relabelled(cell, where="social") for cell in social_cells(scale)]


def _score(results: Results, where: str, load: str, count: int, name: str) -> float:
    """More is better: throughput under high load, and the inverse of latency otherwise."""
    if where == "social":
        clients = 1 if load == "low" else _HIGH
        return 1 / results(f"client_to_{count}_p50_ms", where=where, protocol=name, clients=clients)
    labels: dict[str, Label] = {"where": where, "load": load, "destinations": count, "protocol": name}
    if load == "high":
        return results("per_s", **labels)
    return 1 / results("client_p50_ms", **labels)


def _best(results: Results, where: str, load: str, count: int) -> set[str]:
    scores = {name: _score(results, where, load, count, name) for name in PROTOCOLS}
    return {SHORT[name] for name, score in scores.items() if score >= (1 - _EQUAL) * max(scores.values())}


def _cell_of(where: str, load: str, count: int, published: str) -> Expectation:
    def ours(results: Results) -> float:
        """1 if the same protocols are best, less if only some of them are."""
        best, theirs = _best(results, where, load, count), set(published.split())
        return len(best & theirs) / len(best | theirs)

    def words(results: Results) -> str:
        try:
            return " ".join(sorted(_best(results, where, load, count)))
        except MissingError:
            return "-"

    return Expectation(
        what=f"{_WHERE[where]}, {load} load, {count} destination{'s' if count > 1 else ''}: best",
        ours=ours,
        published=1.0,
        at_least=1.0,
        basis="hardware",
        words=words,
        published_words=published,
        why=_WHY.get((where, load), ""),
    )


_WHY = {
    (
        "lan",
        "low",
    ): "Multi-Paxos answers here when all destinations hold the message on disk, which is one message more; "
    "with one destination out of 16 groups it is not the destination itself that orders.",
    ("lan", "high"): "See fastcast-lan-load; and Multi-Paxos's leader hears from all processes what they hold.",
    ("wan", "low"): "With one destination Multi-Paxos's answer comes from another group than the one that ordered.",
    ("ec2", "low"): "With one destination Multi-Paxos's answer comes from another group than the one that ordered.",
}

RECIPE = Recipe(
    name="fastcast-table1",
    title="Which protocol is best where",
    source="FastCast, Table 1",
    about="By latency under low load and by throughput under high load; protocols within 5 % of the best are as "
    "good. BC is "
    "BaseCast, FC FastCast, MP Multi-Paxos.",
    scaled="As the recipes whose runs it uses.",
    cells=_cells,
    expects=[
        _cell_of(where, load, count, best)
        for (where, load), row in _PUBLISHED.items()
        for count, best in zip(_SOCIAL if where == "social" else DESTINATIONS, row, strict=True)
    ],
)
