"""An erratum is data: what a paper says, an execution that shows what comes of it, and the mend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

import msgspec

from ..check import Violation, check_run
from ..core import GroupId, Process, ProcessId, Topology
from ..protocols import GroupAutomaton, ProtocolSpec, protocol
from ..protocols._client import Ingress
from ..sim import Scenario, SimResult, Stage, simulate
from ..sim.fuzz import violations_of
from ..trace import Run

Build = Callable[[ProcessId, Topology, Any, Random], Process]


class Schedule(Protocol):
    """An execution that can be played with the published algorithm, and with the mended one."""

    def describe(self) -> list[str]: ...
    def play(self, published: bool) -> tuple[Run, tuple[Violation, ...]]: ...


@dataclass(frozen=True)
class Directed:
    """Group automata on a stage, and a script of what arrives when (see `amcast.sim.stage`)."""

    protocol: str
    groups: int
    script: str
    published: Callable[[GroupId], GroupAutomaton]
    mended: Callable[[GroupId], GroupAutomaton]

    def describe(self) -> list[str]:
        return [line.strip() for line in self.script.strip().splitlines()]

    def play(self, published: bool) -> tuple[Run, tuple[Violation, ...]]:
        build = self.published if published else self.mended
        stage = Stage(self.protocol, protocol(self.protocol).claims, self.groups, build)
        for step in self.describe():
            stage.play(step)
        run = stage.run()
        return run, tuple(check_run(run).violations)


@dataclass(frozen=True)
class Simulated:
    """A scenario of the simulator, faults included; by default whatever the fuzzer would call a violation counts."""

    scenario: Scenario
    published: Build
    judge: Callable[[SimResult], tuple[Violation, ...]] = violations_of
    # How messages enter, if that is what is published.
    ingress: Callable[[ProcessId, Topology, Any], Ingress] | None = None

    def describe(self) -> list[str]:
        made = self.scenario
        load = f"{made.messages} messages of {made.clients} clients to {made.groups} groups of {made.replicas}"
        network = f"{made.network.default_us} us a message, spread {made.network.sigma:g}"
        seed = f"seed {made.seed}, {load}, {network}"
        return [seed, *made.plan.describe(made.topology())]

    def play(self, published: bool) -> tuple[Run, tuple[Violation, ...]]:
        result = simulate(self.scenario, self.spec() if published else None)
        return result.run(), self.judge(result)

    def spec(self) -> ProtocolSpec:
        mended = protocol(self.scenario.protocol)
        return replace(mended, build=self.published, ingress=self.ingress or mended.ingress)


@dataclass(frozen=True)
class Erratum:
    name: str
    protocol: str
    paper: str  # and the place in it
    published: str  # what the paper says, in our words
    problem: str  # what comes of it
    mend: str
    breaks: frozenset[str]  # properties of which the published algorithm violates at least one
    schedule: Schedule


class Replay(msgspec.Struct, frozen=True):
    """What a replay showed. It holds if the published algorithm fails as told, and the mended one does not."""

    name: str
    protocol: str
    paper: str
    published: str
    problem: str
    mend: str
    schedule: list[str]
    expected: list[str]
    violations: list[Violation]  # of the published algorithm
    mended: list[Violation]  # of the mended one: none
    holds: bool


def replay(erratum: Erratum) -> tuple[Replay, Run]:
    """The run is that of the published algorithm, for diagrams."""
    run, violations = erratum.schedule.play(published=True)
    _, mended = erratum.schedule.play(published=False)
    told = [violation for violation in violations if violation.property in erratum.breaks]
    made = Replay(
        erratum.name,
        erratum.protocol,
        erratum.paper,
        erratum.published,
        erratum.problem,
        erratum.mend,
        erratum.schedule.describe(),
        sorted(erratum.breaks),
        told or list(violations),
        list(mended),
        bool(told) and not mended,
    )
    return made, run
