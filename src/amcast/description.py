"""The description of a run, `run.json`: the simulator and real clusters make it here, by one rule.

A claim about the wire is left out if the wire was not recorded, since nobody could judge it. What a protocol can only
say after the run (its facts, such as OAM's sendersTo) follows from who multicast to which groups.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Any

from . import __version__
from .check.report import ABOUT_THE_WIRE
from .core import GroupId, ProcessId, Topology
from .protocols import ProtocolSpec, ReplicaConfig
from .trace import GroupInfo, RunInfo


def describe(
    spec: ProtocolSpec,
    config: ReplicaConfig,
    topology: Topology,
    sent: Iterable[tuple[ProcessId, GroupId]],
    *,
    run_id: str,
    complete: bool,
    correct: Iterable[ProcessId],
    has_wire: bool,
    seed: int = 0,
    **settings: Any,
) -> RunInfo:
    """`sent`: each sender with each group that it multicast to. `settings`: what the driver says of itself."""
    # A damaged trace may name a group that does not exist. Whoever reads the run will refuse it, not who describes it.
    known = ((sender, group) for sender, group in sent if topology.has_group(group))
    facts = {} if spec.facts is None else spec.facts(config, topology, known)
    return RunInfo(
        run_id=run_id,
        protocol=spec.name,
        seed=seed,
        complete=complete,
        groups=tuple(GroupInfo(group, topology.members(group)) for group in topology.groups),
        correct=tuple(correct),
        claims=tuple(claim for claim in spec.claims if has_wire or claim not in ABOUT_THE_WIRE),
        extra={
            **facts,
            **settings,
            "regions": {str(p): topology.region(p) for p in (*topology.processes, *topology.clients)},
            "versions": {"amcast": __version__, "python": platform.python_version()},
        },
    )
