"""The folder of a swarm: its plan (`swarm.json`), and one Parquet file for each wave that is finished.

A file appears whole or not at all: a wave whose file is there is finished, any other is run again.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ...core import UsageError
from ...trace.whole import write_whole
from .plan import COUNTS, CellTotals, Found, Plan, SwarmSpec
from .task import ROWS

_PLAN_FILE = "swarm.json"
_WAVES = "waves"


class WaveResult(msgspec.Struct, frozen=True):
    totals: list[CellTotals]
    found: list[Found]


class SwarmStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waves = folder / _WAVES

    def plan(self, spec: SwarmSpec) -> Plan | None:
        """The plan of the swarm that was begun here, None if none was. Refuses the folder of another swarm."""
        file = self._folder / _PLAN_FILE
        if not file.exists():
            if self._folder.exists() and (not self._folder.is_dir() or any(self._folder.iterdir())):
                raise UsageError(f"{self._folder} exists and is not the folder of a swarm: choose another folder")
            return None
        try:
            plan = msgspec.json.decode(file.read_bytes(), type=Plan)
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(f"{file}: can't be read ({error}); choose another folder") from error
        if plan.spec != spec:
            what = _difference(plan.spec, spec)
            raise UsageError(f"{self._folder} holds a swarm with other parameters ({what}): choose another folder")
        return plan

    def begin(self, plan: Plan) -> dict[int, WaveResult]:
        """The results of waves that were finished earlier, by the number of the wave."""
        known = self.plan(plan.spec)
        assert known is None or known == plan, "a swarm that was begun goes on with its own plan"
        try:
            self._waves.mkdir(parents=True, exist_ok=True)
            if known is None:
                write_whole(self._folder / _PLAN_FILE, msgspec.json.format(msgspec.json.encode(plan), indent=2))
        except OSError as error:
            raise UsageError(f"{self._folder}: can't be written: {error.strerror}") from error
        names = [self._name(number) for number in range(len(plan.waves()))]
        return {number: _read(self._waves / name) for number, name in enumerate(names) if (self._waves / name).exists()}

    def save(self, plan: Plan, number: int, result: WaveResult) -> None:
        rows = [{**msgspec.to_builtins(part), "found": None} for part in result.totals]
        nothing = dict.fromkeys(COUNTS, 0)
        rows += [{"cell": one.cell, **nothing, "found": msgspec.json.encode(one).decode()} for one in result.found]
        table = pa.Table.from_pylist(rows, schema=ROWS)
        try:
            for one in result.found:
                target = self.scenario_file(plan.spec, one)
                target.parent.mkdir(exist_ok=True)
                write_whole(target, msgspec.json.format(msgspec.json.encode(one.shrunk or one.scenario), indent=2))
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            write_whole(self._waves / self._name(number), sink.getvalue().to_pybytes())
        except OSError as error:
            raise UsageError(f"{self._folder}: can't be written: {error.strerror}") from error

    def scenario_file(self, spec: SwarmSpec, one: Found) -> Path:
        """Where a counterexample is, for `amcast sim --scenario`."""
        return self._folder / "scenarios" / f"{spec.cells[one.cell].protocol}-c{one.cell}-s{one.seed}.json"

    @staticmethod
    def _name(number: int) -> str:
        return f"wave-{number:06d}.parquet"


def _difference(old: SwarmSpec, new: SwarmSpec) -> str:
    for name in ("seeds", "first_seed", "variant"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            return f"{name.replace('_', ' ')} {before}, not {now}"
    titles = [cell.title() for cell in old.cells]
    return f"{len(titles)} cells: {'; '.join(titles[:3])}{'...' if len(titles) > 3 else ''}"


def _read(file: Path) -> WaveResult:
    try:
        rows = pq.read_table(file, schema=ROWS).to_pylist()
        found = [msgspec.json.decode(row["found"], type=Found) for row in rows if row["found"] is not None]
    except Exception as error:  # corrupt bytes make the library raise errors that it does not document
        raise UsageError(f"{file}: not a whole file of a swarm: remove it, and the wave is run again") from error
    counted = [row for row in rows if row["found"] is None]
    return WaveResult([CellTotals(row["cell"], *(row[name] for name in COUNTS)) for row in counted], found)
