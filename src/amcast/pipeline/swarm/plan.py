"""The plan of a swarm: which seeds run in which task and job. It follows from the parameters and the cost of a run.

A cell is one way to fuzz: a protocol, the size of its groups, their number, and the kinds of faults. Every cell runs
the same seeds. The seeds of a cell are cut into chunks, one a task; chunks are gathered into waves, one a job. The
result of a wave is stored as a whole, and a swarm that was stopped goes on with the waves that are missing. Chunks of
all cells take turns, so that a swarm that was stopped has tried something in each cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...core import UsageError

_TASK_SECONDS = 5.0  # long, since each task costs Spark some 0.1 s
_TASK_SECONDS_MIN = 1.0
_CHUNKS_A_CORE = 2  # in a wave


PROCESS, NODE = "process", "node"


class Cell(msgspec.Struct, frozen=True):
    protocol: str
    faults: str = "all"  # as on the command line: all, none, or crash,partition,...
    replicas: int | None = None  # None: the protocol's usual number
    groups: int | None = None  # None: drawn for each seed
    driver: str = PROCESS  # or NODE: whole nodes, with their disks and connections

    def title(self) -> str:
        sizes = [f"groups of {self.replicas}"] if self.replicas else []
        sizes += [f"{self.groups} of them" if self.replicas else f"{self.groups} groups"] if self.groups else []
        nodes = ["whole nodes"] if self.driver == NODE else []
        return ", ".join([self.protocol, *nodes, *sizes, f"faults {self.faults}"])

    def replay(self, seed: int) -> str:
        """The command that runs one of its seeds again, without Spark."""
        sizes = f"{f' --replicas {self.replicas}' if self.replicas else ''}"
        sizes += f"{f' --groups {self.groups}' if self.groups else ''}"
        sizes += " --driver node" if self.driver == NODE else ""
        return f"amcast fuzz --protocol {self.protocol} --seeds 1 --first-seed {seed} --faults {self.faults}{sizes}"


class SwarmSpec(msgspec.Struct, frozen=True):
    """Swarms with equal specs run the same schedules."""

    cells: tuple[Cell, ...]
    seeds: int
    first_seed: int = 0
    variant: str | None = None  # "module:function" that makes a ProtocolSpec: tests put broken protocols in


class Chunk(msgspec.Struct, frozen=True):
    cell: int  # its index in the spec
    first_seed: int
    seeds: int


class Plan(msgspec.Struct, frozen=True):
    spec: SwarmSpec
    chunk_seeds: tuple[int, ...]  # of each cell
    wave_chunks: int

    def chunks(self) -> list[Chunk]:
        spec = self.spec
        end = spec.first_seed + spec.seeds
        made = [
            Chunk(index, first, min(step, end - first))
            for index, step in enumerate(self.chunk_seeds)
            for first in range(spec.first_seed, end, step)
        ]
        return sorted(made, key=lambda chunk: (chunk.first_seed, chunk.cell))

    def waves(self) -> list[list[Chunk]]:
        chunks = self.chunks()
        return [chunks[start : start + self.wave_chunks] for start in range(0, len(chunks), self.wave_chunks)]


class Found(msgspec.Struct, frozen=True):
    """A schedule that violates a property, with all that is needed to replay it."""

    cell: int
    seed: int
    property: str
    messages: list[int]
    processes: list[int]
    explanation: str
    faults: list[str]  # the plan in words, of the shrunk scenario if there is one
    scenario: dict[str, Any]
    shrunk: dict[str, Any] | None = None  # None: only the first few of a task are shrunk


class CellTotals(msgspec.Struct, frozen=True):
    """What was tried in a cell. `violations` counts all schedules that violate a property, also those not kept."""

    cell: int
    schedules: int = 0
    messages: int = 0
    deliveries: int = 0
    wire_messages: int = 0
    faults: int = 0
    violations: int = 0

    def plus(self, other: CellTotals) -> CellTotals:
        assert self.cell == other.cell, "totals of different cells do not add up to anything"
        counts = (getattr(self, name) + getattr(other, name) for name in COUNTS)
        return CellTotals(self.cell, *counts)


COUNTS = CellTotals.__struct_fields__[1:]


def make_cells(
    protocols: Sequence[str],
    faults: Sequence[str] = ("all",),
    replicas: Sequence[int | None] = (None,),
    groups: Sequence[int | None] = (None,),
    driver: str = PROCESS,
) -> tuple[Cell, ...]:
    made = [
        Cell(protocol, kinds, size, count, driver)
        for protocol in protocols
        for size in replicas
        for count in groups
        for kinds in faults
    ]
    for cell in made:
        if made.count(cell) > 1:
            raise UsageError(f"{cell.title()} is named twice: name each value once")
    return tuple(made)


def make_plan(spec: SwarmSpec, run_seconds: Sequence[float], cores: int) -> Plan:
    """`run_seconds` is what one schedule of each cell takes. Small swarms get short tasks, so that all cores work."""
    if spec.seeds < 1 or not spec.cells:
        raise UsageError("a swarm needs at least one seed and one protocol")
    assert len(run_seconds) == len(spec.cells), "every cell has been probed"
    costs = [max(seconds, 1e-4) for seconds in run_seconds]
    whole = sum(costs) * spec.seeds
    task_s = max(_TASK_SECONDS_MIN, min(_TASK_SECONDS, whole / (cores * _CHUNKS_A_CORE)))
    sizes = tuple(max(1, min(spec.seeds, round(task_s / cost))) for cost in costs)
    return Plan(spec, sizes, max(1, cores) * _CHUNKS_A_CORE)
