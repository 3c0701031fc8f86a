"""Cells that are no simulated load: message delays, trees by the optimiser, operations one by one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from ..apps.store import operation_of
from ..check import Verdict
from ..core import Latency, app_message
from ..overlay.model import UNIT, OverlayTree, evaluate, make_problem
from ..overlay.search import find_tree
from ..protocols import protocol
from ..protocols.geopaxos.spec import objects_at
from ..sim import Scenario, Simulation, scenario
from ..sim.hops import measure_hops
from ..studies.cell import judge_run
from .measures import MEASURES
from .placement import Measured

Ran = tuple[Verdict, str, dict[str, float]]


def delays(settings: dict[str, Any]) -> Ran:
    """`local`, `global`, `slow`, `optimistic` of a protocol, in a network where every message takes one unit."""
    return "pass", "", {each.case: each.delays for each in measure_hops(protocol(settings["protocol"]))}


def tree(settings: dict[str, Any]) -> Ran:
    """What the tree `parents` costs for a demand, or the best tree if none is given: `heights`, `viable` (1 or 0), and
    the load of each group, `load_g5`."""
    rates = {tuple(dst): float(rate) for dst, rate in settings["demand"]}
    auxiliary, capacity = int(settings["auxiliary"]), float(settings["capacity"])
    problem = make_problem(rates, auxiliary=auxiliary, auxiliary_capacity=capacity)
    if "parents" in settings:
        laid = OverlayTree.of_parents((*problem.targets, *problem.auxiliary), settings["parents"])
        is_proven = True
    else:
        plan = find_tree(problem, "exact")
        assert plan.tree is not None, plan.why
        laid, is_proven = plan.tree, plan.is_proven
    outcome = evaluate(problem, laid)
    figures: dict[str, float] = {f"load_g{group}": load / UNIT for group, load in outcome.loads.items()}
    figures |= {"heights": outcome.heights_sum, "viable": outcome.is_viable, "proven": is_proven}
    return "pass", "", figures | {"levels": max(laid.height.values())}


def geopaxos_network(regions: int, inside_us: int, unit_us: int = 0) -> Latency:
    """The first so many regions of the thesis; if `unit_us` is given, all as far from each other."""
    sites = scenario("geopaxos", "sites", groups=3).network
    sites = replace(sites, regions=sites.regions[:regions], default_us=inside_us)
    return replace(sites, sigma=0.0, one_way_us=dict.fromkeys(sites.one_way_us, unit_us)) if unit_us else sites


def one_client(settings: dict[str, Any]) -> Ran:
    """Operations of one client of GeoPaxos, one after the other: what they take at the client, `client_p50_ms`."""
    network = geopaxos_network(settings["regions"], settings["inside_us"], settings.get("unit_us", 0))
    made = scenario(
        "geopaxos", "sites", groups=settings["regions"], clients=1, messages=0, client_region=settings["client"]
    )
    made = replace(made, network=network, records_wire=False, seed=settings["seed"])
    simulation = Simulation(made)
    simulation.start()
    simulation.settle()
    topology, sites = made.topology(), settings["sites"]
    names = {site: objects_at(site, settings["operations"], topology.groups) for site in sites}
    for at in range(settings["operations"]):
        steps = [("get", names[site][at]) for site in sites]
        simulation.multicast(topology.clients[0], topology.groups, operation_of(steps))
        simulation.settle()
    return _timed(simulation, made)


def _timed(simulation: Simulation, made: Scenario) -> Ran:
    result = simulation.result()
    run = result.run()
    verdict, why = judge_run(result, run)
    took = (run.operations.returned_us - run.operations.invoked_us) / 1000
    figures = {f"client_p{q}_ms": float(np.percentile(took, q)) for q in (50, 99)}
    return verdict, why, figures


def senders(settings: dict[str, Any]) -> Ran:
    """Every process multicasts at a constant rate to its own group and the next ones, so that `senders` groups send to
    each. Latencies count until deliveries at the destinations: `final_p95_ms`, `opt_p95_ms`, also by region."""
    made = decode_scenario(settings["scenario"])
    topology, count, every_us = made.topology(), settings["senders"], settings["every_us"]
    groups = topology.groups
    destinations = {
        group: tuple(sorted(groups[(at + step) % len(groups)] for step in range(count)))
        for at, group in enumerate(groups)
    }
    simulation = Simulation(made)
    simulation.start()
    rng = Random(made.seed)
    for process in topology.processes:
        group = topology.group_of(process)
        assert group is not None
        start_us = settings["start_us"] + rng.randrange(every_us)  # they do not tick together
        for seq in range(settings["messages"]):
            message = app_message(process, seq, destinations[group], bytes(64))
            simulation.loop.at(start_us + seq * every_us, simulation.multicast_by_member, process, message)
    simulation.loop.run(until=settings["start_us"] + (settings["messages"] + 1) * every_us)
    simulation.settle()
    result = simulation.result()
    run = result.run()
    verdict, why = judge_run(result, run)
    return verdict, why, {**MEASURES["load"](run, made), **MEASURES["optimistic"](run, made)}


def placement(settings: dict[str, Any]) -> Ran:
    """Users that are placed where they are used: `stable_s`, shares of users by the sites of their followers,
    `at_1_sites`, and the share of operations of one site at the begin and at the end."""
    ran = Measured(settings["users"], settings["seconds"], seed=settings["seed"])
    verdict, why = judge_run(ran.result, ran.result.run())
    spread, bins = ran.spread(), ran.bins()
    figures = {f"at_{sites}_sites": share for sites, share in spread["followers_at_sites"].items()}
    figures |= {"stable_s": ran.stable_s, "moves": len(ran.moves_us)}
    figures |= {f"users_{site}": count for site, count in spread["users_of_site"].items()}
    for each in bins:
        figures[f"fast_from_{each['from_s']}"] = each["below_5_ms"]
        figures[f"median_ms_from_{each['from_s']}"] = each["median_ms"]
    # It is cut off while operations are under way, so what is not delivered yet is no sign of anything.
    return ("pass", "", figures) if verdict == "unknown" else (verdict, why, figures)


def decode_scenario(document: Any) -> Scenario:
    return msgspec.convert(document, Scenario)


PROGRAMS: dict[str, Callable[[dict[str, Any]], Ran]] = {
    "delays": delays,
    "tree": tree,
    "one_client": one_client,
    "senders": senders,
    "placement": placement,
}
