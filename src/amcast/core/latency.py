"""Latencies between regions: the models that the simulator uses, and real clusters to delay their links."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib import resources

import msgspec

from .errors import UsageError

Regions = tuple[str, str]


class Latency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One-way delays between regions: a mean for each pair, normally distributed around it with `sigma` of the mean.

    `regions` are where groups and clients are placed; a pair that is not listed takes `default_us`.
    """

    name: str
    default_us: int
    regions: tuple[str, ...] = ()
    one_way_us: dict[str, int] = {}  # "a b" -> mean, either order
    sigma: float = 0.0
    spread: bool = True  # each group has a replica in each region; else all its replicas are in one region

    def mean_us(self, a: str, b: str) -> int:
        """From one region to another."""
        mean = self.one_way_us.get(f"{a} {b}")
        return self.one_way_us.get(f"{b} {a}", self.default_us) if mean is None else mean

    def check_region(self, region: str) -> None:
        """Raises an error that names the regions, if this is none of them."""
        if not self.regions:
            raise UsageError(f"the network {self.name} has no regions: leave out the region, or use another network")
        if region not in self.regions:
            raise UsageError(
                f"the network {self.name} has no region '{region}': choose one of {', '.join(self.regions)}"
            )

    def rtt_max_us(self) -> int:
        """The longest round trip between any two regions, on average."""
        return 2 * max([self.default_us, *self.one_way_us.values()])


def _from_rtt_ms(
    name: str, rtt_ms: Mapping[Regions, float], sigma: float, inside_us: int = 50, spread: bool = True
) -> Latency:
    regions = tuple(dict.fromkeys(region for pair in rtt_ms for region in pair))
    one_way = {f"{a} {b}": round(ms * 500) for (a, b), ms in rtt_ms.items()}
    return Latency(name, inside_us, regions, one_way, sigma, spread)


_BYZCAST_RTT = {
    ("CA", "VA"): 70.0,
    ("CA", "EU"): 165.0,
    ("CA", "JP"): 112.0,
    ("VA", "EU"): 88.0,
    ("VA", "JP"): 175.0,
    ("EU", "JP"): 239.0,
}
_GEOPAXOS_RTT = {
    ("CA", "VA"): 75.0,
    ("CA", "EU"): 145.0,
    ("CA", "OR"): 22.0,
    ("CA", "JP"): 110.0,
    ("VA", "EU"): 75.0,
    ("VA", "OR"): 80.0,
    ("VA", "JP"): 150.0,
    ("EU", "OR"): 130.0,
    ("EU", "JP"): 215.0,
    ("OR", "JP"): 95.0,
}


def _aws() -> Latency:
    """Round trips between 19 cloud regions, measured in 2020."""
    rtt: dict[Regions, float] = {}
    text = resources.files("amcast.core").joinpath("aws_rtt_2020.csv").read_text()
    for row in csv.DictReader(text.splitlines()):
        if (row["to"], row["from"]) not in rtt:
            rtt[row["from"], row["to"]] = float(row["rtt_avg_ms"])
    return _from_rtt_ms("aws", rtt, sigma=0.01, spread=False)


_PRESETS = {
    "unit": lambda: Latency("unit", 1_000_000),
    "lan": lambda: Latency("lan", 50, sigma=0.05),
    "wan": lambda: _from_rtt_ms("wan", {("R1", "R2"): 70.0, ("R2", "R3"): 70.0, ("R1", "R3"): 144.0}, 0.05),
    "wan4": lambda: _from_rtt_ms("wan4", _BYZCAST_RTT, 0.05),
    "wan5": lambda: _from_rtt_ms("wan5", _GEOPAXOS_RTT, 0.05, inside_us=500),
    "sites": lambda: _from_rtt_ms("sites", _GEOPAXOS_RTT, 0.05, inside_us=500, spread=False),
    "two-clusters": lambda: Latency(
        "two-clusters", 20_000, ("near", "far"), {"near far": 40_000}, sigma=0.03, spread=False
    ),
    "aws": _aws,
}
PRESETS = {
    "unit": "every message takes the same time: for counting delays",
    "lan": "one datacenter, RTT 0.1 ms",
    "wan": "three regions, RTT 70, 70 and 144 ms, one replica of each group in each",
    "wan4": "California, Virginia, Frankfurt, Tokyo",
    "wan5": "California, Virginia, Europe, Oregon, Japan",
    "sites": "the regions of wan5, each group whole in one of them, as GeoPaxos has its sites",
    "two-clusters": "20 ms inside a cluster, 40 ms across",
    "aws": "19 cloud regions by their measured round trips, each group whole in one region",
}


def latency_preset(name: str) -> Latency:
    """A network by its name, as of `amcast sim --network`."""
    if name not in _PRESETS:
        raise UsageError(f"there is no network '{name}': choose one of {', '.join(_PRESETS)}")
    return _PRESETS[name]()
