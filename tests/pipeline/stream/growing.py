"""A run folder that grows file by file, as a system at work writes it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amcast.trace import TABLES, write_run
from amcast.trace.schema import RUN_FILE, encode_run_info
from tests.check.traces import Trace


def _tables(trace: Trace) -> dict[str, pa.Table]:
    with tempfile.TemporaryDirectory() as scratch:
        write_run(Path(scratch) / "run", trace.info(), trace.recorder())
        return {name: pq.read_table(Path(scratch) / "run" / name) for name in TABLES}


class GrowingRun:
    def __init__(self, folder: Path, trace: Trace) -> None:
        self.folder = folder
        self._info = trace.info()
        self._tables = _tables(trace)
        self._files = 0
        folder.mkdir()
        self.describe(complete=False)

    def describe(self, complete: bool) -> None:
        draft = self.folder / f".{RUN_FILE}"
        draft.write_bytes(encode_run_info(msgspec.structs.replace(self._info, complete=complete)))
        os.replace(draft, self.folder / RUN_FILE)

    def write(self, table: str, rows: pa.Table, name: str) -> None:
        """Hidden until it is whole. Folders come with their first file."""
        target = self.folder / table
        target.mkdir(exist_ok=True)
        pq.write_table(rows, target / f".{name}")
        os.replace(target / f".{name}", target / f"{name}.parquet")

    def multicasts(self) -> None:
        self.write("multicasts", self._tables["multicasts"], "part-0")

    def faults(self) -> None:
        self.write("faults", self._tables["faults"], "part-0")

    def deliveries(self, start: int, stop: int, processes: tuple[int, ...] = ()) -> None:
        """Positions of the logs of some processes, all if none is named."""
        rows = self._tables["deliveries"]
        rows = rows.filter((pc.field("pos") >= start) & (pc.field("pos") < stop))
        for process in processes or pc.unique(rows.column("process")).to_pylist():
            self._files += 1
            self.write("deliveries", rows.filter(pc.field("process") == process), f"{process}-{self._files:06d}")
