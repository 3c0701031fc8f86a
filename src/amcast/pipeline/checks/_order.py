"""Uniform prefix order and uniform acyclic order of one run.

One message precedes another at a process that delivers it before the other, or without the other although both are
addressed there. Acyclic order: these precedences have no cycle. Prefix order: none of two messages.

Replicas that agree are prefixes of the longest log, so one log stands for a group; replicas that do not agree are a
cycle of two by themselves. Between groups the precedences of neighbours in each log are a graph that has the same
cycles. Whoever lacks a message precedes it with its whole log: a node for the log's end stands between. The graph's
strong components of more than one node are the knots; a shortest cycle is looked for inside them.

Messages to a single group block nobody but their own log and are left out: a path through one is a path without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from ...check.report import VIOLATIONS_PER_PROPERTY, Findings
from ._cycles import Knot, find_inversions, shortest_cycles
from ._layout import Layout
from ._read import Int64s
from ._replicas import Replica, Replicas


def check_order(layout: Layout, groups: list[Replicas], findings: Findings) -> None:
    findings.begin("prefix")
    findings.begin("acyclic")
    for group in groups:
        for member, at in group.diverging():
            _report_divergence(layout, group, member, at, findings)
    lanes = _lanes(layout, groups)
    knots = tangled(lanes.logs, lanes.absent, len(layout.ids))
    if not knots:
        return
    inversions = [(knot, cycle) for knot in knots for cycle in find_inversions(knot, VIOLATIONS_PER_PROPERTY)]
    broken = ("prefix", "acyclic") if inversions else ("acyclic",)
    cycles = inversions or [(knot, cycle) for knot in knots for cycle in shortest_cycles(knot, VIOLATIONS_PER_PROPERTY)]
    shortest = min(len(cycle.messages) for _, cycle in cycles)
    for knot, cycle in cycles:
        if len(cycle.messages) == shortest:
            witnesses = [groups[lane].longest for lane in cycle.lanes]
            _report_cycle(layout, [int(knot.messages[at]) for at in cycle.messages], witnesses, broken, findings)


def _report_divergence(layout: Layout, group: Replicas, member: Replica, at: int, findings: Findings) -> None:
    pair = [int(member.ordered[at]), int(group.longest.ordered[at])]
    _report_cycle(layout, pair, [member, group.longest], ("prefix", "acyclic"), findings)


def _report_cycle(
    layout: Layout, messages: list[int], witnesses: list[Replica], broken: tuple[str, ...], findings: Findings
) -> None:
    steps = []
    for witness, first, then in zip(witnesses, messages, [*messages[1:], messages[0]], strict=True):
        how = "before" if (witness.ordered == then).any() else "without"
        done = f"{layout.name(witness.process)} delivered {layout.message(first)}"
        steps.append(f"{done} {how} {layout.message(then)}")
    for name in broken:
        ids = [layout.id_of(number) for number in messages]
        findings.fail(name, ids, [witness.process for witness in witnesses], "; ".join(steps))


# ------------------------------------------------------------------------------------------------- lanes


@dataclass(frozen=True, slots=True)
class _Lanes:
    logs: list[Int64s]  # of each group, messages to several groups only
    absent: list[Int64s]  # what is addressed to the group and only others delivered


def _lanes(layout: Layout, groups: list[Replicas]) -> _Lanes:
    is_global = np.zeros(len(layout.ids), np.bool_)
    is_global[: layout.multicast_count] = layout.sizes > 1
    logs = [group.longest.ordered[is_global[group.longest.ordered]] for group in groups]
    somewhere = np.zeros(len(layout.ids), np.bool_)
    for log in logs:
        somewhere[log] = True
    absent = []
    for group, log in zip(groups, logs, strict=True):
        lacking = somewhere.copy()
        lacking[log] = False
        absent.append(group.lane.messages[lacking[group.lane.messages]])
    return _Lanes(logs, absent)


def tangled(logs: list[Int64s], absent: list[Int64s], messages: int) -> list[Knot]:
    """The strong components of the precedences, each with its part of every lane."""
    before = [log[:-1] for log in logs]
    after = [log[1:] for log in logs]
    for lane, (log, missing) in enumerate(zip(logs, absent, strict=True)):
        if len(log) and len(missing):
            end = messages + lane
            before += [log[-1:], np.full(len(missing), end)]
            after += [np.array([end]), missing]
    sources, targets = np.concatenate(before), np.concatenate(after)
    if not len(sources):
        return []
    nodes = messages + len(logs)
    graph = csr_matrix((np.ones(len(sources), np.int8), (sources, targets)), shape=(nodes, nodes))
    count, component = connected_components(graph, directed=True, connection="strong")
    if count == nodes:
        return []
    is_tangled = np.bincount(component, minlength=count)[component] > 1
    return _knots(logs, absent, component[:messages], is_tangled[:messages])


def _knots(logs: list[Int64s], absent: list[Int64s], component: Int64s, is_tangled: Int64s) -> list[Knot]:
    parts = [(log[is_tangled[log]], missing[is_tangled[missing]]) for log, missing in zip(logs, absent, strict=True)]
    which = np.unique(component[is_tangled])
    knots = []
    for one in which.tolist()[:VIOLATIONS_PER_PROPERTY]:
        lanes, heads, tails = [], [], []
        for lane, (log, missing) in enumerate(parts):
            inside = log[component[log] == one]
            if len(inside):  # whoever delivered none of them precedes none of them
                lanes.append(lane)
                heads.append(inside)
                tails.append(missing[component[missing] == one])
        knots.append(Knot.of(lanes, heads, tails))
    return knots
