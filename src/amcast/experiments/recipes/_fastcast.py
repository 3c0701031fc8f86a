"""What the recipes of FastCast's evaluation share: the protocols, the loads, and the environments."""

from __future__ import annotations

from ...core import Latency
from ...sim import CpuCost
from ..cell import RecipeCell
from ..hardware import libpaxos, libpaxos_lan
from ..recipe import Line, Results, Scale
from ._building import planned, to_groups

PROTOCOLS = ("basecast", "fastcast", "multipaxos")
TITLES = {"basecast": "BaseCast", "fastcast": "FastCast", "multipaxos": "Multi-Paxos", "slow": "FastCast, slow path"}
SHORT = {"basecast": "BC", "fastcast": "FC", "multipaxos": "MP"}
GROUPS = 16
DESTINATIONS = (1, 2, 4, 8, 16)
_LOAD = 1536  # clients x destinations
_EC2_SPEED = 0.6  # of the cost of a message: "better processors", by how much was not published


def environment(where: str, protocol: str) -> tuple[str, Latency | None, CpuCost, str | None]:
    """The network, what replaces it, what a message costs, and where the clients are.

    In the wide-area networks all groups have their leaders in R1. Published latencies of one round trip leave no room
    for a way to the leader, so clients are in R1 as well.
    """
    cpu = libpaxos(protocol)
    if where == "lan":
        return "lan", libpaxos_lan(), cpu, None
    if where == "ec2":
        cpu = CpuCost(round(cpu.receive_ns * _EC2_SPEED), round(cpu.send_ns * _EC2_SPEED))
    return "wan", None, cpu, "R1"


def one_client(where: str, scale: Scale, groups: int, destinations: int, protocol: str) -> RecipeCell:
    network, latency, cpu, region = environment(where, protocol)
    return planned(
        {"load": "low", "groups": groups, "destinations": destinations},
        protocol,
        network,
        latency=latency,
        groups=groups,
        clients=1,
        client_region=region,
        messages=16 if scale == "small" else 1_000,
        workload=to_groups(destinations),
        cpu=cpu,
    )


def many_clients(where: str, scale: Scale, destinations: int, protocol: str, slow: bool = False) -> RecipeCell:
    """The published number of clients; they stop sooner at scale small."""
    network, latency, cpu, region = environment(where, protocol)
    clients = _LOAD // destinations
    cell = planned(
        {"load": "high", "destinations": destinations, "path": "slow" if slow else "fast"},
        protocol,
        network,
        latency=latency,
        groups=GROUPS,
        clients=clients,
        client_region=region,
        messages=clients * (4 if scale == "small" else 100),
        workload=to_groups(destinations),
        cpu=cpu,
        options={"wrong_guesses": True} if slow else {},
    )
    return cell


def lines(figure: str, published: dict[str, dict[float, float]], **labels: str) -> list[Line]:
    """A line for each protocol over the number of destinations."""

    def line(name: str) -> Line:
        def ours(results: Results, place: float) -> float:
            return results(figure, protocol=name, destinations=int(place), **labels)

        return Line(TITLES[name], ours, published.get(name, {}))

    return [line(name) for name in PROTOCOLS]
